"""What a run's attempts were: when each began and ended, and of what, as far as is known."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.core.ledger.facts import AttemptFact, RestoreFact
from holdfast.journal.attempts import ATTEMPT_FILE, END_FILE, launched_and_ended
from holdfast.journal.first_step import FirstStep
from holdfast.journal.rank_steps import AttemptSteps, UnderWay
from holdfast.journal.save_spans import SaveSpans
from holdfast.journal.signs import Signs
from holdfast.journal.source import Source
from holdfast.journal.touched import Touched

SUPERVISOR_LOST = "supervisor_lost"
"""Cause of an attempt that nobody was left to record the end of."""

Open = tuple[tuple[tuple[str, int], ...], UnderWay | None]
"""What is open: (kind, start) of spans, and the step under way."""


Place = tuple[int, str]
"""Of the journal that says something: see `Source.place`."""


class Proof(NamedTuple):
    """A step that nobody saw end: a later attempt resumed behind it."""

    step: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Attempt:
    """What the journals say of one attempt, and what the sink was told of it."""

    number: int
    steps: AttemptSteps = field(default_factory=AttemptSteps)
    first_step: FirstStep = field(default_factory=FirstStep)
    spans: SaveSpans = field(default_factory=SaveSpans)
    sources: list[Source] = field(default_factory=list)
    restores: list[RestoreFact] = field(default_factory=list)
    started: tuple[Place, int] | None = None
    ended: tuple[Place, int, str | None] | None = None
    lost: tuple[int, Place, str] | None = None  # when somebody found its machine lost, and to what
    record: tuple[int | None, str | None] = (None, None)  # when it was created; its cause of ending
    record_looks: Touched | None = None
    last_step_end_ns: int = 0
    proof: Proof | None = None
    told: AttemptFact | None = None
    told_open: Open = ((), None)

    @property
    def cause(self) -> str | None:
        """Why it ended, as a journal says."""
        return None if self.ended is None else self.ended[2]

    def launched_ns(self) -> int | None:
        """When it was, or else when its first journal was made; None: it left none."""
        if self.started is not None:
            return self.started[1]
        first_ns = (s.first_ns for s in self.sources if s.first_ns is not None)
        return min(first_ns, default=None)

    def alive_ns(self) -> int:
        """Its ranks' last sign of life."""
        return max((source.alive_ns() for source in self.sources), default=0)

    def open_now(self, fact: AttemptFact | None) -> Open:
        """Spans and a step that had begun and not ended.

        What a rank began that was started ahead of its attempt counts from the attempt's beginning.
        """
        low_ns = 0 if fact is None else fact.start_ns
        spans = tuple(
            (kind, max(start_ns, low_ns))
            for source in self.sources
            for kind, start_ns in source.open_spans()
        )
        step = self.steps.under_way()
        is_proven = step is not None and self.proof is not None
        return spans, None if is_proven else step


