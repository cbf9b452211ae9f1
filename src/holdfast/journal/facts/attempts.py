"""What a run's attempts were: when each began and ended, and of what, as far as is known."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from holdfast.core.exits import learned_later
from holdfast.core.ledger.facts import AttemptFact, RestoreFact
from holdfast.journal.attempts import ATTEMPT_FILE, END_FILE, launched_and_ended
from holdfast.journal.facts.followed import FollowedJournal, Place, Touched
from holdfast.journal.facts.lines import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptStated,
)
from holdfast.journal.facts.proven import Proof, prove
from holdfast.journal.facts.rank_steps import Ints, UnderWay
from holdfast.journal.facts.steps import AttemptSteps, FirstStep, SaveSpans
from holdfast.journal.layout import RankPhase
from holdfast.journal.regular import is_real_folder

_SPACING_NS = 20_000_000_000  # of signs of life

SUPERVISOR_LOST = "supervisor_lost"
"""Cause of an attempt that nobody was left to record the end of."""

Open = tuple[tuple[tuple[str, int], ...], UnderWay | None]
"""What is open: (kind, start) of spans, and the step under way."""


@dataclass(slots=True)
class KnownAttempt:
    """What the journals say of one attempt; `fact` and `open` are what the sink has of it."""

    number: int
    steps: AttemptSteps = field(default_factory=AttemptSteps)
    first_step: FirstStep = field(default_factory=FirstStep)
    spans: SaveSpans = field(default_factory=SaveSpans)
    journals: list[FollowedJournal] = field(default_factory=list)
    restores: list[RestoreFact] = field(default_factory=list)
    started: tuple[Place, int] | None = None
    ended: tuple[Place, int, str | None] | None = None
    lost: tuple[int, Place, str] | None = None  # when somebody found its machine lost, and to what
    record: tuple[int | None, str | None] = (None, None)  # when it was created; its cause of ending
    record_looks: Touched | None = None
    last_step_end_ns: int = 0
    proof: Proof | None = None
    fact: AttemptFact | None = None
    open: Open = ((), None)

    @property
    def cause(self) -> str | None:
        """Why it ended, as a journal says, or as was found out afterwards."""
        if self.ended is None or self.ended[2] is None:
            return None
        return learned_later(self.ended[2], None if self.lost is None else self.lost[2])

    def launched_ns(self) -> int | None:
        """When it was, or else when its first journal was made; None: it left none."""
        if self.started is not None:
            return self.started[1]
        first_ns = (s.first_ns for s in self.journals if s.first_ns is not None)
        return min(first_ns, default=None)

    def alive_ns(self) -> int:
        """Its ranks' last sign of life."""
        return max((journal.alive_ns() for journal in self.journals), default=0)

    def open_now(self) -> Open:
        """Spans and a step that had begun and not ended.

        What a rank began that was started ahead of its attempt counts from the attempt's beginning.
        """
        low_ns = 0 if self.fact is None else self.fact.start_ns
        spans = tuple(
            (kind, max(start_ns, low_ns))
            for journal in self.journals
            for kind, start_ns in journal.open_spans()
        )
        if self.proof is None:
            return spans, self.steps.under_way()
        step = self.steps.under_way(self.proof.last)
        over_ns = self.proof.rows[-1].end_ns
        return spans, None if step is None else UnderWay(step.step, max(step.start_ns, over_ns))


