"""A recorded run: its folder of journals → the ledger, cold or kept up to date, or as a history."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import AttemptFact, Fact, RestoreFact, SpanFact, StepsFact, WaitFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import RESTORE, kind_rank
from holdfast.errors import JournalError
from holdfast.journal.clocks import RunClock, read_clock_pair
from holdfast.journal.facts.run import RunFacts
from holdfast.journal.metric_log import MetricLog

SETTLED_NS = 30_000_000_000  # what was so long ago has come home from every host
_TIMES = {  # of each kind of fact
    kind: [one.name for one in fields(kind) if one.name.endswith("_ns")] for kind in get_args(Fact)
}


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

    def _begin(self, clock: RunClock | None = None) -> None:
        self.ledger = Ledger(by_kind=True)
        self.facts = RunFacts(self.run_dir, self.ledger, self._live, clock)

    def refresh(self) -> int:
        """Take in what is new; gives the number of new records."""
        new = self.facts.refresh()
        if self.facts.superseded:
            self._live = self.facts.live
            self._begin(self.facts.clock.anew())
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
    """All facts of a run so far, for a history; their origin is the moment the run was requested.

    With that origin, seconds as floats keep the nanoseconds for three months. Gives nothing for a
    run that left none.
    """
    origin_ns, ledger = recorded.facts.requested_ns, recorded.ledger
    if origin_ns is None:
        return
    facts = [_since(fact, origin_ns) for fact in ledger.facts()]
    for kind in ledger.span_kinds():
        for attempt, start_ns, end_ns in ledger.spans(kind):
            if kind != RESTORE:  # a fact of its own
                rows = _rows(start_ns - origin_ns, end_ns - origin_ns)
                facts += [SpanFact(attempt, kind, *row) for row in rows]
    over_ns = {one.attempt: one.end_ns for one in facts if isinstance(one, AttemptFact)}
    # Journals have no order among them: what the ledger decides by the kind, lines have to.
    yield from sorted((_until(fact, over_ns) for fact in facts), key=_rank)
    for attempt, first, last, start_ns, end_ns in ledger.rows():
        for row in _rows(first, last, start_ns - origin_ns, end_ns - origin_ns):
            yield _until(StepsFact(attempt, *row), over_ns)


def _until(fact: Fact, over_ns: Mapping[int, int | None]) -> Fact:
    """A step within its attempt: a host that is cut off trains on when that is over."""
    if not isinstance(fact, StepsFact) or (by_ns := over_ns.get(fact.attempt)) is None:
        return fact
    end_ns = None if fact.end_ns is None else min(fact.end_ns, by_ns)
    return replace(fact, start_ns=min(fact.start_ns, by_ns), end_ns=end_ns)


def _since(fact: Fact, origin_ns: int) -> Fact:
    times = {name: getattr(fact, name) for name in _TIMES[type(fact)]}
    moved = {name: at_ns - origin_ns for name, at_ns in times.items() if at_ns is not None}
    return replace(fact, **moved)


def _rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _rank(fact: Fact) -> int:
    match fact:
        case RestoreFact():
            return kind_rank(RESTORE)
        case SpanFact() | WaitFact():
            return kind_rank(fact.kind)
        case _:
            return -1


def _known_at(recorded: RecordedLedger, at_ns: int) -> Account | None:
    return None if recorded.facts.requested_ns is None else recorded.account(at_ns)
