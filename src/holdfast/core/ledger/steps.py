"""Completed steps of one attempt as columns, with prefix sums of their number and own time.

A step's own time is what no closed span covers of it (rule 3). Which steps were kept is not stored
here: the kept steps of a part are its first so many, and their time is a difference of two sums.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal

import numpy as np

from holdfast.core.ledger.columns import FEW, NONE, Few, Ints, Numbers
from holdfast.core.ledger.spans import SpanColumns


class StepColumns:
    """Rows of equal steps, sorted by time; nearly always rows of one step."""

    __slots__ = ("_cut_row", "_settled", "breaks", "count", "end", "first", "last", "own", "start")

    def __init__(self) -> None:
        self.first: Numbers = NONE
        self.last: Numbers = NONE
        self.start: Numbers = NONE
        self.end: Numbers = NONE
        self.own: Numbers = NONE  # sums up to and including each row
        self.count: Numbers = NONE
        self.breaks: list[int] = []  # rows whose first step is not above the last of the row before
        self._settled = 0  # rows whose sums are right
        self._cut_row: tuple[int, int] | None = None  # see `add_cut_row`

    def __len__(self) -> int:
        return len(self.start)

    def add(self, first: Ints, last: Ints, start: Ints, end: Ints) -> None:
        """File rows, in any order; they overlap neither one another nor rows that are here."""
        if not len(start):
            return
        if isinstance(self.start, Few) and len(self) + len(start) <= FEW:
            self._add_few(zip(*(c.tolist() for c in (first, last, start, end)), strict=True))
            return
        news = [first, last, start, end]
        columns = [one.grown() for one in (self.first, self.last, self.start, self.end)]
        self.first, self.last, self.start, self.end = columns
        position = len(self)
        if position and int(start.min()) <= self.start[position - 1]:
            position = self.start.left(int(start.min()))
            news = [
                np.concatenate((column.view[position:], new))
                for column, new in zip(columns, news, strict=True)
            ]
        if np.any(news[2][1:] <= news[2][:-1]):
            by_time = np.lexsort((news[0], news[3], news[2]))
            news = [new[by_time] for new in news]
        for column, new in zip(columns, news, strict=True):
            column.truncate(position)
            column.extend(new)
        self._settled = min(self._settled, position)
        del self.breaks[bisect_left(self.breaks, position) :]
        low = max(position - 1, 0)
        falls_back = self.first.view[low + 1 :] <= self.last.view[low:-1]
        self.breaks += (np.flatnonzero(falls_back) + low + 1).tolist()

    def add_rows(self, rows: Sequence[tuple[int, int, int, int]]) -> None:
        """The same, of rows (first, last, start, end)."""
        if isinstance(self.start, Few) and len(self) + len(rows) <= FEW:
            self._add_few(rows)
        else:
            self.add(*np.array(rows, dtype=np.int64).T)

    def _add_few(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """The same, where they stay few."""
        if len(self):
            known = zip(self.first, self.last, self.start, self.end, strict=True)
            rows = [*known, *rows]
        by_time = sorted(rows, key=_time_and_number)
        self.first, self.last, self.start, self.end = map(Few, zip(*by_time, strict=True))
        self._settled = 0
        pairs = enumerate(zip(self.first[1:], self.last, strict=False), start=1)
        self.breaks = [row for row, (first, last_before) in pairs if first <= last_before]

    def add_cut_row(self, first: int, done: int, count: int, start_ns: int, end_ns: int) -> None:
        """File, as the last one, a row of `count` steps of which only the first `done` count.

        Its steps keep the boundaries of the whole row, to the nanosecond.
        """
        cut_ns = boundary_ns(start_ns, end_ns, count, done)
        row = [first, first + done - 1, start_ns, cut_ns]
        self.add(*(np.array([value], dtype=np.int64) for value in row))
        self._cut_row = (end_ns, count)

    def settle(self, spans: SpanColumns) -> None:
        """Bring the sums up to date with the rows and the (settled) spans."""
        changed_ns = spans.settle()
        if changed_ns is not None:
            self._settled = min(self._settled, self.end.right(changed_ns))
        low = self._settled
        if low == len(self):
            return
        if isinstance(self.start, Few) and isinstance(self.end, Few):
            self._settle_few(self.start, self.end, spans)
            return
        own, count = self.own, self.count = self.own.grown(), self.count.grown()
        for column, begin, end in (
            (own, self.start.view[low:], self.end.view[low:]),
            (count, self.first.view[low:], self.last.view[low:]),
        ):
            column.truncate(low)
            before = column[low - 1] if low else 0
            sums = column.grow(len(begin))  # in place: fresh memory costs more than the sums
            np.subtract(end, begin, out=sums)
            if column is count:
                sums += 1
            elif len(spans.shown_end):
                rows = spans.touched(begin, end)
                sums[rows] -= spans.covered_until_each(end[rows])
                sums[rows] += spans.covered_until_each(begin[rows])
            np.cumsum(sums, out=sums)
            sums += before
        self._settled = len(self)

    def _settle_few(self, starts: Few, ends: Few, spans: SpanColumns) -> None:
        """The same, of few rows: all of them anew."""
        own = [
            end - start - (spans.covered_until(end) - spans.covered_until(start))
            for start, end in zip(starts, ends, strict=True)
        ]
        bounds = zip(self.first, self.last, strict=True)
        self.own = Few(accumulate(own))
        self.count = Few(accumulate([last - first + 1 for first, last in bounds]))
        self._settled = len(self)

    def own_until(self, at_ns: int, spans: SpanColumns) -> int:
        """The own time of completed steps before `at_ns`."""
        row = self.start.left(at_ns) - 1
        if row < 0:
            return 0
        end_ns = self.end[row]
        if end_ns <= at_ns:
            return self.own[row]
        covered = spans.covered_until(end_ns) - spans.covered_until(at_ns)
        return self.own[row] - (end_ns - at_ns - covered)

    def completed_until(self, at_ns: int) -> int:
        """How many steps ended at `at_ns` or before."""
        row = self.end.right(at_ns)
        done = self.count[row - 1] if row else 0
        if row < len(self) and self.start[row] <= at_ns:
            done += min(
                completed_until(*self._shape(row), at_ns), self.last[row] - self.first[row] + 1
            )
        return done

    def place(self, low: int, high: int, step: int) -> tuple[int, int]:
        """Among rows low..high, of rising steps: how many are up to `step`, and when they end.

        The number counts from the attempt's first step.
        """
        row = self._row_of(low, high, step, "right")
        done = self.count[row - 1] if row else 0
        if row < high and self.first[row] <= step:
            inside = step - self.first[row] + 1
            return done + inside, boundary_ns(*self._shape(row), inside)
        return done, self.end[row - 1] if row > low else self.start[low]

    def has(self, low: int, high: int, step: int) -> bool:
        """Whether rows low..high, of rising steps, contain the step."""
        row = self._row_of(low, high, step, "left")
        return row < high and self.first[row] <= step

    def _row_of(self, low: int, high: int, step: int, side: Literal["left", "right"]) -> int:
        """Before which of rows low..high, of rising steps, a row that ends with it would go."""
        if isinstance(self.last, Few):
            return (bisect_left if side == "left" else bisect_right)(self.last, step, low, high)
        return low + int(self.last.view[low:high].searchsorted(step, side))

    def first_step_ns(self) -> tuple[int, int]:
        """Start and end of the first step."""
        return self.start[0], boundary_ns(*self._shape(0), 1)

    def last_step_start_ns(self) -> int:
        """Start of the last step."""
        row = len(self) - 1
        steps_before = self.last[row] - self.first[row]
        return boundary_ns(*self._shape(row), steps_before)

    def cut(self, now_ns: int) -> tuple[StepColumns, tuple[int, int] | None]:
        """What is known at `now_ns`: completed steps, and the step under way (number, start)."""
        known, whole = StepColumns(), self.end.right(now_ns)
        known.add(*(c.view[:whole] for c in (self.first, self.last, self.start, self.end)))
        if whole == len(self) or self.start[whole] > now_ns:
            return known, None
        shape = self._shape(whole)
        done = completed_until(*shape, now_ns)
        if done:
            known.add_cut_row(self.first[whole], done, shape[2], shape[0], shape[1])
        return known, (self.first[whole] + done, boundary_ns(*shape, done))

    def _shape(self, row: int) -> tuple[int, int, int]:
        """Start, end and number of steps of the whole row."""
        if self._cut_row is not None and row == len(self) - 1:
            return self.start[row], *self._cut_row
        return self.start[row], self.end[row], self.last[row] - self.first[row] + 1


def _time_and_number(row: tuple[int, int, int, int]) -> tuple[int, int, int]:
    first, _, start, end = row
    return start, end, first


# --- rows of equal steps --------------------------------------------------------------------------
#
# `count` steps between `start_ns` and `end_ns` share the time as evenly as integers allow: step
# `index` (from 0) runs from `boundary_ns(index)` to `boundary_ns(index + 1)`. Python's integers: a
# row of 10¹² steps over a year would overflow 64 bits.


def boundary_ns(start_ns: int, end_ns: int, count: int, index: int) -> int:
    """When `index` steps of the row are over."""
    return start_ns + (end_ns - start_ns) * index // count


def completed_until(start_ns: int, end_ns: int, count: int, at_ns: int) -> int:
    """How many steps of the row are over at `at_ns`; a step that ends right then is."""
    if at_ns >= end_ns:
        return count
    if at_ns < start_ns:
        return 0
    # boundary(k) <= at  ⟺  duration·k < (at − start + 1)·count, integers all.
    return ((at_ns - start_ns + 1) * count - 1) // (end_ns - start_ns)
