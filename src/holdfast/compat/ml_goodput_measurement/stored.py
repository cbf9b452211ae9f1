"""The books of a job that is a run in the store: what its journals say, told to the ledger.

Whoever wrote them: a recorder of this face, or Holdfast's own session or supervisor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.compat.ml_goodput_measurement import clock, kinds
from holdfast.compat.ml_goodput_measurement.books import Books
from holdfast.compat.ml_goodput_measurement.clock import NS_PER_S
from holdfast.compat.ml_goodput_measurement.events import SliceCounts
from holdfast.core.ledger.facts import AttemptFact, Fact, RunFact, SeenFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import DATA, STARTUP
from holdfast.journal.clocks import ClockPair
from holdfast.journal.clocks import now_ns as boottime_ns
from holdfast.journal.facts.run import RunFacts
from holdfast.journal.live import live_journals

if TYPE_CHECKING:
    from holdfast.journal.facts.rank_steps import Ints
    from holdfast.journal.store import RunFolder

RECORDER: Final = "goodput-"
"""How the incarnations of recorders begin."""


class Stored(Books):
    """Follows a run. `refresh` takes in what is new."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder
        self.name = folder.name
        self._heard_ns: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.ledger, self._told, self.slices = Ledger(), None, []
        self.requested_ns = self.ended_ns = self.seen_ns = self.newest = None
        self.lives: dict[int, StoredLife] = {}
        self._spans: list[tuple[int, Sequence[str], Ints, Ints, Ints]] = []
        self._asides: dict[Path, int] = {}
        self._facts = RunFacts(self._folder.path, self, live_journals(self._folder))

    def refresh(self) -> None:
        """Take in what is new."""
        self._facts.live.update(live_journals(self._folder))
        self._facts.refresh()
        if self._facts.superseded:
            self._begin()
            self._facts.refresh()
        self._tell_spans()
        self._hear()
        is_recorded = self._facts.is_written_by(RECORDER)
        self.ahead, self.marks_the_last_lost = (1, True) if is_recorded else (0, False)
        self._read_slices()

    def now_ns(self) -> int:
        """On the run's own clock, which goes on evenly where this host's wall clock is set."""
        return self._facts.clock.at(ClockPair(boottime_ns(), clock.unix_ns()))

    def _hear(self) -> None:
        """A sign of life that came since the last look counts: then somebody is alive now."""
        before_ns, self._heard_ns = self._heard_ns, self._facts.seen_ns
        if before_ns is not None and self._heard_ns > before_ns:
            self.seen_ns = max(self.seen_ns or 0, self._heard_ns)

    # --- What the journals say (journal.facts.run.Sink) --------------------------------------

    def add(self, facts: Iterable[Fact]) -> None:
        """Facts go to the ledger; when the run ended is decided when somebody asks."""
        found: list[Fact] = []
        for fact in facts:
            if isinstance(fact, RunFact):
                self.requested_ns, self.ended_ns = fact.requested_ns, fact.ended_ns
                self.chips = fact.chips
            elif isinstance(fact, SeenFact):
                self.seen_ns = max(self.seen_ns or 0, fact.at_ns)
            else:
                if isinstance(fact, AttemptFact):
                    self._life(fact.attempt).fact = fact
                    if self.newest is None or fact.attempt >= self.newest.attempt:
                        self.newest = fact
                found.append(fact)
        self.ledger.add(found)
        self._told = None

    def add_steps(
        self, attempt: int, first: Ints, last: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Completed steps."""
        if not len(first):
            return
        self.ledger.add_steps(attempt, first, last, start_ns, end_ns)
        self._life(attempt).note_step(int(first[0]), int(last[-1]), int(start_ns[0]))

    def add_spans(
        self, attempt: int, names: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Spans wait until it is known when the attempt's first step began."""
        self._spans.append((attempt, names, kind, start_ns, end_ns))

    def set_open(
        self, attempt: int, spans: Iterable[tuple[str, int]], step: tuple[int, int] | None
    ) -> None:
        """What is open."""
        life = self._life(attempt)
        life.under_way = step
        if step is not None:
            life.note_first(*step)
        self.ledger.set_open(attempt, spans, step)

    def opening(self) -> tuple[int, int] | None:
        """As the journals' readers see it."""
        return self._facts.opening()

    def _tell_spans(self) -> None:
        spans, self._spans = self._spans, []
        for attempt, names, kind, start_ns, end_ns in spans:
            first_ns = self._life(attempt).first_ns
            span_names = [kinds.FIRST_STEP if name == STARTUP else name for name in names]
            if DATA in span_names and first_ns is not None:
                later = (kind == span_names.index(DATA)) & (start_ns >= first_ns)
                kind = np.where(later, len(span_names), kind)
                span_names.append(kinds.LATER_DATA)
            self.ledger.add_spans(attempt, span_names, kind, start_ns, end_ns)

    def _life(self, attempt: int) -> StoredLife:
        return self.lives.setdefault(attempt, StoredLife())

    # --- Slices, which the ledger knows only as capacity ---------------------------------------

    def _read_slices(self) -> None:
        """Lines on slices in the recorders' sidecars; each file from where it was left."""
        for path in sorted(self._folder.attempts_dir.glob("*/journal/rank-00000.jsonl")):
            offset = self._asides.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._asides[path] = offset + whole
            self.slices += [found for line in text[:whole].splitlines() if (found := _slices(line))]


class StoredLife:
    """What a recorder has to know of an earlier attempt to say where its own resumed."""

    __slots__ = ("done", "fact", "first", "first_ns", "under_way")

    def __init__(self) -> None:
        self.fact: AttemptFact | None = None
        self.first: int | None = None
        self.first_ns: int | None = None
        self.done = 0
        self.under_way: tuple[int, int] | None = None

    def note_step(self, first: int, last: int, start_ns: int) -> None:
        """Steps were completed."""
        self.note_first(first, start_ns)
        self.done = last

    def note_first(self, step: int, start_ns: int) -> None:
        """A step began."""
        if self.first is None:
            self.first, self.first_ns = step, start_ns

    def has(self, step: int) -> bool:
        """Whether it completed the step, or was in it when it ended."""
        if self.under_way is not None and self.under_way[0] == step:
            return True
        return self.first is not None and self.first <= step <= self.done


def _slices(line: bytes) -> SliceCounts | None:
    if b'"available"' not in line:
        return None
    try:
        raw = json.loads(line)
        return SliceCounts(
            raw["unix_ns"] / NS_PER_S, int(raw["chips"]), int(raw["available"]), int(raw["total"])
        )
    except (ValueError, KeyError, TypeError):
        return None
