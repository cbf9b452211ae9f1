"""Moments and stretches of time as flags give them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from holdfast.errors import ConfigurationError

NS_PER_S = 1_000_000_000


def window_ns(text: str) -> int:
    """The value of --last (or --window): seconds, or 90s, 5min, 2h, 7d."""
    from holdfast.sim.durations import seconds_of

    try:
        length_ns = round(seconds_of(text) * NS_PER_S)
    except ValueError as error:
        raise ConfigurationError(f"--last {error}") from None
    if length_ns <= 0:
        raise ConfigurationError(f"--last {text}: give more than 0 s")
    return length_ns


def moment_ns(text: str, flag: str) -> int:
    """Unix nanoseconds of an ISO 8601 time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{flag} {text}: give a time like 2026-01-31T18:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * NS_PER_S)


def number(text: str) -> float | None:
    """A finite number; None: it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
