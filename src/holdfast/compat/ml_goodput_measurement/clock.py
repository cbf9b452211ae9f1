"""Now, and the API's times as nanoseconds. Log entries carry unix seconds as floats."""

from __future__ import annotations

import datetime
import time

NS_PER_S = 1_000_000_000


def unix_ns() -> int:
    """The wall clock: the one moment of this face that tests put another in the place of."""
    return time.time_ns()


def utc_now() -> datetime.datetime:
    """The same, as the API gives moments."""
    return datetime.datetime.fromtimestamp(unix_ns() / NS_PER_S, datetime.UTC)


def ns_of(unix_s: float) -> int:
    """Nanoseconds of a moment, to the microsecond that a float of today still has."""
    return round(unix_s * 1e6) * 1000


def ns_of_moment(moment: datetime.datetime) -> int:
    """Nanoseconds of a datetime; one without a zone is local time."""
    return ns_of(moment.timestamp())
