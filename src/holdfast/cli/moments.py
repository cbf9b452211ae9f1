"""Moments and stretches of time as flags give them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, tzinfo

from holdfast.errors import ConfigurationError

NS_PER_S = 1_000_000_000
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def window_ns(text: str) -> int:
    """The value of --window (or --last): seconds, or 90s, 5min, 2h, 7d."""
    from holdfast.sim.durations import seconds_of

    try:
        length_ns = round(seconds_of(text) * NS_PER_S)
    except ValueError as error:
        raise ConfigurationError(f"--window (or --last): {error}") from None
    if length_ns <= 0:
        raise ConfigurationError(f"--window (or --last): {text}: give more than 0 s")
    return length_ns


def moment_ns(text: str, flag: str, zone: tzinfo = UTC) -> int:
    """Unix nanoseconds of unix seconds, or of an ISO 8601 time, without a zone of that one."""
    from holdfast.core.history.line import MAX_TIME_S

    seconds = number(text)
    try:
        if seconds is None:
            moment = datetime.fromisoformat(text.strip())
            moment = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
            at_ns = (moment - _EPOCH) // _MICROSECOND * 1000
        else:
            at_ns = round(seconds * NS_PER_S)
        if abs(at_ns) <= MAX_TIME_S * NS_PER_S:
            return at_ns
    except (ValueError, OverflowError):
        pass
    raise ConfigurationError(
        f"{flag} {text}: give a time like 2026-01-31T18:00:00Z, or unix seconds"
    )


def number(text: str) -> float | None:
    """A finite number; None: it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
