"""Closed spans of one attempt (or the waits of a run), flattened: one winner at each moment.

Of spans that overlap, the one that started last wins, then the shorter, then the later line
(rule 2). So the spans, taken by start, form a stack: a new one is on top until it ends, then
whatever is still open below it shows again. Nearly all spans overlap nothing; those are flattened
by numpy, the others by that stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter, le, lt, sub
from typing import TypeAlias

import numpy as np

from holdfast.core.ledger.columns import FEW, NONE, Few, Ints, Numbers

Totals: TypeAlias = dict[int, int]  # kind → nanoseconds

_FIRST = [Few(range(count)) for count in range(FEW + 1)]  # the first so many numbers


class SpanColumns:
    """Spans by start, and the stretches in which each of them shows.

    `add` only files them; `settle` flattens what is new, from the first place where it matters.
    """

    __slots__ = (
        "_dirty",
        "_totals",
        "covered",
        "end",
        "kind",
        "order",
        "reach",
        "shown_end",
        "shown_kind",
        "shown_source",
        "shown_start",
        "start",
    )

    def __init__(self) -> None:
        # The spans, sorted by start; spans of equal start stay in the order they were added.
        self.start: Numbers = NONE
        self.end: Numbers = NONE
        self.kind: Numbers = NONE
        self.order: Numbers = NONE
        self.reach: Numbers = NONE  # the latest end so far: a gap begins where it is before a start
        # The stretches, disjoint and sorted; `covered` sums their lengths up.
        self.shown_start: Numbers = NONE
        self.shown_end: Numbers = NONE
        self.shown_kind: Numbers = NONE
        self.shown_source: Numbers = NONE
        self.covered: Numbers = NONE
        self._totals: Totals | None = None  # of all stretches; None: nobody has added them up
        self._dirty: int | None = None  # first span whose stretches are not right

    def __len__(self) -> int:
        return len(self.start)

    def add(self, start: Ints, end: Ints, kind: Ints, order: Ints) -> None:
        """File spans, in any order; `order` decides between spans that are equal otherwise."""
        if not len(start):
            return
        if isinstance(self.start, Few) and len(self) + len(start) <= FEW:
            self._add_few(zip(*(c.tolist() for c in (start, end, kind, order)), strict=True))
            return
        news = [start, end, kind, order]
        columns = [one.grown() for one in (self.start, self.end, self.kind, self.order)]
        self.start, self.end, self.kind, self.order = columns
        position = len(self)
        if position and int(start.min()) < self.start[position - 1]:
            position = self.start.right(int(start.min()))
            news = [
                np.concatenate((column.view[position:], new))
                for column, new in zip(columns, news, strict=True)
            ]
        if np.any(news[0][1:] < news[0][:-1]):
            by_start = np.argsort(news[0], kind="stable")
            news = [new[by_start] for new in news]
        for column, new in zip(columns, news, strict=True):
            column.truncate(position)
            column.extend(new)
        reach = self.reach = self.reach.grown()
        reach.truncate(position)
        before = reach[position - 1] if position else news[1][0]
        reach.extend(np.maximum(np.maximum.accumulate(news[1]), before))
        while position and reach[position - 1] > self.start[position]:
            position -= 1  # to where nothing before reaches into
        self._dirty = position if self._dirty is None else min(self._dirty, position)

    def add_rows(self, rows: Sequence[tuple[int, int, int, int]]) -> None:
        """The same, of rows (start, end, kind, order)."""
        if isinstance(self.start, Few) and len(self) + len(rows) <= FEW:
            self._add_few(rows)
        else:
            self.add(*np.array(rows, dtype=np.int64).T)

    def _add_few(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """The same, where they stay few."""
        if len(self):
            known = zip(self.start, self.end, self.kind, self.order, strict=True)
            rows = [*known, *rows]
        by_start = sorted(rows, key=itemgetter(0))
        self.start, self.end, self.kind, self.order = map(Few, zip(*by_start, strict=True))
        reach = Few(accumulate(self.end, max))
        self.reach = self.end if reach == self.end else reach  # nearly always one for both
        self._dirty = 0

    def settle(self) -> int | None:
        """Flatten; returns the moment from which the cover may have changed, or None."""
        if self._dirty is None:
            return None
        if isinstance(self.start, Few) and isinstance(self.end, Few):
            return self._settle_few(self.start, self.end)
        first, self._dirty = self._dirty, None
        changed_ns = self.start[first]
        keep = self.shown_start.left(changed_ns)
        totals = self._all()
        for kind, ns in self._sum(keep, len(self.shown_start)).items():
            totals[kind] -= ns
        shown_start, shown_end = self.shown_start.grown(), self.shown_end.grown()
        shown_kind, shown_source = self.shown_kind.grown(), self.shown_source.grown()
        covered = self.covered.grown()
        for column in (shown_start, shown_end, shown_kind, shown_source, covered):
            column.truncate(keep)
        start, end, source = _flatten(
            self.start.view[first:], self.end.view[first:], self.order.view[first:]
        )
        shown_start.extend(start)
        shown_end.extend(end)
        shown_kind.extend(self.kind.view[source + first])
        shown_source.extend(source + first)
        before = covered[keep - 1] if keep else 0
        covered.extend(np.cumsum(end - start) + before)
        self.shown_start, self.shown_end = shown_start, shown_end
        self.shown_kind, self.shown_source, self.covered = shown_kind, shown_source, covered
        for kind, ns in self._sum(keep, len(self.shown_start)).items():
            totals[kind] = totals.get(kind, 0) + ns
        return changed_ns

    def _settle_few(self, starts: Few, ends: Few) -> int:
        """The same, of few spans: all of them anew."""
        self._dirty = self._totals = None
        changed_ns = self.start[0]
        kinds, sources = self.kind, _FIRST[len(starts)]
        if not all(map(lt, starts, ends)):  # an empty one never shows
            sources = Few([i for i in sources if starts[i] < ends[i]])
            starts, ends, kinds = (Few([of[i] for i in sources]) for of in (starts, ends, kinds))
        if not all(map(le, ends, starts[1:])):
            spans = zip(starts, ends, sources, strict=True)
            by_rank = sorted(spans, key=lambda one: (one[0], -one[1], self.order[one[2]]))
            starts, ends, sources = map(Few, zip(*_stack(by_rank), strict=True))
            kinds = Few([self.kind[i] for i in sources])
        # Where no two overlap, the tuples of the spans themselves.
        self.shown_start, self.shown_end, self.shown_kind = starts, ends, kinds
        self.shown_source = sources
        self.covered = Few(accumulate(map(sub, ends, starts)))
        return changed_ns

    def covered_until(self, at_ns: int) -> int:
        """How long, before `at_ns`, some span was open."""
        i = self.shown_start.left(at_ns)
        if i == 0:
            return 0
        return self.covered[i - 1] - max(0, self.shown_end[i - 1] - at_ns)

    def covered_until_each(self, at_ns: Ints) -> Ints:
        """`covered_until` of many moments."""
        if not len(self.shown_start):
            return np.zeros(len(at_ns), dtype=np.int64)
        i = self.shown_start.view.searchsorted(at_ns, "left") - 1
        over = np.maximum(self.shown_end.view[i] - at_ns, 0)
        return np.where(i < 0, 0, self.covered.view[i] - over)

    def touched(self, start: Ints, end: Ints) -> Ints | slice:
        """Which of these stretches, disjoint and in order, have a span in them; or all of them.

        Of a million steps a few hundred may have a save in them: only those need be looked at.
        """
        first, last = self.shown_end.right(int(start[0])), self.shown_start.left(int(end[-1]))
        low = end.searchsorted(self.shown_start.view[first:last], "right")
        count = start.searchsorted(self.shown_end.view[first:last], "left") - low
        whole = int(count.sum())
        if 4 * whole > len(start):
            return slice(None)
        rows: Ints = np.repeat(low - (count.cumsum() - count), count) + np.arange(whole)
        return rows[np.diff(rows, prepend=-1) > 0]  # the end of one span, and the next one's start

    def kinds_between(self, start_ns: int, end_ns: int) -> Totals:
        """Nanoseconds between two moments by kind."""
        if start_ns >= end_ns:
            return {}
        count = len(self.shown_start)
        low, high = self.shown_end.right(start_ns), self.shown_start.left(end_ns)
        if high <= low:
            return {}
        if 2 * (high - low) < count:
            totals = self._sum(low, high)
        else:  # nearly all: take away what is outside
            totals = dict(self._all())
            for kind, ns in [*self._sum(0, low).items(), *self._sum(high, count).items()]:
                totals[kind] -= ns
        for i, over in (
            (low, start_ns - self.shown_start[low]),
            (high - 1, self.shown_end[high - 1] - end_ns),
        ):
            if over > 0:
                totals[self.shown_kind[i]] -= over
        return totals

    def _all(self) -> Totals:
        """Nanoseconds of all stretches by kind."""
        if self._totals is None:
            self._totals = self._sum(0, len(self.shown_start))
        return self._totals

    def _sum(self, low: int, high: int) -> Totals:
        """Nanoseconds of whole stretches by kind."""
        if low >= high:
            return {}
        if high - low <= FEW:
            totals: Totals = {}
            for i in range(low, high):
                kind = self.shown_kind[i]
                totals[kind] = totals.get(kind, 0) + self.shown_end[i] - self.shown_start[i]
            return totals
        length = self.shown_end.view[low:high] - self.shown_start.view[low:high]
        return sum_by_kind(self.shown_kind.view[low:high], length)


def sum_by_kind(kind: Ints, length: Ints) -> Totals:
    """The sum of the lengths of each kind, exactly: np.bincount would weigh in floats."""
    present = np.flatnonzero(np.bincount(kind))
    return {int(k): int(length[kind == k].sum()) for k in present}


def _flatten(start: Ints, end: Ints, order: Ints) -> tuple[Ints, Ints, Ints]:
    """Stretches (start, end, span) in which each span shows; the spans are sorted by start."""
    count = len(start)
    reach = np.maximum.accumulate(end)
    opens = np.ones(count + 1, dtype=np.bool_)  # nothing before reaches into this span
    opens[1:-1] = start[1:] >= reach[:-1]
    alone = opens[:-1] & opens[1:]
    shown = np.flatnonzero(alone & (end > start))
    mixed = np.flatnonzero(~alone)
    if not len(mixed):
        return start[shown], end[shown], shown
    rank = mixed[np.lexsort((order[mixed], -end[mixed], start[mixed]))]
    spans = zip(start[rank].tolist(), end[rank].tolist(), rank.tolist(), strict=True)
    stretches = np.array(_stack(spans), dtype=np.int64).reshape(-1, 3)
    starts = np.concatenate((start[shown], stretches[:, 0]))
    by_start = np.argsort(starts, kind="stable")
    ends = np.concatenate((end[shown], stretches[:, 1]))
    sources = np.concatenate((shown, stretches[:, 2]))
    return starts[by_start], ends[by_start], sources[by_start]


def _stack(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The stretches in which spans (start, end, number) show; each beats all before it."""
    stretches: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []  # (end, span), the winner last
    at = 0

    def advance(until: int | None) -> None:
        """Write down who shows from `at` to `until`; None: until the last has ended."""
        nonlocal at
        while stack and (until is None or at < until):
            top_end, span = stack[-1]
            if top_end <= at:
                stack.pop()
                continue
            stop = top_end if until is None else min(top_end, until)
            stretches.append((at, stop, span))
            at = stop

    for begin, finish, span in spans:
        advance(begin)
        at = begin
        stack.append((finish, span))
    advance(None)
    return stretches
