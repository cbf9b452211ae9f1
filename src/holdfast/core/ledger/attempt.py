"""One attempt in the vectorised ledger: what is recorded of it, and its time by kind.

An attempt's time is spans, steps and the rest (rules 2 to 4). Each is a difference of sums up to
two moments, so that any stretch of it costs a few binary searches: the whole attempt, a window, the
part before its first step. Things that were never closed are few and stay out of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.ledger.columns import Few, Ints
from holdfast.core.ledger.facts import DONE, AttemptFact, RestoreFact
from holdfast.core.ledger.few import NO_STEPS, Cut, cut
from holdfast.core.ledger.kinds import DETECT, DRAIN, HANG, LOST, OTHER, STARTUP, STEP, UNDER_WAY
from holdfast.core.ledger.lineage import parts_of
from holdfast.core.ledger.spans import SpanColumns, Totals, sum_by_kind
from holdfast.core.ledger.steps import StepColumns

BEFORE_ALL = -(2**62)  # earlier than any time, in ns


class UnclosedSpan(NamedTuple):
    """A span that was never closed (yet)."""

    start_ns: int
    order: int
    kind: int


class FaultTimes(NamedTuple):
    """A fault; `detected_ns` None: nobody had noticed by now."""

    at_ns: int
    detected_ns: int | None
    cause: str


class RecordedAttempt:
    """All that is known of one attempt; `fact` is None until somebody describes it."""

    __slots__ = (
        "_last_ns", "_view", "fact", "faults", "open_spans", "restores", "spans", "steps",
        "under_way",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fact: AttemptFact | None = None
        self.steps = StepColumns()
        self.spans = SpanColumns()  # restores are among them
        self.open_spans: list[UnclosedSpan] = []
        self.under_way: tuple[int, int] | None = None  # step, start
        self.restores: list[RestoreFact] = []  # by start, as the format's rules need them
        self.faults: list[FaultTimes] = []  # by time
        self._view: AttemptView | None = None
        self._last_ns: int | None = None

    def changed(self) -> None:
        """Something was recorded: forget what followed from the record."""
        self._view = self._last_ns = None

    @property
    def last_ns(self) -> int:
        """The last time of anything recorded; BEFORE_ALL if nothing is."""
        if self._last_ns is None:
            self._last_ns = max(self._times())
        return self._last_ns

    def known_at(self, now_ns: int) -> RecordedAttempt:
        """The record as it was known at some moment: what starts later is not, ends are open."""
        if self.last_ns <= now_ns:
            return self
        known, fact = RecordedAttempt(), self.fact
        if fact is not None and fact.start_ns <= now_ns:
            ended = fact.end_ns is None or fact.end_ns <= now_ns
            known.fact = fact if ended else replace(fact, end_ns=None, cause=None)
        self.steps.settle(self.spans)
        known.steps, known.under_way = self.steps.cut(now_ns)
        if self.under_way is not None and self.under_way[1] <= now_ns:
            known.under_way = self.under_way
        self._cut_spans(now_ns, known)
        known.restores = [r for r in self.restores if r.start_ns <= now_ns]
        known.faults = [
            f if f.detected_ns is None or f.detected_ns <= now_ns else f._replace(detected_ns=None)
            for f in self.faults
            if f.at_ns <= now_ns
        ]
        return known

    def view(self, end_of_time_ns: int) -> AttemptView | None:
        """What follows from the record; None while there is no AttemptFact."""
        if self.fact is None:
            return None
        if self.fact.end_ns is not None:
            stop_ns = self.fact.end_ns
        else:
            last_step_ns = self.steps.end.view[-1:].tolist()
            stop_ns = max(self.fact.start_ns, end_of_time_ns, *last_step_ns)
        if self._view is None or self._view.stop_ns != stop_ns:
            self.steps.settle(self.spans)
            self._view = AttemptView(self, self.fact, stop_ns)
        return self._view

    def _cut_spans(self, now_ns: int, known: RecordedAttempt) -> None:
        spans, begun = self.spans, self.spans.start.right(now_ns)
        start, end, kind, order = (
            c.view[:begun] for c in (spans.start, spans.end, spans.kind, spans.order)
        )
        closed = end <= now_ns
        known.spans.add(start[closed], end[closed], kind[closed], order[closed])
        still = np.stack((start[~closed], order[~closed], kind[~closed]), axis=1).tolist()
        known.open_spans = [UnclosedSpan(*values) for values in still]
        known.open_spans += [span for span in self.open_spans if span.start_ns <= now_ns]

    def _times(self) -> list[int]:
        times = [BEFORE_ALL, *(span.start_ns for span in self.open_spans)]
        if self.fact is not None:
            times.append(_or(self.fact.end_ns, self.fact.start_ns))
        if rows := len(self.steps):
            times.append(self.steps.end[rows - 1])
        if spans := len(self.spans):
            times += [self.spans.start[spans - 1], self.spans.reach[spans - 1]]
        if self.under_way is not None:
            times.append(self.under_way[1])
        return times + [_or(fault.detected_ns, fault.at_ns) for fault in self.faults]


class AttemptView:
    """One attempt as the rules see it: its bounds, its zones, its parts. Immutable, with a memo."""

    __slots__ = (
        "_fault",
        "_memo",
        "_rows",
        "_under_way",
        "cut_ns",
        "fact",
        "left_ns",
        "open_ns",
        "open_spans",
        "parts",
        "spans",
        "start_ns",
        "steps",
        "stop_ns",
    )  # fmt: skip

    def __init__(self, record: RecordedAttempt, fact: AttemptFact, stop_ns: int) -> None:
        self.fact = fact
        self.start_ns = fact.start_ns
        self.stop_ns = stop_ns
        self.steps = record.steps
        self.spans = record.spans
        self._rows = len(record.steps)
        self._under_way = record.under_way
        self._fault = self._fault_that_counts(record.faults)
        # What was never closed lasts until the fault, else as long as the attempt.
        self.cut_ns = stop_ns
        if self._fault is not None:
            self.cut_ns = self._within(self._fault.at_ns)
        self.open_spans = tuple(sorted(s for s in record.open_spans if s.start_ns < self.cut_ns))
        # From here to the cut, some open span covers everything.
        self.open_ns = self.cut_ns
        if self.open_spans:
            self.open_ns = min(max(self.open_spans[0].start_ns, self.start_ns), self.cut_ns)
        self.left_ns = self._last_activity_ns()
        self.parts = parts_of(fact.attempt, record.steps, record.under_way, record.restores)
        self._memo: dict[tuple[int, int, tuple[int, ...]], dict[int | str, int]] | None = None

    @property
    def total_steps(self) -> int:
        """How many steps were completed."""
        return self.steps.count[self._rows - 1] if self._rows else 0

    def first_step_ns(self) -> tuple[int, int] | None:
        """Start and end of the first completed step."""
        return self.steps.first_step_ns() if self._rows else None

    def time_between(
        self, start_ns: int, end_ns: int, kept_until: tuple[int, ...]
    ) -> dict[int | str, int]:
        """Wall nanoseconds from one moment of the attempt to a later one, by kind.

        `kept_until` holds, for each part, when its last kept step ended. Kinds of spans come as
        the ledger's numbers, all others by name.
        """
        key = (start_ns, end_ns, kept_until)
        if self._memo is None:
            self._memo = {}
        if key not in self._memo:
            self._memo[key] = self._time_between(*key)
        return self._memo[key]

    def _time_between(self, a: int, b: int, kept_until: tuple[int, ...]) -> dict[int | str, int]:
        time: dict[int | str, int] = {}
        early = self.spans.kinds_between(a, min(b, self.open_ns))
        late = self.spans.kinds_between(max(a, self.cut_ns), b)
        for totals in (early, self._open_kinds(max(a, self.open_ns), min(b, self.cut_ns)), late):
            for kind, ns in totals.items():
                time[kind] = time.get(kind, 0) + ns
        time[STEP] = kept = self.kept_between(a, b, kept_until)
        time[LOST] = self.own_between(a, b) - kept
        for begin_ns, finish_ns, name, _ in self.zones:
            low, high = max(a, begin_ns), min(b, finish_ns)
            if low < high:
                covered = self._covered_until(high) - self._covered_until(low)
                free = high - low - covered - self.own_between(low, high)
                time[name] = time.get(name, 0) + free
        return time

    def cuts(self, kinds: Sequence[str]) -> list[Cut] | None:
        """All of it, cut into its stretches, if they are few; None: they are many.

        `kinds` names the kinds that spans have as numbers.
        """
        starts, ends, spans = self.steps.start, self.steps.end, self.spans
        if self.open_spans or not (isinstance(starts, Few) and isinstance(spans.shown_start, Few)):
            return None
        rows = [
            (starts[row], ends[row], STEP, number)
            for number, part in enumerate(self.parts)
            for row in range(part.low, part.high)
        ]
        names = [kinds[number] for number in spans.shown_kind]
        shown = zip(spans.shown_start, spans.shown_end, names, repeat(NO_STEPS))
        return cut(shown, rows, self.zones)

    def kept_between(self, start_ns: int, end_ns: int, kept_until: tuple[int, ...]) -> int:
        """Own time of kept steps between two moments; `kept_until` as in `time_between`."""
        kept = 0
        for part, until_ns in zip(self.parts, kept_until, strict=True):
            if part.low < part.high:
                low = max(start_ns, self.steps.start[part.low])
                kept += self.own_between(low, min(end_ns, until_ns))
        return kept

    def own_between(self, start_ns: int, end_ns: int) -> int:
        """Own time of completed steps between two moments."""
        if start_ns >= end_ns:
            return 0
        return self._own_until(end_ns) - self._own_until(start_ns)

    def _own_until(self, at_ns: int) -> int:
        own = self.steps.own_until(min(at_ns, self.open_ns), self.spans)
        if at_ns > self.cut_ns:
            own += self.steps.own_until(at_ns, self.spans)
            own -= self.steps.own_until(self.cut_ns, self.spans)
        return own

    def _covered_until(self, at_ns: int) -> int:
        covered = self.spans.covered_until(min(at_ns, self.open_ns))
        if at_ns > self.open_ns:
            covered += min(at_ns, self.cut_ns) - self.open_ns
        if at_ns > self.cut_ns:
            covered += self.spans.covered_until(at_ns) - self.spans.covered_until(self.cut_ns)
        return covered

    def _open_kinds(self, start_ns: int, end_ns: int) -> Totals:
        """Who wins where an open span covers everything: closed ones that began later, or it."""
        totals: Totals = {}
        if start_ns >= end_ns:
            return totals
        for i, span in enumerate(self.open_spans):
            until = self.open_spans[i + 1].start_ns if i + 1 < len(self.open_spans) else end_ns
            low, high = max(start_ns, span.start_ns), min(end_ns, until)
            if low >= high:
                continue
            lost = 0
            for kind, ns in self._closed_winners(span, low, high).items():
                totals[kind] = totals.get(kind, 0) + ns
                lost += ns
            totals[span.kind] = totals.get(span.kind, 0) + high - low - lost
        return totals

    def _closed_winners(self, span: UnclosedSpan, low: int, high: int) -> Totals:
        """Time of closed spans that beat an open one, by kind: later, shorter, later line."""
        spans = self.spans
        shown = slice(spans.shown_end.right(low), spans.shown_start.left(high))
        source = spans.shown_source.view[shown]
        length = np.minimum(spans.shown_end.view[shown], high)
        length -= np.maximum(spans.shown_start.view[shown], low)
        wins = self.beats(source, span)
        return sum_by_kind(spans.kind.view[source][wins], length[wins])

    def beats(self, source: Ints, span: UnclosedSpan) -> NDArray[np.bool_]:
        """Which of these closed spans win over an open one."""
        spans = self.spans
        start, end = spans.start.view[source], spans.end.view[source]
        shorter = (end < self.cut_ns) | (
            (end == self.cut_ns) & (spans.order.view[source] > span.order)
        )
        wins: NDArray[np.bool_] = (start > span.start_ns) | ((start == span.start_ns) & shorter)
        return wins

    def _fault_that_counts(self, faults: Sequence[FaultTimes]) -> FaultTimes | None:
        """The first after which no other step was started and completed."""
        if not faults:
            return None
        last_ns = self.steps.last_step_start_ns() if self._rows else None
        return next((f for f in faults if last_ns is None or last_ns < f.at_ns), None)

    def _last_activity_ns(self) -> int:
        """The end of the last completed step or closed span; the start if there is none."""
        times = [self.start_ns]
        if self._rows:
            times.append(self.steps.end[self._rows - 1])
        begun = self.spans.start.right(self.stop_ns)
        if begun:
            times.append(self.spans.reach[begun - 1])
        return min(max(times), self.stop_ns)

    @property
    def zones(self) -> list[Cut]:
        """Rules 3 (the step under way) and 4, as a partition of the attempt.

        What is neither span nor completed step is of its zone's kind.
        """
        start_ns, stop_ns, fault = self.start_ns, self.stop_ns, self._fault
        first_ns, tail_ns = self.cut_ns, self.cut_ns
        if self._rows:
            first_ns, tail_ns = self.steps.start[0], self.left_ns
        if self._under_way is None:
            zones = [(first_ns, STARTUP), (tail_ns, OTHER)]
        else:
            begun_ns = self._under_way[1]
            over_ns = max(begun_ns, self.cut_ns)
            if not self._rows:
                first_ns, tail_ns = begun_ns, self.left_ns
            kind = UNDER_WAY if self.fact.end_ns is None else LOST
            zones = [(min(first_ns, begun_ns), STARTUP), (begun_ns, OTHER), (over_ns, kind)]
            zones.append((max(tail_ns, over_ns), OTHER))
        if fault is not None:
            detected_ns = stop_ns
            if fault.detected_ns is not None:
                detected_ns = max(fault.detected_ns, self.cut_ns)
            zones += [(detected_ns, HANG if fault.cause == HANG else DETECT), (stop_ns, DRAIN)]
        else:
            zones.append((stop_ns, OTHER if self.fact.cause in (None, DONE) else DRAIN))
        found: list[Cut] = []
        at_ns = start_ns
        for until_ns, kind in zones:
            if until_ns > stop_ns:
                until_ns = stop_ns
            if at_ns < until_ns:
                found.append((at_ns, until_ns, kind, NO_STEPS))
                at_ns = until_ns
        return found

    def _within(self, at_ns: int) -> int:
        return max(self.start_ns, min(at_ns, self.stop_ns))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
