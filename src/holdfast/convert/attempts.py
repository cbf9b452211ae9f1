"""The attempts of a log, one after another, as facts: each is placed, closed, and then settled.

An attempt is settled when the step is known with which the next one begins: that tells what it had
done last.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.attempt import Attempt
from holdfast.convert.notes import Notes
from holdfast.convert.place import place
from holdfast.convert.seen import LogPlace
from holdfast.core.ledger.facts import AttemptFact, Fact, SpanFact, StepsFact

UNKNOWN = "unknown"


class LogAttempts:
    """`now`: the attempt that is read; None: between two. `clock_ns`: up to when all is told.

    `first_ns`: when the first one started; None: none is closed yet.
    """

    def __init__(self, asked: ConvertOptions, notes: Notes) -> None:
        self._asked = asked
        self._notes = notes
        self._before: Attempt | None = None  # has steps; the next one's first step tells its last
        self._count = 0
        self.now: Attempt | None = None
        self.first_ns: int | None = None
        self.clock_ns = asked.start_ns or 0

    def end(self) -> Iterator[Fact]:
        """No more lines will come."""
        if self.now is not None:
            yield from self.close(self.now, is_last=True)
        yield from self._settle(None)

    def open(self, start_ns: int | None) -> Attempt:
        """The next attempt; it starts no earlier than the last one ended."""
        floor_ns = self.clock_ns if self._count else None
        if start_ns is None and not self._count:
            start_ns = self._asked.start_ns
        if start_ns is not None and floor_ns is not None:
            start_ns = max(start_ns, floor_ns)
        self.now = Attempt(self._count, floor_ns, start_ns, start_ns)
        self._count += 1
        return self.now

    def place(self, attempt: Attempt, count: int | None) -> Iterator[Fact]:
        """Facts of the first rows that wait."""
        if not attempt.rows:
            return
        is_first = attempt.placed is None
        rows, spans = place(attempt, count, self.clock_ns, self._asked, self._notes)
        if is_first:
            resumed = attempt.restoring.step + 1 if attempt.restoring else rows[0].first
            yield from self._settle(resumed)
        if not attempt.has_times:
            self._notes.assume(
                "lines without times: steps follow one another, and what passed between "
                "processes, or was not a step, is missing: goodput is an upper bound",
                "no times",
            )
        for row in rows:
            attempt.reach(row.start_ns, row.end_ns)
            yield StepsFact(attempt.number, *row)
            at_ns = row.start_ns
            while attempt.after and attempt.after[0][0] < row.last:  # pauses right before this row
                paused = attempt.after.pop(0)[1]
                end_ns = min(at_ns + paused.took_ns, row.end_ns)
                yield SpanFact(attempt.number, paused.kind, at_ns, end_ns)
                at_ns = end_ns
        for span in spans:
            attempt.reach(span.start_ns, span.end_ns)
            yield SpanFact(attempt.number, *span)

    def close(self, attempt: Attempt, *, is_last: bool = False) -> Iterator[Fact]:
        """No more lines of this attempt will come."""
        yield from self.place(attempt, None)
        over_ns = self.clock_ns if attempt.over_ns is None else attempt.over_ns
        self.clock_ns = max(self.clock_ns, over_ns) if self._count > 1 else over_ns
        if attempt.start_ns is None:
            low_ns = over_ns if attempt.low_ns is None else attempt.low_ns
            attempt.start_ns = max(low_ns, attempt.least_ns)
        if self.first_ns is None:
            self.first_ns = attempt.start_ns
        if attempt.cause is None and not is_last:
            attempt.cause = UNKNOWN
        attempt.end_ns = over_ns
        self.now = None
        if attempt.placed is not None:
            self._before = attempt
        else:
            yield AttemptFact(attempt.number, attempt.start_ns, over_ns, attempt.cause)

    def _settle(self, next_first: int | None) -> Iterator[Fact]:
        """The attempt before, now that it is known which step came after it.

        A process logs its last steps late, or never; but what the next one continued was done.
        """
        if self._before is None:
            return
        before, self._before = self._before, None
        start_ns, end_ns, last = before.start_ns or 0, before.end_ns or 0, before.placed or 0
        if next_first is not None and next_first - 1 > last:
            self._notes.odd(
                LogPlace(f"attempt {before.number}"),
                f"steps {last + 1}–{next_first - 1} have no line, but the next attempt goes on "
                "after them: they are counted as done, without any time",
            )
            yield StepsFact(before.number, last + 1, next_first - 1, end_ns, end_ns)
        yield AttemptFact(before.number, start_ns, end_ns, before.cause)
