"""Steps on one clock, from what their lines say of them.

A line is written after its step is over, sometimes much later (MaxText writes a step's line when
the next is over), and what a step took is measured, so the latest times at which every step is over
before its line was written are the likely ones: found from the last line back to the first. Steps
whose lines have no time follow one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from holdfast.convert.seen import Paused, Place, Stepped

WARM_UP_STEPS = 2  # of a process; they compile, or wait for what compiles
WARM_UP_LEAST_NS = 1_000_000_000
TO_KNOW_USUAL = 3  # so many rows tell what is usual
TOLERATED = 0.01  # measured times that overlap by so much of them are rounded ones


class Row(NamedTuple):
    """Steps `first`..`last`, from `start_ns` to `end_ns`."""

    first: int
    last: int
    start_ns: int
    end_ns: int


class Span(NamedTuple):
    """A time without progress."""

    kind: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Placed:
    """Rows in the order of time, what lies between and over them, and what was done to fit them."""

    rows: list[Row] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    overlapping: list[Place] = field(default_factory=list)
    held_up: list[Place] = field(default_factory=list)
    without_line: int = 0
    warm_up_ns: int = 0
    first_start_is_guessed: bool = False
    no_time: list[Place] = field(default_factory=list)
    marks_left: list[Paused] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where rows are placed.

    `floor_ns`: where the row before ended, or the process started; None: not known. `least_ns`:
    nothing starts before it. `origin_ns`: where rows without times begin if it is not known.
    `last_before`: the step before the first row; None: these are a process's first rows.
    `resumed`: the step that they continue, where the log says so. `is_first`: no process came
    before.
    `usual_ns`: of a step, as far as known. `warm_up`: the span kind of what first steps take too
    long.
    """

    floor_ns: int | None
    least_ns: int
    origin_ns: int
    last_before: int | None
    resumed: int | None
    usual_ns: int | None
    pause: float
    is_first: bool
    warm_up: str


