"""Steps on one clock, from what their lines say of them.

A line is written after its step is over, sometimes much later (MaxText writes a step's line when
the next is over), and what a step took is measured, so the latest times at which every step is over
before its line was written are the likely ones: found from the last line back to the first. Steps
whose lines have no time follow one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.attempt import Attempt
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Stepped

WARM_UP_STEPS = 2  # of a process; they compile, or wait for what compiles
WARM_UP_LEAST_NS = 1_000_000_000
TO_KNOW_USUAL = 3  # so many rows tell what is usual
TOLERATED = 0.01  # measured times that overlap by so much of them are rounded ones


class PlacedSteps(NamedTuple):
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


def place(
    attempt: Attempt, count: int | None, clock_ns: int, asked: ConvertOptions, notes: Notes
) -> tuple[list[PlacedSteps], list[Span]]:
    """Give the first `count` rows that wait their times; the others are those that follow.

    `clock_ns`: where rows without times begin if nothing else is known.
    """
    placing = _Placing(attempt, clock_ns, asked, notes)
    now = attempt.rows[:count]
    for row, end_ns in zip(now, _latest_ends(attempt.rows), strict=False):
        placing.add(row, end_ns)
    if attempt.placed is None:
        placing.take_out_warm_up()
    attempt.placed, attempt.placed_ns = placing.last, placing.at_ns
    attempt.usual_ns = placing.usual_ns
    attempt.rows = attempt.rows[len(now) :]
    return placing.rows, placing.spans


def _latest_ends(rows: Sequence[Stepped]) -> list[int | None]:
    """The latest end of each row; None: its lines, and all later ones, have no time."""
    ends: list[int | None] = []
    ceiling: int | None = None
    for row in reversed(rows):
        end = min((t for t in (ceiling, row.at_ns) if t is not None), default=None)
        ends.append(end)
        ceiling = None if end is None else end - (row.took_ns or 0)
    return ends[::-1]


def _usual_ns(attempt: Attempt) -> int | None:
    """What a step usually takes: the median over the rows; as before where too few tell."""
    paces = []
    before: Stepped | None = None
    marks = [mark.at_ns or 0 for mark in attempt.paused]
    for row in attempt.rows:
        if row.took_ns is not None:
            paces.append(row.took_ns // (row.last - (row.first or row.last) + 1))
        elif before is not None and row.at_ns is not None and before.at_ns is not None:
            apart, steps = row.at_ns - before.at_ns, row.last - before.last
            is_held_up = bisect_right(marks, row.at_ns) > bisect_right(marks, before.at_ns)
            if steps > 0 and apart >= 0 and not is_held_up:
                paces.append(apart // steps)
        before = row
    return median_low(paces) if len(paces) >= TO_KNOW_USUAL else attempt.usual_ns


class _Placing:
    """The rows of one attempt, one after another; what had to be assumed and was odd is noted."""

    def __init__(
        self, attempt: Attempt, clock_ns: int, asked: ConvertOptions, notes: Notes
    ) -> None:
        self._attempt, self._clock_ns, self._asked, self._notes = attempt, clock_ns, asked, notes
        attempt.paused.sort(key=lambda mark: mark.at_ns or 0)
        self._seen = attempt.rows
        self.usual_ns = _usual_ns(attempt)
        self.last = attempt.placed
        self.at_ns = attempt.start_ns if self.last is None else attempt.placed_ns
        self.rows: list[PlacedSteps] = []
        self.spans: list[Span] = []

    def add(self, row: Stepped, end_ns: int | None) -> None:
        """Place the next row, which is over at `end_ns` at the latest."""
        first = self._first_of(row)
        if row.took_ns is not None:
            start_ns, end_ns = self._measured(row, row.took_ns, end_ns)
        else:
            start_ns, end_ns = self._unmeasured(row, row.last - first + 1, end_ns)
        start_ns = max(start_ns, self._attempt.least_ns)
        if self.last is not None and first > self.last + 1:
            self._fill(self.last + 1, first - 1, start_ns)
        self.last, self.at_ns = row.last, max(end_ns, start_ns)
        self.rows.append(PlacedSteps(first, row.last, start_ns, self.at_ns))

    def _first_of(self, row: Stepped) -> int:
        if self.last is not None:
            return max(row.first or 0, self.last + 1)
        if row.first is not None:
            return row.first
        restoring = self._attempt.restoring
        if restoring is not None and restoring.step < row.last:
            return restoring.step + 1
        apart = [after.last - before.last for before, after in pairwise(self._seen)]
        interval = median_low(apart) if apart else row.last
        is_runs_first = self._attempt.number == 0 and row.last <= 2 * interval
        return 1 if is_runs_first else max(row.last - interval + 1, 1)

    def _measured(self, row: Stepped, took_ns: int, end_ns: int | None) -> tuple[int, int]:
        """Start and end of a row that says what it took; without a time, it follows the last."""
        if end_ns is None:
            start_ns = self._clock_ns if self.at_ns is None else self.at_ns
            return start_ns, start_ns + took_ns
        start_ns = end_ns - took_ns
        if self.at_ns is None or start_ns >= self.at_ns:
            return start_ns, end_ns
        if self.at_ns - start_ns > took_ns * TOLERATED + 10_000_000:
            self._notes.odd(
                row.place, "the steps before took until later: its measured time is cut"
            )
        return self.at_ns, max(self.at_ns, end_ns)

    def _unmeasured(self, row: Stepped, steps: int, end_ns: int | None) -> tuple[int, int]:
        """Start and end of a row of which only the end is known: from the row before."""
        if self.last is None and self.at_ns is None:
            self._notes.assume(
                "a process that does not say when it started, started with its first step, which "
                "took the usual time",
                "first",
            )
        if end_ns is None or (self.at_ns is None and self.usual_ns is None):
            self._notes.odd(
                row.place,
                "nothing tells how long its steps took: they are counted without any time",
            )
            end_ns = (self.at_ns or 0) if end_ns is None else end_ns
            return end_ns, end_ns
        usual_ns = 0 if self.usual_ns is None else self.usual_ns * steps
        if self.at_ns is None:
            return end_ns - usual_ns, end_ns
        end_ns = max(end_ns, self.at_ns)
        if self.usual_ns is None:
            return self.at_ns, end_ns
        return self._held_up(row, usual_ns, self.at_ns, end_ns), end_ns

    def _held_up(self, row: Stepped, usual_ns: int, start_ns: int, end_ns: int) -> int:
        """The start of a row that took longer than its steps do: what held it up came before."""
        excess_ns = end_ns - start_ns - usual_ns
        marks = self._attempt.paused
        inside = [m for m in marks if m.at_ns is not None and start_ns < m.at_ns <= end_ns]
        if inside:
            self._attempt.paused = [mark for mark in marks if mark not in inside]
            upto_ns = inside[-1].at_ns or end_ns
            if excess_ns > 0:
                low_ns = max(start_ns, upto_ns - excess_ns)
                self.spans.append(Span(inside[-1].kind, low_ns, upto_ns))
            return start_ns
        is_long = end_ns - start_ns > self._asked.pause * usual_ns
        if excess_ns <= 0 or not (is_long or self.last is None):
            return start_ns
        if self.last is not None:
            self._notes.odd(
                row.place,
                f"took over {self._asked.pause:g} times as long as usual: the excess is no step "
                "(--pause)",
            )
        return end_ns - usual_ns

    def _fill(self, first: int, last: int, high_ns: int) -> None:
        """Place steps without a line of their own between their neighbours."""
        self._notes.assume(
            "steps without a line of their own lie between their neighbours", "without"
        )
        low_ns = high_ns if self.at_ns is None else min(self.at_ns, high_ns)
        if self.usual_ns is not None:
            usual_ns = self.usual_ns * (last - first + 1)
            low_ns = (
                high_ns - usual_ns if high_ns - low_ns > self._asked.pause * usual_ns else low_ns
            )
        self.rows.append(PlacedSteps(first, last, low_ns, high_ns))

    def take_out_warm_up(self) -> None:
        """What the first steps of a process took beyond the usual is no training."""
        if self.usual_ns is None:
            return
        for row, seen in zip(self.rows[:WARM_UP_STEPS], self._seen, strict=False):
            excess_ns = row.end_ns - row.start_ns - self.usual_ns
            is_single = row.first == row.last and seen.took_ns is not None
            if is_single and excess_ns > max(self.usual_ns, WARM_UP_LEAST_NS):
                self.spans.append(Span(self._asked.warm_up, row.start_ns, row.start_ns + excess_ns))
                self._notes.assume(
                    "what the first steps of a process take beyond the usual is "
                    f"{self._asked.warm_up}, no step",
                    "warm",
                )
