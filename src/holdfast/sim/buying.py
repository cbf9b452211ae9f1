"""Ways to buy machines, as they are described: what a plan weighs against one another.

Nothing is known of a price, or of how often a seller takes machines back, but what is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.sim.laws import Law
from holdfast.sim.values import number, period, share, shown, wait_law

HELD, ALWAYS = "held", "always"
MOST_WAYS = 12
NAME_CHARS = 16


@dataclass(frozen=True, slots=True)
class Way:
    """One way to buy.

    `price`: of a chip for an hour, in any currency. `interruptions`: hosts that the seller takes
    back, of 1000 hosts in a day, beside all that fails. `provision`: how long machines are waited
    for, at the start and for each that was lost; None: as the plan says without it. `notice_s`
    ahead of a share `notice_recall` of the interruptions they are announced. `pays`: for machines
    that are held, or from the request to the end whatever is there. `term_s`: for whole terms.
    `window_s`, `gap_s`: the machines are there for so long, all of it paid, then for so long not.
    """

    name: str
    price: float
    interruptions: float = 0.0
    provision: Law | None = None
    notice_s: float = 0.0
    notice_recall: float = 0.0
    pays: str = HELD
    term_s: float | None = None
    window_s: float | None = None
    gap_s: float | None = None


def ways_of_flags(given: Iterable[str]) -> dict[str, Way]:
    """From `NAME:price=2.1,interruptions=30`, one each; raises ConfigurationError."""
    ways = {}
    for text in given:
        name, _, rest = text.partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
        where = f"--buy {shown(text)}"
        for key, equals, _ in pairs:
            if not (key and equals):
                raise ConfigurationError(f"{where}: give NAME:price=2.1,interruptions=30 and so on")
        ways[name] = _way(where, name, [(key, value) for key, _, value in pairs])
    return ways


def ways_of_table(given: object, where: str) -> dict[str, Way]:
    """From a file's tables `[buy.NAME]`; raises ConfigurationError."""
    if not isinstance(given, Mapping) or not all(isinstance(v, Mapping) for v in given.values()):
        raise ConfigurationError(
            f"{where}: buy is not a table: write [buy.spot], and its keys below"
        )
    return {
        name: _way(f"{where}: buy.{name}", name, table.items()) for name, table in given.items()
    }


def _way(where: str, name: str, given: Iterable[tuple[str, object]]) -> Way:
    if not (0 < len(name) <= NAME_CHARS and name.isprintable()):
        raise ConfigurationError(
            f"{where}: {shown(name)} cannot name a way to buy: give 1 to {NAME_CHARS} characters"
        )
    values: dict[str, Any] = {}
    for key, value in given:
        word = key.replace("_", "-")
        known = LONG.get(word, word)
        if known not in KEYS:
            close = get_close_matches(word[:100], KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"give {', '.join(KEYS)}"
            raise ConfigurationError(
                f"{where}: {shown(key)} is not a setting of a way to buy; {hint}"
            )
        field, parse = KEYS[known]
        try:
            values[field] = parse(value)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {known}: {error}") from None
    _check(where, values)
    if "notice_s" in values:
        values.setdefault("notice_recall", 1.0)
    return Way(name, **values)


def _check(where: str, values: Mapping[str, Any]) -> None:
    """Raises ConfigurationError for what is missing, or says nothing alone."""
    if "price" not in values:
        raise ConfigurationError(f"{where}: price is missing: give what a chip costs an hour")
    for one, other in (
        ("notice_s", "interruptions"),
        ("notice_recall", "notice_s"),
        ("window_s", "gap_s"),
        ("gap_s", "window_s"),
    ):
        if one in values and other not in values:
            said, missing = (n.removesuffix("_s").replace("_", "-") for n in (one, other))
            raise ConfigurationError(f"{where}: {said} has no effect without {missing}: give both")
    if "window_s" in values and ("term_s" in values or "pays" in values):
        raise ConfigurationError(f"{where}: a window is paid for whole: give neither term nor pays")
    if "term_s" in values and values.get("pays") == HELD:
        raise ConfigurationError(
            f"{where}: a term is paid for whole, and pays={HELD} says otherwise: give one of them"
        )


def _pays(given: object) -> str:
    if given not in (HELD, ALWAYS):
        raise ValueError(f"{shown(given)} is neither {HELD} nor {ALWAYS}: give one of them")
    return str(given)


def _rate(given: object) -> float:
    return 0.0 if given in (0, "0") and not isinstance(given, bool) else number(given)


KEYS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "price": ("price", number),
    "interruptions": ("interruptions", _rate),
    "provision": ("provision", wait_law),
    "notice": ("notice_s", period),
    "notice-recall": ("notice_recall", share),
    "pays": ("pays", _pays),
    "term": ("term_s", period),
    "window": ("window_s", period),
    "gap": ("gap_s", period),
}
LONG = {
    "price-per-chip-hour": "price",
    "interruptions-per-1000-node-days": "interruptions",
}