class KnownAttempts:
    """The attempts of a run, each made when it is first heard of."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the attempts' records."""
        self._folder = folder
        self._attempts: dict[int, KnownAttempt] = {}
        self.newest = 0  # its number; 0 when there is none

    def of(self, number: int) -> KnownAttempt:
        """The attempt of that number."""
        known = self._attempts.get(number)
        if known is None:
            known = self._attempts[number] = KnownAttempt(number)
            self.newest = max(self.newest, number)
        return known

    def take(self, place: Place, one: AttemptStated) -> None:
        """What the journal of that place states of an attempt; where two contradict, the last."""
        attempt = self.of(one.attempt)
        match one:
            case AttemptStarted():
                if attempt.started is None or place >= attempt.started[0]:
                    attempt.started = place, one.at_ns
            case AttemptEnded():
                if attempt.ended is None or place >= attempt.ended[0]:
                    attempt.ended = place, one.at_ns, one.cause
            case AttemptLost():
                lost = (one.at_ns, place, one.cause)
                attempt.lost = min(attempt.lost or lost, lost)  # who found it first

    def before(self, attempt: KnownAttempt) -> KnownAttempt | None:
        """The one before it, if it was heard of."""
        return self._attempts.get(attempt.number - 1)

    def typical_before(self, attempt: KnownAttempt) -> int:
        """How long a step took in the attempt before, in ns; 0: nobody knows."""
        before = self.before(attempt)
        known = None if before is None else before.first_step.known
        return known.typical_ns if known is not None else 0

    def in_order(self) -> list[KnownAttempt]:
        """All of them, the oldest first."""
        return [self._attempts[number] for number in sorted(self._attempts)]

    def proofs(self) -> dict[int, Proof]:
        """Steps that were not complete by all journals, and were restored: by attempt.

        They were completed (`facts.proven`). Those that nobody has recorded took as long as others
        did there; where there are too few others, as in the nearest attempt before it that has
        enough, else behind it.
        """
        found: dict[int, Proof] = {}
        for number, last in self._restored().items():
            donor = self._attempts.get(number)
            if donor is None or donor.fact is None or donor.fact.end_ns is None:
                continue
            begun = donor.steps.unproven(last)
            if begun is None:
                continue
            seen, typical_ns = donor.steps.seen(last), self._typical_near(donor)
            proof = prove(begun, last, seen, typical_ns, donor.fact.end_ns)
            if proof is not None:
                found[number] = proof
        return found

    def _restored(self) -> dict[int, int]:
        """By attempt, the last of its steps that a later one has resumed behind."""
        found: dict[int, int] = {}
        for attempt in self._attempts.values():
            for restore in attempt.restores:
                if restore.source is not None and restore.source < attempt.number:
                    found[restore.source] = max(restore.step, found.get(restore.source, 0))
        return found

    def _typical_near(self, attempt: KnownAttempt) -> int:
        """How long a step took in it or near it, in ns; 0: nobody knows."""
        before = range(attempt.number, -1, -1)
        for number in itertools.chain(before, range(attempt.number + 1, self.newest + 1)):
            near = self._attempts.get(number)
            known = None if near is None else near.first_step.known
            if known is not None and known.typical_ns:
                return known.typical_ns
        return 0

    def facts(self) -> list[AttemptFact]:
        """What the sink has of each."""
        return [one.fact for one in self._attempts.values() if one.fact is not None]

    def with_starts(self) -> list[tuple[KnownAttempt, int | None, int | None]]:
        """Each attempt with when it began, and when the next one did, the oldest first."""
        found: list[tuple[KnownAttempt, int | None, int | None]] = []
        next_ns: int | None = None
        for attempt in reversed(self.in_order()):
            start_ns = self._start_ns(attempt)
            found.append((attempt, start_ns, next_ns))
            next_ns = next_ns if start_ns is None else start_ns
        return found[::-1]

    def _start_ns(self, attempt: KnownAttempt) -> int | None:
        """When an attempt began: not while the one before it ran, though its ranks may have."""
        if attempt.started is not None:
            return attempt.started[1]
        start_ns = attempt.launched_ns()
        if start_ns is None:
            start_ns = self._stillborn(attempt)[0]
        before = self.before(attempt)
        if start_ns is None or before is None or before.ended is None:
            return start_ns
        return max(start_ns, before.ended[1])

    def is_over(self, attempt: KnownAttempt, next_ns: int | None) -> bool:
        """Whether nothing of it runs any more. `next_ns`: when the next one began.

        Where its controller has died with it, the next one says so on record, before it launches.
        """
        if attempt.ended is not None or _over_ns(attempt, next_ns) is not None:
            return True
        return self._on_record(attempt)[1] is not None

    def _on_record(self, attempt: KnownAttempt) -> tuple[int | None, str | None]:
        """When it was created (unix ns), and its cause of ending."""
        if None in attempt.record:
            folder = self._folder / f"{attempt.number:04d}"
            if attempt.record_looks is None:
                attempt.record_looks = Touched(folder / ATTEMPT_FILE, folder / END_FILE)
            are_ours = is_real_folder(self._folder) and is_real_folder(folder)
            if are_ours and attempt.record_looks.again():
                attempt.record = launched_and_ended(folder, attempt.number)
        return attempt.record

    def _stillborn(self, attempt: KnownAttempt) -> tuple[int | None, str | None]:
        """An attempt that left no journal was over before its first process could say anything.

        Its record is all there is. The newest may yet be launched, while it has no end.
        """
        created_ns, cause = self._on_record(attempt)
        if cause is None and attempt.number == self.newest:
            return None, None
        return created_ns, cause

    def fact(
        self,
        attempt: KnownAttempt,
        start_ns: int | None,
        next_ns: int | None,
        signs: ControllerSigns,
    ) -> AttemptFact | None:
        """When it began and ended, and of what; None while it is about to be launched.

        The moments are those of `with_starts`. `signs`: those of the run's controllers.
        """
        if start_ns is None:
            return None
        if attempt.launched_ns() is None:
            known = attempt.cause or self._stillborn(attempt)[1] or _lost_to(attempt)
            return AttemptFact(attempt.number, start_ns, start_ns, known)
        if attempt.ended is not None:
            # All processes were gone then; a step ends later only by another host's clock.
            end_ns = max(start_ns, attempt.ended[1], attempt.last_step_end_ns)
            cause = attempt.cause
        elif self.is_over(attempt, next_ns):
            over_ns = _over_ns(attempt, next_ns)
            ranks_ns = attempt.alive_ns()
            alive_ns = max(ranks_ns, signs.last_beside(ranks_ns, over_ns))
            end_ns = max(start_ns, alive_ns if over_ns is None else min(alive_ns, over_ns))
            cause = _lost_to(attempt)
        else:
            return AttemptFact(attempt.number, start_ns, None, None)
        if next_ns is not None:
            end_ns = max(start_ns, min(end_ns, next_ns))
        return AttemptFact(attempt.number, start_ns, end_ns, cause)


