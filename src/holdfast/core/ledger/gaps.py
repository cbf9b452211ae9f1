"""The time between attempts: the waits that were recorded, and the gaps that they explain (rule 1).

A wait is what whoever runs the run tells: a back-off, a queue. A gap is what the attempts leave
free. What no wait covers of it is RESCHEDULE, or QUEUED before the first attempt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from holdfast.core.ledger.attempt import AttemptView
from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import DONE, RunFact, WaitFact
from holdfast.core.ledger.kinds import waiting_kind
from holdfast.core.ledger.spans import SpanColumns
from holdfast.core.ledger.stretches import Stretches

_NO_INTS: Ints = np.empty(0, dtype=np.int64)


class RecordedWait(NamedTuple):
    """A wait; `end_ns` None: not over yet."""

    start_ns: int
    end_ns: int | None
    kind: int
    order: int
    until_next: bool = False  # it lasts until the next attempt begins


class RecordedWaits:
    """Those of a run; of several of one kind that begin at one moment the last counts."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], RecordedWait] = {}  # by kind and start
        self._flat: SpanColumns | None = None

    def __iter__(self) -> Iterator[RecordedWait]:
        return iter(self._waits.values())

    def add(self, fact: WaitFact, kind: int, order: int) -> None:
        """One more, or one that is told again; `kind` is the number of its kind."""
        is_open = fact.end_ns is None
        self._waits[kind, fact.start_ns] = RecordedWait(
            fact.start_ns, fact.end_ns, kind, order, is_open
        )
        self._flat = None

    def known_at(self, now_ns: int) -> RecordedWaits:
        """The waits as they were at some moment: later ones are not there, later ends are open."""
        known = RecordedWaits()
        known._waits = {
            key: wait._replace(end_ns=None) if (wait.end_ns or 0) > now_ns else wait
            for key, wait in self._waits.items()
            if wait.start_ns <= now_ns
        }
        return known

    def last_ns(self) -> Iterator[int]:
        """The last moment that is known of each wait."""
        return (wait.start_ns if wait.end_ns is None else wait.end_ns for wait in self)

    def until(self, end_ns: int, views: Sequence[AttemptView]) -> SpanColumns:
        """All of them, flattened; one that has not ended lasts as long as the time line.

        Or until the next of the attempts, which are in order, begins.
        """
        if self._flat is not None:
            return self._flat
        starts = [view.start_ns for view in views]
        rows = []
        for wait in self:
            until_ns = max(wait.start_ns, end_ns)
            after = bisect_left(starts, wait.start_ns)
            if wait.until_next and after < len(starts):
                until_ns = starts[after]
            over_ns = until_ns if wait.end_ns is None else wait.end_ns
            rows.append((wait.start_ns, over_ns, wait.kind, wait.order))
        flat = SpanColumns()
        flat.add(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)
        flat.settle()
        if all(wait.end_ns is not None for wait in self):
            self._flat = flat
        return flat


class Gap(NamedTuple):
    """A stretch without an attempt."""

    start_ns: int
    end_ns: int
    before_first: bool
    after_done: bool

    def kind(self, wait: str | None) -> str:
        """What its time is under that kind of wait, or under none."""
        return waiting_kind(wait, before_first=self.before_first, after_done=self.after_done)


class Gaps:
    """The gap before each attempt of a time line, and the one after the last; some are empty."""

    def __init__(
        self,
        run: RunFact,
        end_ns: int,
        views: Sequence[AttemptView],
        waits: SpanColumns,
        kinds: Sequence[str],
    ) -> None:
        """`views` are attempts by time; `waits` is settled; `kinds` are their kinds' names."""
        self._end_ns, self._waits, self._kinds = end_ns, waits, kinds
        self.in_order: list[Gap] = []
        free_ns, after_done = run.requested_ns, False
        for view in views:
            self.in_order.append(Gap(free_ns, view.start_ns, not self.in_order, after_done))
            free_ns, after_done = max(free_ns, view.stop_ns), view.fact.cause == DONE
        self.in_order.append(Gap(free_ns, end_ns, not self.in_order, after_done))

    def time(self, gap: Gap, a: int, b: int) -> dict[str, int]:
        """Wall nanoseconds by kind of a gap, between two moments of the time line."""
        a, b = max(a, gap.start_ns), min(b, gap.end_ns, self._end_ns)
        if a >= b:
            return {}
        time: dict[str, int] = {}
        rest = b - a
        for number, ns in self._waits.kinds_between(a, b).items():
            kind = gap.kind(self._kinds[number])
            time[kind] = time.get(kind, 0) + ns
            rest -= ns
        kind = gap.kind(None)
        time[kind] = time.get(kind, 0) + rest
        return time

    def stretches(self, gap: Gap, names: list[str]) -> Stretches:
        """A gap cut into its kinds, as places in `names`, which grows by those that it lacks."""
        waits, bounds = self._waits, [gap.start_ns, min(gap.end_ns, self._end_ns)]
        if bounds[0] >= bounds[1]:
            return Stretches(*(_NO_INTS for _ in Stretches._fields))
        low, high = waits.shown_end.right(bounds[0]), waits.shown_start.left(bounds[1])
        inner = [waits.shown_start[i] for i in range(low, high)]
        inner += [waits.shown_end[i] for i in range(low, high)]
        edges = sorted({*bounds, *(at for at in inner if bounds[0] < at < bounds[1])})
        kinds = []
        for at in edges[:-1]:
            i = waits.shown_start.right(at) - 1
            is_open = i >= 0 and waits.shown_end[i] > at
            kinds.append(gap.kind(self._kinds[waits.shown_kind[i]] if is_open else None))
        names += [kind for kind in dict.fromkeys(kinds) if kind not in names]
        nothing = np.zeros(len(kinds), dtype=np.int64)
        return Stretches(
            np.array(edges[:-1], dtype=np.int64),
            np.array(edges[1:], dtype=np.int64),
            np.array([names.index(kind) for kind in kinds], dtype=np.int64),
            nothing,
            nothing,
            nothing,
        )