def usual_ns(rows: Sequence[Stepped], paused: Sequence[Paused], fallback: int | None) -> int | None:
    """What a step usually takes: the median over the rows; `fallback` where too few tell."""
    paces = []
    before: Stepped | None = None
    marks = sorted(p.end_ns for p in paused if p.end_ns is not None)
    for row in rows:
        if row.took_ns is not None:
            paces.append(row.took_ns // (row.last - (row.first or row.last) + 1))
        elif before is not None and row.at_ns is not None and before.at_ns is not None:
            apart, steps = row.at_ns - before.at_ns, row.last - before.last
            if steps > 0 and apart >= 0 and not _any_within(marks, before.at_ns, row.at_ns):
                paces.append(apart // steps)
        before = row
    return median_low(paces) if len(paces) >= TO_KNOW_USUAL else fallback


def _any_within(marks: Sequence[int], low: int, high: int) -> bool:
    return bisect_right(marks, high) > bisect_right(marks, low)


def place(
    rows: Sequence[Stepped], paused: Sequence[Paused], frame: Frame, count: int | None = None
) -> Placed:
    """Give the first `count` rows their times; the others are those that follow.

    `paused` are those of this stretch whose length is not known yet.
    """
    placed = Placed()
    ends = _ends(rows)
    at_ns = frame.floor_ns
    last = frame.last_before
    usual = usual_ns(rows, paused, frame.usual_ns)
    marks = sorted((p for p in paused if p.end_ns is not None), key=lambda p: p.end_ns or 0)
    for index, (row, end_ns) in enumerate(zip(rows[:count], ends[:count], strict=True)):
        first = _first_of(rows, index, last, frame)
        first = first if last is None else max(first, last + 1)
        steps = row.last - first + 1
        if row.took_ns is not None:
            start_ns, end = _measured(row, end_ns, at_ns, frame.origin_ns, placed)
        else:
            start_ns, end = _unmeasured(row, steps, end_ns, at_ns, usual, placed)
            start_ns = _held_up(row, steps, start_ns, end, at_ns, usual, marks, frame, placed)
        start_ns = max(start_ns, frame.least_ns)
        end = max(end, start_ns)
        if last is not None and first > last + 1:
            _fill(placed, last + 1, first - 1, at_ns, start_ns, usual, frame.pause)
        if last is None and index == 0 and at_ns is None and row.took_ns is None:
            placed.first_start_is_guessed = True
        placed.rows.append(Row(first, row.last, start_ns, end))
        at_ns, last = end, row.last
    placed.marks_left = marks
    if frame.last_before is None:
        _warm_up(placed, rows, usual, frame)
    return placed


def _ends(rows: Sequence[Stepped]) -> list[int | None]:
    """The latest end of each row; None: its lines, and all later ones, have no time."""
    ends: list[int | None] = [None] * len(rows)
    ceiling: int | None = None
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        end = row.at_ns if ceiling is None else ceiling
        if row.at_ns is not None and end is not None:
            end = min(end, row.at_ns)
        ends[index] = end
        if end is not None:
            ceiling = end - (row.took_ns or 0)
    return ends


def _first_of(rows: Sequence[Stepped], index: int, last: int | None, frame: Frame) -> int:
    """The first step of a row that does not say so."""
    row = rows[index]
    if row.first is not None:
        return row.first
    if last is not None:
        return last + 1
    if frame.resumed is not None and frame.resumed < row.last:
        return frame.resumed + 1
    apart = [after.last - before.last for before, after in pairwise(rows)]
    interval = median_low(apart) if apart else row.last
    if frame.is_first and row.last <= 2 * interval:
        return 1
    return max(row.last - interval + 1, 1)


def _measured(
    row: Stepped, end_ns: int | None, at_ns: int | None, origin_ns: int, placed: Placed
) -> tuple[int, int]:
    """Start and end of a row that says what it took."""
    took = row.took_ns or 0
    if end_ns is None:  # no time in its line: after the row before
        start = origin_ns if at_ns is None else at_ns
        return start, start + took
    start = end_ns - took
    if at_ns is not None and start < at_ns:
        if at_ns - start > took * TOLERATED + 10_000_000:
            placed.overlapping.append(row.place)
        start = at_ns
    return start, max(start, end_ns)


def _unmeasured(
    row: Stepped,
    steps: int,
    end_ns: int | None,
    at_ns: int | None,
    usual: int | None,
    placed: Placed,
) -> tuple[int, int]:
    """Start and end of a row of which only the end is known: from the row before."""
    if end_ns is None:
        placed.no_time.append(row.place)
        here = at_ns or 0
        return here, here
    if at_ns is not None:
        return at_ns, max(end_ns, at_ns)
    if usual is None:
        placed.no_time.append(row.place)
        return end_ns, end_ns
    return end_ns - usual * steps, end_ns


def _held_up(
    row: Stepped,
    steps: int,
    start_ns: int,
    end_ns: int,
    at_ns: int | None,
    usual: int | None,
    marks: list[Paused],
    frame: Frame,
    placed: Placed,
) -> int:
    """The start of a row that took longer than its steps do: what held it up came before them."""
    if usual is None or at_ns is None:
        return start_ns
    excess = end_ns - start_ns - usual * steps
    inside = [m for m in marks if m.end_ns is not None and start_ns < m.end_ns <= end_ns]
    if inside:
        for mark in inside:
            marks.remove(mark)
        if excess > 0:
            mark = inside[-1]
            upto = mark.end_ns or end_ns
            placed.spans.append(Span(mark.kind, max(start_ns, upto - excess), upto))
        return start_ns
    first_of_process = frame.last_before is None and not placed.rows
    if excess > 0 and (first_of_process or end_ns - start_ns > frame.pause * usual * steps):
        if not first_of_process:
            placed.held_up.append(row.place)
        return end_ns - usual * steps
    return start_ns


def _fill(
    placed: Placed,
    first: int,
    last: int,
    low: int | None,
    high: int,
    usual: int | None,
    pause: float,
) -> None:
    """Steps without a line of their own: they lie between their neighbours."""
    steps = last - first + 1
    placed.without_line += steps
    low = high if low is None or low > high else low
    if usual is not None and high - low > pause * usual * steps:
        low = high - usual * steps
    placed.rows.append(Row(first, last, low, high))


def _warm_up(placed: Placed, rows: Sequence[Stepped], usual: int | None, frame: Frame) -> None:
    """What the first steps of a process took beyond the usual is no training."""
    if usual is None:
        return
    for row, seen in zip(placed.rows[:WARM_UP_STEPS], rows, strict=False):
        excess = row.end_ns - row.start_ns - usual
        is_single = row.first == row.last and seen.took_ns is not None
        if is_single and excess > max(usual, WARM_UP_LEAST_NS):
            placed.spans.append(Span(frame.warm_up, row.start_ns, row.start_ns + excess))
            placed.warm_up_ns += excess
