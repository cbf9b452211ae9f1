"""The vectorised ledger: fed as a run goes on, asked as often as one likes.

A million steps are a few array operations, and asking again after k new records costs
O(k + attempts). Records that come late are filed where they belong, and what follows them is summed
up anew. The tests hold it equal to a slow and plain ledger of their own, on random histories
(tests/core/ledger/plain_ledger.py).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.attempt import (
    BEFORE_ALL,
    AttemptView,
    FaultTimes,
    RecordedAttempt,
    UnclosedSpan,
)
from holdfast.core.ledger.columns import Ints, as_ints, groups
from holdfast.core.ledger.course import MOST, Course
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.gaps import RecordedWaits
from holdfast.core.ledger.kinds import RESTORE, kind_rank
from holdfast.core.ledger.step_times import StepTimes, step_times
from holdfast.core.ledger.timeline import Capacity, TimeLine

if TYPE_CHECKING:
    from holdfast.core.history.rows import History

NOBODY_LEFT_AFTER_NS = 60_000_000_000
OF_AN_ATTEMPT = (AttemptFact, FaultFact, RestoreFact, SpanFact, StepsFact)


@dataclass(slots=True)
class _Batch:
    """What is better filed many at a time: rows of steps and of spans, by attempt."""

    steps: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    spans: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)


class Ledger:
    """Everything recorded of one run.

    `add` takes facts; `add_steps` and `add_spans` take columns; `set_open` says what is open right
    now. A RunFact replaces the one before, an AttemptFact the one of the same number: an end or a
    cause that was learned later is simply added. Nothing here checks that the facts make sense
    together: a history file's were checked when it was read, and a journal's are true by the way
    they were written.
    """

    def __init__(self, *, by_kind: bool = False) -> None:
        """Of two spans, or waits, from when to when are the same, the later line wins.

        `by_kind`: that of the higher `kind_rank`, whichever came first.
        """
        self._by_kind = by_kind
        self._run: RunFact | None = None
        self._attempts: dict[int, RecordedAttempt] = {}
        self._waits = RecordedWaits()
        self._capacity: list[Capacity] = []
        self._seen_ns: list[int] = []
        self._notices: list[NoticeFact] = []
        self._kinds: list[str] = []
        self._kind_numbers: dict[str, int] = {}
        self._order = 0  # counts what was added: the later line wins

    # --- Recording -------------------------------------------------------------------------------

    def add(self, facts: Iterable[Fact]) -> None:
        """Record facts, in any order."""
        batch = _Batch()
        for fact in facts:
            self._order += 1
            self._add(fact, self._order, batch)
        self._file(batch)

    def add_history(self, history: History) -> None:
        """Record a whole history that was read from lines."""
        base, batch = self._order, _Batch()
        for line, fact in zip(history.lines, history.facts, strict=True):
            self._add(fact, base + line, batch)
        self._file(batch)
        steps, spans = history.steps, history.spans
        for attempt, at in groups(steps.attempt):
            bounds = steps.start_ns[at], steps.end_ns[at]
            self.add_steps(attempt, steps.first[at], steps.last[at], *bounds)
        numbers = np.array([self._kind(kind) for kind in history.span_kinds], dtype=np.int64)
        kinds, order = numbers[spans.kind], spans.line + base
        for attempt, at in groups(spans.attempt):
            bounds = spans.start_ns[at], spans.end_ns[at]
            self._file_spans(attempt, *bounds, kinds[at], order[at])
        self._order = max(base + max(history.lines[-1:], default=0), int(order.max(initial=base)))

    def add_steps(
        self, attempt: int, first: object, last: object, start_ns: object, end_ns: object
    ) -> None:
        """Record completed steps: columns of whole numbers, one entry a row of equal steps."""
        record = self._record(attempt)
        columns = [as_ints(column) for column in (first, last, start_ns, end_ns)]
        if len({len(column) for column in columns}) != 1:
            raise ValueError("the columns of steps differ in length")
        record.steps.add(*columns)
        record.changed()

    def add_few(
        self,
        attempt: int,
        steps: Sequence[tuple[int, int, int, int]],
        kind: str,
        spans: Sequence[tuple[int, int]],
    ) -> None:
        """Record a few rows of completed steps (first, last, start, end), and closed spans."""
        record = self._record(attempt)
        if steps:
            record.steps.add_rows(steps)
        if spans:
            number, order = self._kind(kind), self._order
            self._order += len(spans)
            marks = [(*span, number, order + i) for i, span in enumerate(spans, start=1)]
            record.spans.add_rows(marks)
        record.changed()

    def add_spans(
        self,
        attempt: int,
        kinds: Sequence[str],
        kind: object,
        start_ns: object,
        end_ns: object,
    ) -> None:
        """Record closed spans as columns; `kind` holds positions in `kinds`."""
        numbers = np.array([self._kind(name) for name in kinds], dtype=np.int64)
        which = numbers[as_ints(kind)]
        if self._by_kind:
            order = np.array([kind_rank(name) for name in kinds], dtype=np.int64)[as_ints(kind)]
        else:
            order = np.arange(self._order + 1, self._order + 1 + len(which), dtype=np.int64)
            self._order += len(which)
        self._file_spans(attempt, start_ns, end_ns, which, order)

    def set_open(
        self,
        attempt: int,
        spans: Iterable[tuple[str, int]] = (),
        step: tuple[int, int] | None = None,
    ) -> None:
        """Say what is open in an attempt right now, instead of what was before.

        `spans` are (kind, start in ns); `step` is the number and start of the step under way.
        """
        record = self._record(attempt)
        record.open_spans, record.under_way = [], step
        for kind, start_ns in spans:
            self._order += 1
            order = self._order_of(kind, self._order)
            record.open_spans.append(UnclosedSpan(start_ns, order, self._kind(kind)))
        record.changed()

    # --- Asking ----------------------------------------------------------------------------------

    def account(
        self,
        now_ns: int | None = None,
        window_ns: int | None = None,
        *,
        with_disruptions: bool = True,
    ) -> Account:
        """The account up to `now_ns`, or of its last `window_ns` nanoseconds.

        Without `now_ns`, an open run ends with the last time recorded. `with_disruptions`: and what
        each of them cost; else it has none. Raises ValueError while there is no RunFact.
        """
        line = self._known_at(now_ns)._time_line(now_ns)
        return line.account(window_ns, with_disruptions=with_disruptions)

    def course(self, now_ns: int | None = None, most: int = MOST) -> Course:
        """The time line up to `now_ns` in about so many pieces at most; raises as `account`."""
        known = self._known_at(now_ns)
        return known._time_line(now_ns).course(known._notices, most)

    def kept_shares(self, parts: int, now_ns: int | None = None) -> tuple[int, ...]:
        """How much of each of so many equal parts of the time line was kept steps, in percent.

        Raises as `account`.
        """
        return self._known_at(now_ns)._time_line(now_ns).kept_shares(parts)

    def step_times(self, now_ns: int | None = None) -> StepTimes:
        """How long steps took up to `now_ns`; raises as `account`."""
        return step_times(self._known_at(now_ns)._until(now_ns)[2])

    def rows(self) -> Iterator[tuple[int, Ints, Ints, Ints, Ints]]:
        """Each attempt's number and its rows of completed steps (first, last, start, end), by time.

        Those of steps that were lost, too. Without a copy: valid until something is recorded.
        """
        for number, record in sorted(self._attempts.items()):
            steps = record.steps
            yield number, steps.first.view, steps.last.view, steps.start.view, steps.end.view

    def spans(self, kind: str) -> Iterator[tuple[int, Ints, Ints]]:
        """Each attempt's number and its closed spans of that kind (start, end), by start."""
        wanted = self._kind_numbers.get(kind, -1)
        for number, record in sorted(self._attempts.items()):
            spans = record.spans
            is_wanted = spans.kind.view == wanted
            yield number, spans.start.view[is_wanted], spans.end.view[is_wanted]

    def facts(self) -> Iterator[Fact]:
        """What else is recorded: all but completed steps and closed spans."""
        if self._run is not None:
            yield self._run
        for number, record in sorted(self._attempts.items()):
            if record.fact is not None:
                yield record.fact
            yield from record.restores
            for at_ns, detected_ns, cause in record.faults:
                yield FaultFact(number, at_ns, at_ns if detected_ns is None else detected_ns, cause)
            for span in record.open_spans:
                yield SpanFact(number, self._kinds[span.kind], span.start_ns, None)
            if record.under_way is not None:
                step, start_ns = record.under_way
                yield StepsFact(number, step, step, start_ns, None)
        for wait in self._waits:
            yield WaitFact(self._kinds[wait.kind], wait.start_ns, wait.end_ns)
        yield from self._notices
        yield from (CapacityFact(*change) for change in self._capacity)
        yield from map(SeenFact, self._seen_ns)

    def span_kinds(self) -> tuple[str, ...]:
        """The kinds that any span has, or wait."""
        return tuple(self._kinds)

    def last_kept_step(self, now_ns: int | None = None) -> int:
        """The newest step that counts as done at `now_ns`; 0: none, or all have to be done again.

        Raises as `account`.
        """
        return self._known_at(now_ns)._time_line(now_ns).last_kept_step()

    def kept_by_attempt(self, now_ns: int | None = None) -> dict[int, int]:
        """By attempt, the last of its steps that are kept; of others all are lost.

        Raises as `account`.
        """
        return self._known_at(now_ns)._time_line(now_ns).kept_by_attempt()

    def _until(self, now_ns: int | None) -> tuple[RunFact, int, list[AttemptView]]:
        """The run, the end of its time line, and its attempts by time."""
        run = self._run
        if run is None:
            raise ValueError("a history needs one run fact: name, request time and chips")
        end_ns = self._end_of_time_line(run, now_ns)
        views = [view for record in self._attempts.values() if (view := record.view(end_ns))]
        views.sort(key=lambda view: (view.start_ns, view.stop_ns, view.fact.attempt))
        return run, end_ns, views

    def _time_line(self, now_ns: int | None) -> TimeLine:
        run, end_ns, views = self._until(now_ns)
        waits = self._waits.until(end_ns, views)
        return TimeLine(run, end_ns, views, waits, self._capacity, self._kinds)

    def _end_of_time_line(self, run: RunFact, now_ns: int | None) -> int:
        """Where the time line ends; everything known began before `now_ns`."""
        if run.ended_ns is not None:
            end_ns = run.ended_ns
        elif now_ns is None or (
            self._seen_ns and now_ns - self._seen_ns[-1] > NOBODY_LEFT_AFTER_NS
        ):
            end_ns = self.last_ns()
        else:
            end_ns = now_ns
        return max(run.requested_ns, end_ns)

    def last_ns(self) -> int:
        """The last time of anything recorded; a request and a deadline are not events."""
        times = [record.last_ns for record in self._attempts.values()]
        times += self._waits.last_ns()
        times += [*self._seen_ns[-1:], *(notice.at_ns for notice in self._notices[-1:])]
        times += [change.at_ns for change in self._capacity[-1:]]
        if self._run is not None and self._run.ended_ns is not None:
            times.append(self._run.ended_ns)
        return max(times, default=BEFORE_ALL)

    def _known_at(self, now_ns: int | None) -> Ledger:
        """The ledger as it was at some moment: what starts later is not, ends are open."""
        if now_ns is None or now_ns >= self.last_ns():
            return self
        known = Ledger(by_kind=self._by_kind)
        run = self._run
        if run is not None and run.ended_ns is not None and run.ended_ns > now_ns:
            run = replace(run, ended_ns=None)
        known._run = run
        known._attempts = {n: record.known_at(now_ns) for n, record in self._attempts.items()}
        known._waits = self._waits.known_at(now_ns)
        known._capacity = [change for change in self._capacity if change.at_ns <= now_ns]
        known._seen_ns = self._seen_ns[: bisect_right(self._seen_ns, now_ns)]
        known._notices = [notice for notice in self._notices if notice.at_ns <= now_ns]
        known._kinds, known._kind_numbers = self._kinds, self._kind_numbers
        return known

    # --- Filing ----------------------------------------------------------------------------------

    def _add(self, fact: Fact, order: int, batch: _Batch) -> None:
        """Record one fact; completed steps and closed spans are put into the batch."""
        if isinstance(fact, OF_AN_ATTEMPT):
            self._add_to_attempt(fact, order, batch)
        elif isinstance(fact, RunFact):
            self._run = fact
        elif isinstance(fact, WaitFact):
            self._waits.add(fact, self._kind(fact.kind), self._order_of(fact.kind, order))
        elif isinstance(fact, SeenFact):
            insort(self._seen_ns, fact.at_ns)
        elif isinstance(fact, NoticeFact):
            insort(self._notices, fact, key=lambda notice: notice.at_ns)
        else:
            change = Capacity(fact.at_ns, fact.chips, fact.of)
            insort(self._capacity, change, key=lambda c: c.at_ns)

    def _add_to_attempt(
        self,
        fact: AttemptFact | FaultFact | RestoreFact | SpanFact | StepsFact,
        order: int,
        batch: _Batch,
    ) -> None:
        record = self._record(fact.attempt)
        if isinstance(fact, AttemptFact):
            record.fact = fact
        elif isinstance(fact, FaultFact):
            fault = FaultTimes(fact.at_ns, fact.detected_ns, fact.cause)
            insort(record.faults, fault, key=lambda f: f.at_ns)
        elif isinstance(fact, StepsFact):
            if fact.end_ns is not None:
                row = (fact.first, fact.last, fact.start_ns, fact.end_ns)
                batch.steps.setdefault(fact.attempt, []).append(row)
            elif record.under_way is None or record.under_way[1] <= fact.start_ns:
                record.under_way = (fact.first, fact.start_ns)
        else:
            name = RESTORE if isinstance(fact, RestoreFact) else fact.kind
            kind, order = self._kind(name), self._order_of(name, order)
            if isinstance(fact, RestoreFact):
                insort(record.restores, fact, key=lambda r: r.start_ns)
            if fact.end_ns is None:
                record.open_spans.append(UnclosedSpan(fact.start_ns, order, kind))
            else:
                mark = (fact.start_ns, fact.end_ns, kind, order)
                batch.spans.setdefault(fact.attempt, []).append(mark)
        record.changed()

    def _file(self, batch: _Batch) -> None:
        for attempt, rows in batch.steps.items():
            record = self._record(attempt)
            record.steps.add_rows(rows)
            record.changed()
        for attempt, marks in batch.spans.items():
            record = self._record(attempt)
            record.spans.add_rows(marks)
            record.changed()

    def _file_spans(
        self, attempt: int, start_ns: object, end_ns: object, kind: Ints, order: Ints
    ) -> None:
        record = self._record(attempt)
        record.spans.add(as_ints(start_ns), as_ints(end_ns), as_ints(kind), as_ints(order))
        record.changed()

    def _record(self, attempt: int) -> RecordedAttempt:
        record = self._attempts.get(attempt)
        if record is None:
            record = self._attempts[attempt] = RecordedAttempt()
        return record

    def _order_of(self, kind: str, order: int) -> int:
        return kind_rank(kind) if self._by_kind else order

    def _kind(self, name: str) -> int:
        """The number of a kind of span or wait."""
        if name not in self._kind_numbers:
            self._kind_numbers[name] = len(self._kinds)
            self._kinds.append(name)
        return self._kind_numbers[name]
