"""What the controller knows of the ranks of an agreed save: it reads one, and counts all.

What is asked of all ranks together is counted as they tell of themselves, so that news of one rank
costs the same among ten and among ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core.save.events import (
    Durable,
    Event,
    LoopEnded,
    Progress,
    SaveFailed,
    Snapped,
    Taken,
)
from holdfast.core.save.word import WAITS, Agreed, buffer_of

_NONE_YET = Agreed(0, 0, 0)


@dataclass(slots=True)
class Extremes:
    """The least and the greatest of a number that each rank has: it is counted how many have which.

    Ranks that train together are within a few steps of one another, so there are few numbers. The
    next least is looked for among them only when the last rank that had the least has moved on.
    """

    ranks: dict[int, int]  # by number: how many have it
    least: int
    greatest: int

    @classmethod
    def start(cls, number: int, ranks: int) -> Extremes:
        """All ranks have that number."""
        return cls({number: ranks}, number, number)

    def move(self, before: int, after: int) -> None:
        """A rank had the one and has the other now."""
        ranks = self.ranks
        ranks[after] = ranks.get(after, 0) + 1
        if after > self.greatest:
            self.greatest = after
        elif after < self.least:
            self.least = after
        left = ranks[before] - 1
        if left:
            ranks[before] = left
            return
        del ranks[before]
        if before == self.least:
            self.least = min(ranks)
        if before == self.greatest:
            self.greatest = max(ranks)


@dataclass(slots=True)
class Ranks:
    """What the controller knows of all ranks.

    `steps`: the last boundary that each has published. `ended`, `gone`: those of which that is
    known. Of the current epoch: the step S that is `ordered`; `answers`, the step that each has
    taken for it; `copied`, those whose copy is there, and `durable`, those whose copy is. The rest
    follows from these, and is kept so that nobody has to look through them: `settled` have answered
    or ended, `early` have answered before S and not ended, `late` are at S and have neither
    answered nor ended.

    `copying` outlives the epochs: the (epoch, buffer) that each rank is known to be copying into,
    and `writers`, how many copy into which buffer.
    """

    steps: list[int]
    extremes: Extremes  # of the steps
    ended: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    ordered: int = -1
    answers: dict[int, int] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)
    durable: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    copying: dict[int, tuple[int, int]] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)
    first_end: int | None = None  # the least step at which one's loop is over

    @classmethod
    def start(cls, ranks: int, step: int) -> Ranks:
        """All begin at that step."""
        return cls([step] * ranks, Extremes.start(step, ranks))

    def ask(self, ordered: int) -> None:
        """A step is ordered that no rank has reached: answers to earlier orders say nothing."""
        self.ordered = ordered
        self.answers, self.copied, self.durable = {}, set(), set()
        self.settled, self.early, self.late = set(self.ended), set(), set()

    # --- what one rank tells ----------------------------------------------------------------

    def at(self, rank: int, step: int) -> None:
        """The rank has published that boundary."""
        before = self.steps[rank]
        if step == before:
            return
        self.steps[rank] = step
        self.extremes.move(before, step)
        if rank in self.ended:  # it had answered with its last step before that was read
            self.first_end = min(self.steps[one] for one in sorted(self.ended))
        if step == self.ordered and rank not in self.settled:
            self.late.add(rank)
        elif self.late:
            self.late.discard(rank)

    def end(self, rank: int) -> None:
        """The rank's loop is over."""
        self.ended.add(rank)
        step = self.steps[rank]
        self.first_end = step if self.first_end is None else min(self.first_end, step)
        self.settled.add(rank)
        self.early.discard(rank)
        self.late.discard(rank)

    def answer(self, rank: int, step: int) -> None:
        """The rank has taken that step for the current epoch."""
        self.answers[rank] = step
        self.settled.add(rank)
        self.late.discard(rank)
        if step < self.ordered and rank not in self.ended:
            self.early.add(rank)
        else:
            self.early.discard(rank)

    def lose(self, rank: int) -> None:
        """The rank is gone, and copies no more."""
        self.gone.add(rank)
        self._end_copy(rank)

    def begin_copy(self, rank: int, epoch: int, buffer: int | None) -> None:
        """It copies for that epoch, which may be over; the copy before is."""
        self._end_copy(rank)
        if buffer is not None and rank not in self.gone:
            self.copying[rank] = epoch, buffer
            self.writers[buffer] = self.writers.get(buffer, 0) + 1

    def end_copy(self, rank: int, epoch: int) -> None:
        """Its copy for that epoch is there, or will never be."""
        if self.copying and self.copying.get(rank, (0, 0))[0] == epoch:
            self._end_copy(rank)

    def _end_copy(self, rank: int) -> None:
        _, buffer = self.copying.pop(rank, (0, None))
        if buffer is not None:
            self.writers[buffer] -= 1
            if not self.writers[buffer]:
                del self.writers[buffer]

    # --- what is known of all ---------------------------------------------------------------

    def unwritten(self, buffers: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the buffers that no rank is known to copy into."""
        if not self.writers:
            return buffers
        return tuple(buffer for buffer in buffers if buffer not in self.writers)

    @property
    def have_ended(self) -> bool:
        """Whether every rank's loop is over."""
        return len(self.ended) == len(self.steps)

    @property
    def have_answered(self) -> bool:
        """Whether every rank has taken a step for the current epoch."""
        return len(self.answers) == len(self.steps)

    @property
    def have_copied(self) -> bool:
        """Whether every rank's copy for the current epoch is there."""
        return len(self.copied) == len(self.steps)

    @property
    def are_durable(self) -> bool:
        """Whether every rank's copy is durable."""
        return len(self.durable) == len(self.steps)

    @property
    def is_early_answered(self) -> bool:
        """Whether a rank has answered between two steps, before S."""
        return bool(self.early)

    @property
    def is_one_late(self) -> bool:
        """Whether a rank keeps others waiting: it is at S, or they answered before S."""
        if self.early:
            return len(self.settled) < len(self.steps)
        return bool(self.late)


class RankAnswers(NamedTuple):
    """One reading of a rank's half of the word page.

    Load them in the order of the fields. The rank stores STEP = N before PHASE = LOOP_ENDED, so a
    loop that was seen to have ended shows its last step. It stores TAKEN = S before STEP = S + 1,
    so a step beyond S without TAKEN = S proves that S was missed. And it takes no step before its
    last copy is over, so a save in TAKEN that COPIED and FAILED do not name is being copied.
    """

    loop_ended: bool = False
    step: int = 0
    copied: Agreed = _NONE_YET
    durable: Agreed = _NONE_YET
    failed: Agreed = _NONE_YET
    taken: Agreed = _NONE_YET  # with the flags of the order that it answers
    until: int = 0  # of a loop that ended: the last step that the script wanted

    @property
    def is_copying(self) -> bool:
        """Whether the copy that the rank took is still under way."""
        taken = self.taken.save
        return self.taken.epoch != 0 and taken not in (self.copied.save, self.failed.save)


def changes(at_ns: int, rank: int, before: RankAnswers, now: RankAnswers) -> tuple[Event, ...]:
    """The events between two readings of a rank's words, answers before progress.

    What was taken and is copied by now is told once: a copy that is there was taken. A copy that is
    under way is told first: its buffer must not be named in answer to the rest.
    """
    events: list[Event] = []
    if now.taken != before.taken and now.is_copying:
        epoch, flags, step = now.taken
        events.append(Taken(at_ns, rank, epoch, step, buffer_of(flags), bool(flags & WAITS)))
    if now.copied != before.copied:
        events.append(Snapped(at_ns, rank, now.copied.epoch, now.copied.step))
    if now.durable != before.durable:
        events.append(Durable(at_ns, rank, now.durable.epoch, now.durable.step))
    if now.failed != before.failed:
        events.append(SaveFailed(at_ns, rank, now.failed.epoch, now.failed.step))
    if now.loop_ended and not before.loop_ended:
        events.append(LoopEnded(at_ns, rank, now.step, now.until))
    elif now.step != before.step:
        events.append(Progress(at_ns, rank, now.step))
    return tuple(events)
