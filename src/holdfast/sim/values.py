"""Values of parameters as people give them: flags are text, a file's values may be numbers.

Each parser raises ValueError with a sentence that names the value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from holdfast.sim.durations import seconds_of
from holdfast.sim.laws import Fixed, Law, LogNormal

LOG_NORMAL = "lognormal:"
SPREAD_MOST = 3.0


def count(least: int) -> Callable[[object], int]:
    """A parser of whole numbers, so many at least."""

    def parse(given: object) -> int:
        try:
            if isinstance(given, bool) or not isinstance(given, int | str):
                raise ValueError
            found = int(given)
        except ValueError:
            raise ValueError(f"{shown(given)} is not a whole number") from None
        if found < least:
            raise ValueError(f"{found} is too few: give {least} or more")
        return found

    return parse


def number(given: object) -> float:
    """A number above 0."""
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        found = float(given)
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(given)} is not a number") from None
    if not (found > 0 and isfinite(found)):
        raise ValueError(f"{found:g} is impossible: give a number above 0")
    return found


def share(given: object) -> float:
    """From 0 to 1."""
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        found = float(given)
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(given)} is not a share: give a number from 0 to 1") from None
    if not 0 <= found <= 1:
        raise ValueError(f"{found:g} is not a share: give a number from 0 to 1")
    return found


def part(given: object) -> float:
    """From 0 to less than 1."""
    found = share(given)
    if found == 1:
        raise ValueError("1 leaves nothing: give less than 1")
    return found


def spread(given: object) -> float:
    """The sigma of a log-normal law, 0 for none."""
    sigma = 0.0 if given in (0, "0") else number(given)
    if sigma > SPREAD_MOST:
        raise ValueError(f"{sigma:g} is too much: give at most {SPREAD_MOST:g}")
    return sigma


def period(given: object) -> float:
    """A time of more than 0, in seconds."""
    value_s = seconds_of(given)
    if not value_s:
        raise ValueError("0 is not a time: give more than 0")
    return value_s


def days(given: object) -> float:
    """How long a run lasts, in seconds; a bare number is of days."""
    value_s = seconds_of(given, unit="d")
    if not value_s:
        raise ValueError("a run of no time has no goodput: give more than 0")
    return value_s


def wait_law(given: object) -> Law:
    """A time, or `lognormal:MEDIAN:SIGMA`."""
    if not (isinstance(given, str) and given.startswith(LOG_NORMAL)):
        return Fixed(seconds_of(given))
    median, colon, sigma = given.removeprefix(LOG_NORMAL).partition(":")
    if not colon:
        raise ValueError(
            f"{shown(given)} has no sigma: give lognormal:MEDIAN:SIGMA, as in lognormal:4h:0.8"
        )
    return LogNormal(period(median), number(sigma))


def repair_law(given: object) -> Law:
    """The same, of more than 0."""
    law = wait_law(given)
    if not law.mean_s:
        raise ValueError("0 is not a time: give more than 0")
    return law


def flag(given: object) -> bool:
    """As a file has it, or in the words of a policy."""
    value = {"true": True, "false": False}.get(given) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise ValueError(f"{shown(given)} is neither true nor false: give one of them")
    return value


def shown(value: object) -> str:
    """A value as it is quoted to the one who gave it."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
