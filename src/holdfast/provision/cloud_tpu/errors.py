"""What went wrong, told apart: quota, stock-out, a refusal, or nothing that says anything.

Both a quota and a stock-out come as RESOURCE_EXHAUSTED (8). A quota's error carries a QuotaFailure
or says so; that of too many requests in a minute is neither, and is over by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.hosts.fleet import ActOutcome

NOT_FOUND, ALREADY_EXISTS, EXHAUSTED = 5, 6, 8
# Asked again as it is, it is refused again: INVALID_ARGUMENT, NOT_FOUND (what a creation names, as
# its network, is not there), PERMISSION_DENIED, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED.
_REFUSED = (3, NOT_FOUND, 7, 11, 12, 16)
_RATE = ("per minute", "rate_limit_exceeded", "rate limit")
_QUOTA = ("quota",)


def outcome_of(code: int, message: str, details: Iterable[Any] = ()) -> ActOutcome:
    """What an error with that code of google.rpc.Code means for an order."""
    if code in _REFUSED:
        return ActOutcome.REFUSED
    if code != EXHAUSTED:
        return ActOutcome.TROUBLE
    reasons = [str(getattr(one, "reason", "")).lower() for one in details]
    words = " ".join([message.lower(), *reasons])
    if any(one in words for one in _RATE):
        return ActOutcome.TROUBLE
    has_failure = any(type(one).__name__ == "QuotaFailure" for one in details)
    is_quota = has_failure or any(one in words for one in _QUOTA)
    return ActOutcome.QUOTA if is_quota else ActOutcome.STOCKOUT


def failure_of(code: int, message: str) -> ActOutcome:
    """Why a request was given up; for want of machines where nothing else is said."""
    outcome = outcome_of(code or EXHAUSTED, message)
    return ActOutcome.STOCKOUT if outcome is ActOutcome.TROUBLE else outcome
