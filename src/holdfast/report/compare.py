"""Two runs side by side: the numbers that tell them apart, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.ledger.course import Course, coarser
from holdfast.core.ledger.kinds import STEP
from holdfast.core.visible import clean
from holdfast.report.kinds import place_of, style_of, words_of
from holdfast.report.overview import Overview
from holdfast.report.words import MISSING, chip_hours, counted, duration, percent

DRAWN_PIECES = 240


class Pair(NamedTuple):
    """What two runs have of one thing; `better`: 0 the first, 1 the second, None: neither."""

    name: str
    first: str
    second: str
    better: int | None = None


class Bar(NamedTuple):
    """A piece of a drawn time line, in percent of the longer run, in the colour of its kind."""

    x: str
    width: str
    colour: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`lines`: the two time lines on one scale. `kinds`: the share of all time, by kind."""

    pairs: tuple[Pair, ...]
    kinds: tuple[Pair, ...]
    lines: tuple[tuple[Bar, ...], tuple[Bar, ...]]


def comparison(first: Overview, second: Overview) -> Comparison:
    """What tells them apart."""
    longest_ns = max(1, *(one.course.end_ns - one.course.start_ns for one in (first, second)))
    return Comparison(
        tuple(_pairs(first, second)),
        tuple(_kinds(first, second)),
        (_line(first.course, longest_ns), _line(second.course, longest_ns)),
    )


def _pairs(first: Overview, second: Overview) -> Iterator[Pair]:
    views = (first, second)
    goodputs = [view.account.goodput for view in views]
    yield Pair("state", first.state, second.state)
    yield Pair("goodput", percent(goodputs[0]), percent(goodputs[1]), _more(*goodputs))
    for one, other in zip(first.factors, second.factors, strict=True):
        better = _more(one.share, other.share)
        yield Pair(f"{one.name} goodput", percent(one.share), percent(other.share), better)
    yield _pair("chips", [f"{view.account.chips:,}" for view in views])
    yield _pair("lasted", [duration(view.account.elapsed_ns) for view in views])
    yield _pair("paid for, chip-hours", [chip_hours(view.account.elapsed) for view in views])
    yield _pair("steps kept", [f"{view.account.steps_kept:,}" for view in views])
    lost = [view.account.lost_steps for view in views]
    yield Pair("steps lost", f"{lost[0]:,}", f"{lost[1]:,}", _less(*lost))
    usual = [view.steps.usual_ns or None for view in views]
    yield Pair("a step takes, usually", duration(usual[0]), duration(usual[1]), _less(*usual))
    broken = [len(view.incidents) for view in views]
    counts = [counted(one, "disruption") for one in broken]
    yield Pair("disruptions", counts[0], counts[1], _less(*broken))
    yield _pair("the last one", [view.newest.cause if view.newest else MISSING for view in views])
    yield _pair("attempts", [f"{view.attempts:,}" for view in views])
    save = [view.save_ns for view in views]
    yield Pair("a save takes", duration(save[0]), duration(save[1]), _less(*save))
    yield _pair("command", [" ".join(view.command) or MISSING for view in views])


def _kinds(first: Overview, second: Overview) -> Iterator[Pair]:
    accounts = (first.account, second.account)
    kinds = {kind for account in accounts for kind, ns in account.kinds.items() if ns}
    for kind in sorted(kinds, key=place_of):
        parts = [one.kinds.get(kind, 0) / one.elapsed if one.elapsed else 0.0 for one in accounts]
        better = _more(*parts) if kind == STEP else _less(*parts)
        name = f"{clean(kind)} – {clean(words_of(kind))}"
        yield Pair(name, percent(parts[0]), percent(parts[1]), better)


def _line(course: Course, longest_ns: int) -> tuple[Bar, ...]:
    found = []
    for piece in coarser(course.pieces, DRAWN_PIECES):
        at_ns = piece.start_ns
        for kind in sorted(piece.kinds, key=place_of):
            ns = piece.kinds[kind]
            x = (at_ns - course.start_ns) * 100 / longest_ns
            found.append(Bar(f"{x:.3f}", f"{ns * 100 / longest_ns:.3f}", style_of(kind).colour))
            at_ns += ns
    return tuple(found)


def _pair(name: str, values: Sequence[str]) -> Pair:
    return Pair(name, values[0], values[1])


def _more(first: float | None, second: float | None) -> int | None:
    if first is None or second is None or first == second:
        return None
    return 0 if first > second else 1


def _less(first: float | None, second: float | None) -> int | None:
    found = _more(first, second)
    return None if found is None else 1 - found
