"""Durations in words, for sentences: short, and in the unit that people would use."""

from __future__ import annotations

from functools import lru_cache

SECOND_NS = 1_000_000_000
_MIN, _H, _DAY = 60.0, 3600.0, 86_400.0
# Below so many seconds it is said in that unit; what would be rounded up to 120 s is 2 min.
_UNITS = (
    (1e-3, 1e-6, "µs"),
    (0.0995, 1e-3, "ms"),
    (119.5, 1.0, "s"),
    (119.5 * _MIN, _MIN, "min"),
    (47.5 * _H, _H, "h"),
)


def in_words(ns: float) -> str:
    """With one to three digits: 12 ms, 0.9 s, 41 s, 2 min, 3.8 h, 12 days; below zero 0 s."""
    return seconds_in_words(ns / SECOND_NS)


def clock_words(ahead_ns: int | None, error_ns: int | None) -> str:
    """How far a clock is ahead of another, and how well that is known; None: it is not."""
    if ahead_ns is None or error_ns is None:
        return "–"
    if not ahead_ns and not error_ns:
        return "the same"
    sign = "+" if ahead_ns > 0 else "-" if ahead_ns else ""
    return f"{sign}{in_words(abs(ahead_ns))} ± {in_words(error_ns)}"


@lru_cache(maxsize=1024)
def seconds_in_words(seconds: float) -> str:
    """A time in seconds, in words as `in_words` has them."""
    seconds = max(0.0, seconds)
    below = (unit[1:] for unit in _UNITS if 0 < seconds < unit[0])
    size_s, name = next(below, (_DAY, "days") if seconds else (1.0, "s"))
    value = seconds / size_s
    tenths = f"{value:.1f}".removesuffix(".0")
    return f"{tenths if value < 9.95 else round(value)} {name}"
