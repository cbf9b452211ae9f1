"""What a run's attempts were: when each began and ended, and of what, as far as is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from holdfast.core.facts import AttemptFact, RestoreFact
from holdfast.journal.attempts import launched_and_ended
from holdfast.journal.first_step import FirstStep
from holdfast.journal.rank_steps import AttemptSteps, Rows, UnderWay
from holdfast.journal.save_spans import SaveSpans
from holdfast.journal.source import Source

SUPERVISOR_LOST = "supervisor_lost"
"""Cause of an attempt that nobody was left to record the end of."""

Open = tuple[tuple[tuple[str, int], ...], UnderWay | None]
"""What is open: (kind, start) of spans, and the step under way."""


@dataclass(slots=True)
class Attempt:
    """What the journals say of one attempt, and what the sink was told of it."""

    number: int
    steps: AttemptSteps = field(default_factory=AttemptSteps)
    first_step: FirstStep = field(default_factory=FirstStep)
    spans: SaveSpans = field(default_factory=SaveSpans)
    sources: list[Source] = field(default_factory=list)
    started_ns: int | None = None
    stillborn_ns: int | None = None
    ended_ns: int | None = None
    cause: str | None = None
    lost: tuple[int, str] | None = None  # when somebody found its machine lost, and to what
    last_step_end_ns: int = 0
    proven: int = 0  # its last step, which nobody saw end: a later attempt resumed behind it
    told: AttemptFact | None = None
    told_open: Open = ((), None)

    def start_ns(self) -> int | None:
        """When it was launched, or else when its first journal was made, or else its record."""
        if self.started_ns is not None:
            return self.started_ns
        first_ns = (s.first_ns for s in self.sources if s.first_ns is not None)
        return min(first_ns, default=self.stillborn_ns)

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
        return spans, None if step is not None and step.step == self.proven else step


class Attempts:
    """The attempts of a run, each made when it is first heard of."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the attempts' records."""
        self._folder = folder
        self._attempts: dict[int, Attempt] = {}

    @property
    def newest(self) -> int:
        """Its number; 0 when there is none."""
        return max(self._attempts, default=0)

    def of(self, number: int) -> Attempt:
        """The attempt of that number."""
        return self._attempts.setdefault(number, Attempt(number))

    def before(self, attempt: Attempt) -> Attempt | None:
        """The one before it, if it was heard of."""
        return self._attempts.get(attempt.number - 1)

    def typical_before(self, attempt: Attempt) -> int:
        """How long a step took in the attempt before, in ns; 0: nobody knows."""
        told = (self.before(attempt) or attempt).first_step.told
        return told.typical_ns if told is not None else 0

    def completed_by(self, restore: RestoreFact) -> tuple[Attempt, Rows] | None:
        """A step that was under way when its attempt ended, and was restored: it was completed.

        Whoever saved it did not live to say so. It took as long as others did there, or less.
        """
        donor = None if restore.source is None else self._attempts.get(restore.source)
        if donor is None or donor.told is None or donor.told.end_ns is None:
            return None
        step = donor.steps.under_way()
        if step is None or step.step != restore.step or donor.proven:
            return None
        first = donor.first_step.told
        typical_ns = first.typical_ns if first is not None else 0
        end_ns = min(step.start_ns + typical_ns, max(restore.start_ns, step.start_ns))
        donor.proven = step.step
        donor.last_step_end_ns = end_ns
        donor.told = replace(donor.told, end_ns=max(donor.told.end_ns, end_ns))
        donor.told_open = donor.told_open[0], None
        columns = (np.array([value], np.int64) for value in (step.step, step.start_ns, end_ns))
        return donor, Rows(*columns)

    def told(self) -> list[AttemptFact]:
        """What the sink knows of each."""
        return [one.told for one in self._attempts.values() if one.told is not None]

    def still_read(self) -> Iterator[tuple[Attempt, int | None]]:
        """Attempts whose journals may have grown, and when the next one started."""
        found: list[tuple[Attempt, int | None]] = []
        newest = self.newest
        next_ns: int | None = None
        for number in sorted(self._attempts, reverse=True):
            attempt = self._attempts[number]
            if attempt.told is None or number >= newest - 1:
                self._note_stillborn(attempt, is_newest=number == newest)
                found.append((attempt, next_ns))
            start_ns = self._start_ns(attempt)
            next_ns = next_ns if start_ns is None else start_ns
        return reversed(found)

    def _start_ns(self, attempt: Attempt) -> int | None:
        """When an attempt began: not while the one before it ran, though its ranks may have."""
        start_ns, before = attempt.start_ns(), self.before(attempt)
        if start_ns is None or before is None or before.ended_ns is None:
            return start_ns
        return start_ns if attempt.started_ns is not None else max(start_ns, before.ended_ns)

    def _note_stillborn(self, attempt: Attempt, *, is_newest: bool) -> None:
        """An attempt that left no journal was over before its first process could say anything.

        Its record is all there is. The newest may yet be launched, while it has no end.
        """
        if attempt.start_ns() is None:
            folder = self._folder / f"{attempt.number:04d}"
            created_ns, cause = launched_and_ended(folder, attempt.number)
            if cause is not None or not is_newest:
                attempt.stillborn_ns, attempt.cause = created_ns, cause

    def fact(
        self, attempt: Attempt, next_ns: int | None, seen_ns: Sequence[int]
    ) -> AttemptFact | None:
        """When it began and ended, and of what; None while it is about to be launched.

        `next_ns`: when the next one began. `seen_ns`: the run's signs of life, in their order.
        """
        start_ns = self._start_ns(attempt)
        if start_ns is None:
            return None
        if attempt.start_ns() == attempt.stillborn_ns:
            known = attempt.cause or _lost_to(attempt)
            return AttemptFact(attempt.number, start_ns, start_ns, known)
        if attempt.ended_ns is not None:
            # All processes were gone then; a step ends later only by another host's clock.
            end_ns = max(start_ns, attempt.ended_ns, attempt.last_step_end_ns)
            cause = attempt.cause
        elif (over_ns := _over_ns(attempt, next_ns)) is not None:
            seen = bisect_right(seen_ns, over_ns)
            alive_ns = max(attempt.alive_ns(), seen_ns[seen - 1] if seen else 0)
            proven_ns = attempt.last_step_end_ns if attempt.proven else 0
            end_ns = max(start_ns, min(alive_ns, over_ns), proven_ns)
            cause = _lost_to(attempt)
        else:
            return AttemptFact(attempt.number, start_ns, None, None)
        if next_ns is not None:
            end_ns = max(start_ns, min(end_ns, next_ns))
        return AttemptFact(attempt.number, start_ns, end_ns, cause)


def _lost_to(attempt: Attempt) -> str:
    return SUPERVISOR_LOST if attempt.lost is None else attempt.lost[1]


def _over_ns(attempt: Attempt, next_ns: int | None) -> int | None:
    """When an attempt that has no end was over at the latest; None: it may still run."""
    lost_ns = None if attempt.lost is None else attempt.lost[0]
    return min((at_ns for at_ns in (next_ns, lost_ns) if at_ns is not None), default=None)
