"""A recorded run: its folder of journals → the ledger, cold or kept up to date, or as a history."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.core.ledger.account import Account
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
    subject,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import RESTORE, kind_rank
from holdfast.errors import JournalError
from holdfast.journal.clocks import read_clock_pair
from holdfast.journal.facts.rank_steps import Ints
from holdfast.journal.facts.run import RunFacts
from holdfast.journal.metric_log import MetricLog

SETTLED_NS = 30_000_000_000  # what was so long ago has come home from every host


class RecordedLedger:
    """The ledger of a run, fed from its journals.

    Times are unix nanoseconds as each boot's first clock reading has them (`clocks.RunClock`): a
    wall clock that is set during the run moves nothing.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str], live: Mapping[Path, Path] | None = None
    ) -> None:
        """Nothing is read before `refresh`; `live`: see `load_run`."""
        self.run_dir = Path(run_dir)
        self._asked = read_clock_pair()
        self._live = dict(live or {})
        self.metrics = MetricLog(run_dir, live)
        """The script's own numbers; read when somebody refreshes it."""
        self._begin()

    def _begin(self) -> None:
        self.ledger = Ledger(by_kind=True)
        self.facts = RunFacts(self.run_dir, self.ledger, self._live)

    def refresh(self) -> int:
        """Take in what is new; gives the number of new records."""
        new = self.facts.refresh()
        if self.facts.superseded:
            self._live = self.facts.live
            self._begin()
            self.facts.refresh()
        return new

    def check(self) -> bool:
        """Read all journals anew, and go on from there; whether that says what was said so far.

        The run goes on meanwhile: what was so a while ago is compared, and twice if need be.
        """
        anew = RecordedLedger(self.run_dir, self.facts.live)
        is_same = False
        for _ in range(2):
            self.refresh()
            anew.refresh()
            at_ns = self.ledger.last_ns() - SETTLED_NS
            is_same = is_same or _known_at(self, at_ns) == _known_at(anew, at_ns)
        self.ledger, self.facts = anew.ledger, anew.facts
        return is_same

    def now_ns(self) -> int:
        """Now, on the run's clock."""
        return self.facts.clock.now_ns()

    @property
    def asked_ns(self) -> int:
        """When this was made, on the run's clock: what was so far is all known once it is read.

        What comes while journals are being read is known of some and not of others.
        """
        return max(self.facts.clock.at(self._asked), self.facts.requested_ns or 0)

    def account(self, now_ns: int | None = None, window_ns: int | None = None) -> Account:
        """Where the time went, of what was read so far; None: now.

        Raises JournalError when the run has left no journal that can be read.
        """
        if self.facts.requested_ns is None:
            raise JournalError(
                f"{self.run_dir} holds no journal that can be read: nothing was recorded yet"
            )
        return self.ledger.account(self.now_ns() if now_ns is None else now_ns, window_ns)

    def notes(self) -> list[str]:
        """Sentences on what could not be read or was not recorded."""
        return self.facts.notes()


def load_run(
    run_dir: str | os.PathLike[str], extra_live: Mapping[Path, Path] | None = None
) -> RecordedLedger:
    """Read all journals of a run's folder.

    `extra_live` maps journals of the folder to the live files that they are copied from: on the
    run's own host these are read instead, and are newer by up to a second.
    """
    recorded = RecordedLedger(run_dir, extra_live)
    recorded.refresh()
    return recorded


def export_facts(recorded: RecordedLedger) -> Iterator[Fact]:
    """All facts of a run, for a history; their origin is the moment the run was requested.

    With that origin, seconds as floats keep the nanoseconds for three months. Reads the journals
    again. Gives nothing for a run that left none.
    """
    written = _Written()
    facts = RunFacts(recorded.run_dir, written, recorded.facts.live)
    facts.refresh()
    origin_ns = facts.requested_ns
    if origin_ns is None:
        return
    for fact in written.latest():
        yield _shifted(fact, -origin_ns)


def _known_at(recorded: RecordedLedger, at_ns: int) -> Account | None:
    return None if recorded.facts.requested_ns is None else recorded.account(at_ns)


class _Written:
    """A sink that keeps everything; memory for a million steps is about that of their journal."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._steps: list[tuple[int, Ints, Ints, Ints, Ints]] = []
        self._spans: list[tuple[int, Sequence[str], Ints, Ints, Ints]] = []
        self._open: dict[int, list[Fact]] = {}

    def add(self, facts: Iterable[Fact]) -> None:
        self._facts.extend(facts)

    def add_steps(
        self, attempt: int, first: Ints, last: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        self._steps.append((attempt, first, last, start_ns, end_ns))

    def add_spans(
        self, attempt: int, kinds: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        self._spans.append((attempt, kinds, kind, start_ns, end_ns))

    def set_open(
        self, attempt: int, spans: Iterable[tuple[str, int]], step: tuple[int, int] | None
    ) -> None:
        facts: list[Fact] = [SpanFact(attempt, kind, start_ns, None) for kind, start_ns in spans]
        if step is not None:
            facts.append(StepsFact(attempt, step[0], step[0], step[1], None))
        self._open[attempt] = facts

    def latest(self) -> Iterator[Fact]:
        """Of several facts about the run, or about one attempt, the last; of the others all."""
        last = {subject(fact): fact for fact in self._facts}
        newest = [fact for fact in self._facts if last[subject(fact)] is fact]
        for attempt, kinds, *columns in self._spans:
            for kind, start, end in zip(*(c.tolist() for c in columns), strict=True):
                newest.append(SpanFact(attempt, kinds[kind], start, end))
        yield from sorted(newest, key=_rank)
        for attempt, *columns in self._steps:
            for first, last_step, start, end in zip(*(c.tolist() for c in columns), strict=True):
                yield StepsFact(attempt, first, last_step, start, end)
        for facts in self._open.values():
            yield from facts


def _rank(fact: Fact) -> int:
    """Journals have no order among them: what the ledger decides by the kind, lines have to."""
    match fact:
        case RestoreFact():
            return kind_rank(RESTORE)
        case SpanFact() | WaitFact():
            return kind_rank(fact.kind)
        case _:
            return -1


def _shifted(fact: Fact, by_ns: int) -> Fact:
    def moved(at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns + by_ns

    match fact:
        case RunFact():
            return replace(
                fact, requested_ns=fact.requested_ns + by_ns, ended_ns=moved(fact.ended_ns)
            )
        case FaultFact():
            return replace(fact, at_ns=fact.at_ns + by_ns, detected_ns=fact.detected_ns + by_ns)
        case NoticeFact():
            return replace(fact, at_ns=fact.at_ns + by_ns, deadline_ns=moved(fact.deadline_ns))
        case SeenFact() | CapacityFact():
            return replace(fact, at_ns=fact.at_ns + by_ns)
        case RestoreFact():
            return replace(fact, start_ns=fact.start_ns + by_ns, end_ns=fact.end_ns + by_ns)
        case WaitFact() | AttemptFact() | SpanFact() | StepsFact():
            return replace(fact, start_ns=fact.start_ns + by_ns, end_ns=moved(fact.end_ns))