class Attempts:
    """The attempts of a run, each made when it is first heard of."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the attempts' records."""
        self._folder = folder
        self._attempts: dict[int, Attempt] = {}
        self.newest = 0  # its number; 0 when there is none

    def of(self, number: int) -> Attempt:
        """The attempt of that number."""
        known = self._attempts.get(number)
        if known is None:
            known = self._attempts[number] = Attempt(number)
            self.newest = max(self.newest, number)
        return known

    def before(self, attempt: Attempt) -> Attempt | None:
        """The one before it, if it was heard of."""
        return self._attempts.get(attempt.number - 1)

    def typical_before(self, attempt: Attempt) -> int:
        """How long a step took in the attempt before, in ns; 0: nobody knows."""
        before = self.before(attempt)
        told = None if before is None else before.first_step.told
        return told.typical_ns if told is not None else 0

    def in_order(self) -> list[Attempt]:
        """All of them, the oldest first."""
        return [self._attempts[number] for number in sorted(self._attempts)]

    def proofs(self) -> dict[int, Proof]:
        """Steps that were under way when their attempt ended, and were restored: by attempt.

        They were completed; whoever saved them did not live to say so. Such a step took as long as
        others did there, or less; where there are too few others, as in the nearest attempt before
        it that has enough, else behind it.
        """
        found: dict[int, Proof] = {}
        for attempt in self.in_order():
            for restore in attempt.restores:
                donor = None if restore.source is None else self._attempts.get(restore.source)
                if donor is None or donor.told is None or donor.told.end_ns is None:
                    continue
                step = donor.steps.under_way()
                if step is None or step.step != restore.step or donor.number in found:
                    continue
                typical_ns = self._typical_near(donor)
                end_ns = min(step.start_ns + typical_ns, max(restore.start_ns, step.start_ns))
                found[donor.number] = Proof(step.step, step.start_ns, end_ns)
        return found

    def _typical_near(self, attempt: Attempt) -> int:
        """How long a step took in it or near it, in ns; 0: nobody knows."""
        before = range(attempt.number, -1, -1)
        for number in itertools.chain(before, range(attempt.number + 1, self.newest + 1)):
            near = self._attempts.get(number)
            told = None if near is None else near.first_step.told
            if told is not None and told.typical_ns:
                return told.typical_ns
        return 0

    def told(self) -> list[AttemptFact]:
        """What the sink knows of each."""
        return [one.told for one in self._attempts.values() if one.told is not None]

    def with_starts(self) -> list[tuple[Attempt, int | None, int | None]]:
        """Each attempt with when it began, and when the next one did, the oldest first."""
        found: list[tuple[Attempt, int | None, int | None]] = []
        next_ns: int | None = None
        for attempt in reversed(self.in_order()):
            start_ns = self._start_ns(attempt)
            found.append((attempt, start_ns, next_ns))
            next_ns = next_ns if start_ns is None else start_ns
        return found[::-1]

    def _start_ns(self, attempt: Attempt) -> int | None:
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

    def _stillborn(self, attempt: Attempt) -> tuple[int | None, str | None]:
        """An attempt that left no journal was over before its first process could say anything.

        Its record is all there is. The newest may yet be launched, while it has no end.
        """
        if None in attempt.record:
            folder = self._folder / f"{attempt.number:04d}"
            if attempt.record_looks is None:
                attempt.record_looks = Touched(folder / ATTEMPT_FILE, folder / END_FILE)
            if attempt.record_looks.again():
                attempt.record = launched_and_ended(folder, attempt.number)
        created_ns, cause = attempt.record
        if cause is None and attempt.number == self.newest:
            return None, None
        return created_ns, cause

    def fact(
        self, attempt: Attempt, start_ns: int | None, next_ns: int | None, signs: Signs
    ) -> AttemptFact | None:
        """When it began and ended, and of what; None while it is about to be launched.

        The moments are those of `with_starts`. `signs`: the run's signs of life.
        """
        if start_ns is None:
            return None
        if attempt.launched_ns() is None:
            known = attempt.cause or self._stillborn(attempt)[1] or _lost_to(attempt)
            return AttemptFact(attempt.number, start_ns, start_ns, known)
        proven_ns = 0 if attempt.proof is None else attempt.proof.end_ns
        last_step_ns = max(attempt.last_step_end_ns, proven_ns)
        if attempt.ended is not None:
            # All processes were gone then; a step ends later only by another host's clock.
            end_ns = max(start_ns, attempt.ended[1], last_step_ns)
            cause = attempt.cause
        elif (over_ns := _over_ns(attempt, next_ns)) is not None:
            alive_ns = max(attempt.alive_ns(), signs.last(over_ns))
            end_ns = max(start_ns, min(alive_ns, over_ns), proven_ns)
            cause = _lost_to(attempt)
        else:
            return AttemptFact(attempt.number, start_ns, None, None)
        if next_ns is not None:
            end_ns = max(start_ns, min(end_ns, next_ns), proven_ns)
        return AttemptFact(attempt.number, start_ns, end_ns, cause)


def _lost_to(attempt: Attempt) -> str:
    return SUPERVISOR_LOST if attempt.lost is None else attempt.lost[2]


def _over_ns(attempt: Attempt, next_ns: int | None) -> int | None:
    """When an attempt that has no end was over at the latest; None: it may still run."""
    lost_ns = None if attempt.lost is None else attempt.lost[0]
    return min((at_ns for at_ns in (next_ns, lost_ns) if at_ns is not None), default=None)
