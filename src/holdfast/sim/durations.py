"""Durations as people give them: plain seconds, or 90s, 5min, 2h, 54d."""

from __future__ import annotations

import re

UNITS_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
WORDS = "seconds, or a number with ms, s, min, h or d behind it, like 90s, 5min, 2h, 54d"
_FORM = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d_]*)\s*", re.ASCII)
_MOST_CHARS = 40
_MOST_S = 1e12


def seconds_of(given: object, *, unit: str = "s") -> float:
    """A duration in seconds; a number without a unit counts in `unit`.

    Raises ValueError with one sentence for what is none: text, NaN, less than zero, another unit.
    """
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(f"{ascii(given)[:_MOST_CHARS]} is not a duration: give {WORDS}")
    text = str(given)[:_MOST_CHARS]
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{text!a} is not a duration: give {WORDS}")
    name = form[2] or unit
    if name not in UNITS_S:
        raise ValueError(f"{text}: there is no unit {name!r}; give {WORDS}")
    value_s = float(form[1]) * UNITS_S[name]
    if value_s < 0:
        raise ValueError(f"{text} is less than zero; give zero or more")
    if not value_s <= _MOST_S:
        raise ValueError(f"{text} is too long; give less than {_MOST_S:g} s")
    return value_s


def in_words(value_s: float) -> str:
    """A duration with three digits or so and one unit: 45.8 s, 18.6 min, 3.09 h, 54 d."""
    if value_s == 0:
        return "0 s"
    for below_s, unit in ((0.1, "ms"), (120.0, "s"), (7200.0, "min"), (172_800.0, "h")):
        if value_s < below_s:
            return f"{value_s / UNITS_S[unit]:.3g} {unit}"
    days = value_s / UNITS_S["d"]
    return f"{days:.3g} d" if days < 1000 else f"{days:,.0f} d"