def _lost_to(attempt: KnownAttempt) -> str:
    return SUPERVISOR_LOST if attempt.lost is None else attempt.lost[2]


def _over_ns(attempt: KnownAttempt, next_ns: int | None) -> int | None:
    """When an attempt that has no end was over at the latest; None: it may still run."""
    lost_ns = None if attempt.lost is None else attempt.lost[0]
    return min((at_ns for at_ns in (next_ns, lost_ns) if at_ns is not None), default=None)


class Signs:
    """Signs of life of a supervisor, thinned: of so many in a minute, few say as much.

    The first and the last of each 20 s are kept, in whatever order and pieces they come.

    A pause of a minute shows where it did, at whatever moment one asks.
    """

    def __init__(self) -> None:
        self._cells: list[int] = []
        self._kept: dict[int, tuple[int, int]] = {}

    def add(self, at_ns: Ints) -> list[int]:
        """Take some; gives those that are kept and were not."""
        if not len(at_ns):
            return []
        at_ns = np.sort(at_ns)
        begins = np.flatnonzero(np.diff(at_ns // _SPACING_NS, prepend=-1))
        first, last = at_ns[begins], at_ns[np.append(begins[1:], len(at_ns)) - 1]
        news: list[int] = []
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            cell = low // _SPACING_NS
            known = self._kept.get(cell)
            if known is None:
                insort(self._cells, cell)
                kept = (low, high)
            else:
                kept = (min(low, known[0]), max(high, known[1]))
            self._kept[cell] = kept
            news += sorted({*kept} - {*(known or ())})
        return news

    def last(self, until_ns: int | None = None) -> int:
        """The last one, or the last up to a moment; 0: there is none."""
        at = len(self._cells)
        if until_ns is not None:
            at = bisect_right(self._cells, until_ns // _SPACING_NS)
        for cell in reversed(self._cells[max(0, at - 2) : at]):
            for at_ns in reversed(self._kept[cell]):
                if until_ns is None or at_ns <= until_ns:
                    return at_ns
        return 0


class ControllerSigns:
    """The signs of life of a run's controllers, each one's apart."""

    def __init__(self) -> None:
        self._of: dict[Path, tuple[FollowedJournal, Signs]] = {}

    def add(self, journal: FollowedJournal, at_ns: Ints) -> None:
        """Take some of one controller's."""
        _, signs = self._of.setdefault(journal.home, (journal, Signs()))
        signs.add(at_ns)

    def last_beside(self, ranks_ns: int, until_ns: int | None) -> int:
        """The last one of a controller under which ranks showed life at `ranks_ns`, or after it.

        One that began later found them gone, for as long as it was not there itself. 0: none.
        """
        found = (
            signs.last(until_ns)
            for journal, signs in self._of.values()
            if journal.first_ns is not None and journal.first_ns <= ranks_ns
        )
        return max(found, default=0)


class RankSeen(NamedTuple):
    """A rank of the newest attempt, as its journal shows it: how far it is, and when it moved.

    Times are ns on the run's clock; None: never.

    `step` is the last one dispatched, `complete` the last known complete on the device (0: it does
    not say). `ahead_ns`: how long before the run's slowest rank it completed its steps, on average
    of the last `compared` ones. `copied` and `saved`: the steps of its newest copy to memory, and
    of the newest set that is durable as a whole. `blocked_ns`, `took_ns`: its last save, of the
    training's time and from order to durable.
    """

    attempt: int
    host: str
    rank: int
    phase: RankPhase
    step: int
    step_ns: int | None
    complete: int
    complete_ns: int | None
    alive_ns: int
    ahead_ns: int
    compared: int
    copied: int
    saved: int
    blocked_ns: int
    took_ns: int
    errors: int


def ranks_of(attempt: KnownAttempt) -> Iterator[RankSeen]:
    """Those that left a journal, by their numbers."""
    for number, journal in sorted(
        enumerate(attempt.journals), key=lambda pair: pair[1].identity.rank
    ):
        values, offset_ns = journal.values, journal.offset_ns
        lead = attempt.steps.leads(number)
        compared = len(lead.start)
        yield RankSeen(
            attempt=attempt.number,
            host=journal.identity.host,
            rank=journal.identity.rank,
            phase=values.phase,
            step=values.step,
            step_ns=values.step_at_ns + offset_ns if values.step_at_ns else None,
            complete=values.complete,
            complete_ns=values.complete_at_ns + offset_ns if values.complete_at_ns else None,
            alive_ns=journal.alive_ns(),
            ahead_ns=round(float((lead.end - lead.start).mean())) if compared else 0,
            compared=compared,
            copied=values.copied.step,
            saved=max(values.committed, values.watermark),
            blocked_ns=values.save_blocked_ns,
            took_ns=values.save_total_ns,
            errors=values.errors,
        )
