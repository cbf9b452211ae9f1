"""Steps on one clock, from what their lines say of them.

A line is written after its step is over, sometimes much later (MaxText writes a step's line when
the next is over), and what a step took is measured, so the latest times at which every step is over
before its line was written are the likely ones: found from the last line back to the first. Steps
whose lines have no time follow one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median_low

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.attempt import Attempt
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Seen
from holdfast.core.ledger.facts import SpanFact, StepsFact

WARM_UP_STEPS = 2  # of a process; they compile, or wait for what compiles
WARM_UP_LEAST_NS = 1_000_000_000
TO_KNOW_USUAL = 3  # so many rows tell what is usual
TOLERATED = 0.01  # measured times that overlap by so much of them are rounded ones


def place(
    attempt: Attempt, count: int | None, clock_ns: int, asked: ConvertOptions, notes: Notes
) -> tuple[list[StepsFact], list[SpanFact]]:
    """Give the first `count` rows that wait their times; the others are those that follow.

    `clock_ns`: where rows without times begin if nothing else is known.
    """
    is_first = attempt.placed is None
    placing = _Placing(attempt, clock_ns, asked, notes)
    if is_first:
        attempt.rows[0] = placing.whole(attempt.rows[0])
    now = attempt.rows[:count]
    for row, end_ns in zip(now, _latest_ends(attempt.rows), strict=False):
        placing.add(row, end_ns)
    if is_first:
        placing.take_out_warm_up()
    attempt.rows = attempt.rows[len(now) :]
    return placing.steps, placing.spans


def _latest_ends(rows: Sequence[Seen]) -> list[int | None]:
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
    marks = [mark.at_ns or 0 for mark in attempt.paused]
    for before, row in pairwise((None, *attempt.rows)):
        if row is None:
            continue
        if row.took_ns is not None:
            paces.append(row.took_ns // (row.step - (row.first or row.step) + 1))
        elif before is not None and row.at_ns is not None and before.at_ns is not None:
            apart, steps = row.at_ns - before.at_ns, row.step - before.step
            is_held_up = bisect_right(marks, row.at_ns) > bisect_right(marks, before.at_ns)
            if steps > 0 and apart >= 0 and not is_held_up:
                paces.append(apart // steps)
    return median_low(paces) if len(paces) >= TO_KNOW_USUAL else attempt.usual_ns


class _Placing:
    """The rows of one attempt, one after another: `steps` and `spans` are what they come to."""

    def __init__(
        self, attempt: Attempt, clock_ns: int, asked: ConvertOptions, notes: Notes
    ) -> None:
        self._attempt, self._clock_ns, self._asked, self._notes = attempt, clock_ns, asked, notes
        attempt.paused.sort(key=lambda mark: mark.at_ns or 0)
        self._seen = attempt.rows
        self._usual_ns = attempt.usual_ns = _usual_ns(attempt)
        self._last_ns = attempt.start_ns if attempt.placed is None else attempt.placed_ns
        self.steps: list[StepsFact] = []
        self.spans: list[SpanFact] = []

    def add(self, row: Seen, end_ns: int | None) -> None:
        """Place the next row, which is over at `end_ns` at the latest."""
        attempt, first = self._attempt, self._first_of(row)
        if row.took_ns is not None:
            start_ns, end_ns = self._measured(row, row.took_ns, end_ns)
        else:
            start_ns, end_ns = self._unmeasured(row, row.step - first + 1, end_ns)
        start_ns = max(start_ns, attempt.least_ns)
        if attempt.placed is not None and first > attempt.placed + 1:
            self._fill(attempt.placed + 1, first - 1, start_ns)
        attempt.placed = row.step
        attempt.placed_ns = self._last_ns = max(end_ns, start_ns)
        self.steps.append(StepsFact(attempt.number, first, row.step, start_ns, self._last_ns))

    def whole(self, row: Seen) -> Seen:
        """An attempt's first row, for all the steps that it stands for."""
        if not row.is_sample or row.took_ns is None:
            return row
        first = self._first_of(replace(row, first=None))
        return replace(row, first=first, took_ns=row.took_ns * (row.step - first + 1))

    def _first_of(self, row: Seen) -> int:
        attempt = self._attempt
        if attempt.placed is not None:
            return max(row.first or 0, attempt.placed + 1)
        if row.first is not None:
            return row.first
        if attempt.restoring is not None and attempt.restoring.step < row.step:
            return attempt.restoring.step + 1
        apart = [after.step - before.step for before, after in pairwise(self._seen)]
        if apart:
            attempt.apart, attempt.near = median_low(apart), self._seen[1].step
        interval = attempt.apart or row.step
        if row.is_sample and (not attempt.apart or (row.step - attempt.near) % interval):
            return row.step  # a process's first step often has a line of its own between the others
        is_runs_first = attempt.number == 0 and row.step <= 2 * interval
        return 1 if is_runs_first else max(row.step - interval + 1, 1)

    def _measured(self, row: Seen, took_ns: int, end_ns: int | None) -> tuple[int, int]:
        """Start and end of a row that says what it took; without a time, it follows the last."""
        before_ns = self._last_ns
        if end_ns is None:
            start_ns = self._clock_ns if before_ns is None else before_ns
            return start_ns, start_ns + took_ns
        start_ns = end_ns - took_ns
        if before_ns is None or start_ns >= before_ns:
            return start_ns, end_ns
        if before_ns - start_ns > took_ns * TOLERATED + 10_000_000:
            self._notes.odd(
                row.place, "the steps before took until later: its measured time is cut"
            )
        return before_ns, max(before_ns, end_ns)

    def _unmeasured(self, row: Seen, steps: int, end_ns: int | None) -> tuple[int, int]:
        """Start and end of a row of which only the end is known: from the row before."""
        before_ns = self._last_ns
        if self._attempt.placed is None and before_ns is None:
            self._notes.assume(
                "a process that does not say when it started, started with its first step, which "
                "took the usual time",
                "first",
            )
        if end_ns is None or (before_ns is None and self._usual_ns is None):
            self._notes.odd(
                row.place,
                "nothing tells how long its steps took: they are counted without any time",
            )
            end_ns = (before_ns or 0) if end_ns is None else end_ns
            return end_ns, end_ns
        usual_ns = (self._usual_ns or 0) * steps
        if before_ns is None:
            return end_ns - usual_ns, end_ns
        end_ns = max(end_ns, before_ns)
        if self._usual_ns is None:
            return before_ns, end_ns
        return self._held_up(row, usual_ns, before_ns, end_ns), end_ns

    def _held_up(self, row: Seen, usual_ns: int, start_ns: int, end_ns: int) -> int:
        """The start of a row that took longer than its steps do: what held it up came before."""
        attempt, excess_ns = self._attempt, end_ns - start_ns - usual_ns
        inside = [m for m in attempt.paused if start_ns < (m.at_ns or 0) <= end_ns]
        if inside:
            attempt.paused = [mark for mark in attempt.paused if mark not in inside]
            upto_ns = inside[-1].at_ns or end_ns
            if excess_ns > 0:
                low_ns = max(start_ns, upto_ns - excess_ns)
                self.spans.append(SpanFact(attempt.number, inside[-1].name, low_ns, upto_ns))
            return start_ns
        is_first = attempt.placed is None
        is_long = end_ns - start_ns > self._asked.pause * usual_ns
        if excess_ns <= 0 or not (is_long or is_first):
            return start_ns
        if not is_first:
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
        low_ns = high_ns if self._last_ns is None else min(self._last_ns, high_ns)
        usual_ns = (self._usual_ns or 0) * (last - first + 1)
        if self._usual_ns is not None and high_ns - low_ns > self._asked.pause * usual_ns:
            low_ns = high_ns - usual_ns
        self.steps.append(StepsFact(self._attempt.number, first, last, low_ns, high_ns))

    def take_out_warm_up(self) -> None:
        """What the first steps of a process took beyond the usual is no training."""
        usual_ns, kind = self._usual_ns, self._asked.warm_up
        for steps, seen in zip(self.steps[:WARM_UP_STEPS], self._seen, strict=False):
            if usual_ns is None or steps.first != steps.last or seen.took_ns is None:
                continue
            excess_ns = (steps.end_ns or steps.start_ns) - steps.start_ns - usual_ns
            if excess_ns > max(usual_ns, WARM_UP_LEAST_NS):
                self.spans.append(
                    SpanFact(self._attempt.number, kind, steps.start_ns, steps.start_ns + excess_ns)
                )
                self._notes.assume(
                    f"what the first steps of a process take beyond the usual is {kind}, no step",
                    "warm",
                )
