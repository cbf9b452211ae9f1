"""What the controller's side of an agreed save remembers between two events (`core.save.agree`).

It changes with each event. What is asked of all ranks together is counted as they tell of
themselves, so that news of one rank costs the same among ten and among ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.save.agree_events import StopDue


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
        """All have that one."""
        return cls({number: ranks}, number, number)

    def copy(self) -> Extremes:
        """The same, to go on from apart."""
        return Extremes(dict(self.ranks), self.least, self.greatest)

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


class AgreementPhase(StrEnum):
    """Where an agreement stands."""

    IDLE = "idle"
    COLLECTING = "collecting"  # ordered; not every rank has answered
    COPYING = "copying"  # every rank has taken the same step; not every copy is there
    WRITING = "writing"  # every rank has copied the same step; not every shard is durable
    COMMITTING = "committing"  # every shard is durable; the manifest is being written
    OVER = "over"  # the ranks were told to leave, or one is gone: no more saves


class HoldState(NamedTuple):
    """How long the last step, which could not be saved, is held for; times of the hold so far."""

    limit_ns: int = 0  # 0: not at all
    since_ns: int | None = None
    again_ns: int | None = None  # nothing is under way: it is tried again then


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

    @classmethod
    def start(cls, ranks: int, step: int) -> Ranks:
        """All begin at that step."""
        return cls([step] * ranks, Extremes.start(step, ranks))

    def copy(self) -> Ranks:
        """The same, to go on from apart."""
        return Ranks(  # in the order of the fields
            list(self.steps),
            self.extremes.copy(),
            set(self.ended),
            set(self.gone),
            self.ordered,
            dict(self.answers),
            set(self.copied),
            set(self.durable),
            set(self.settled),
            set(self.early),
            set(self.late),
            dict(self.copying),
            dict(self.writers),
        )

    def ask(self, ordered: int) -> None:
        """A step is ordered that no rank has reached: answers to earlier orders say nothing."""
        self.ordered = ordered
        self.answers, self.copied, self.durable = {}, set(), set()
        self.settled, self.early, self.late = set(self.ended), set(), set()

    # --- what one rank tells ----------------------------------------------------------------

    def at(self, rank: int, step: int) -> None:
        """It has published that boundary."""
        before = self.steps[rank]
        if step == before:
            return
        self.steps[rank] = step
        self.extremes.move(before, step)
        if step == self.ordered and rank not in self.settled:
            self.late.add(rank)
        elif self.late:
            self.late.discard(rank)

    def end(self, rank: int) -> None:
        """Its loop is over."""
        self.ended.add(rank)
        self.settled.add(rank)
        self.early.discard(rank)
        self.late.discard(rank)

    def answer(self, rank: int, step: int) -> None:
        """It has taken that step for the current epoch."""
        self.answers[rank] = step
        self.settled.add(rank)
        self.late.discard(rank)
        if step < self.ordered and rank not in self.ended:
            self.early.add(rank)
        else:
            self.early.discard(rank)

    def lose(self, rank: int) -> None:
        """It is gone, and copies no more."""
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
    def fastest_step(self) -> int:
        """The largest boundary any rank is known to have published."""
        return self.extremes.greatest

    @property
    def slowest_step(self) -> int:
        """The largest boundary that all ranks are known to have published."""
        return self.extremes.least

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


@dataclass(slots=True)
class Agreement:
    """The whole state. `step` is the ordered step, and from COPYING on the agreed one.

    `committed_step` is the newest durable step. `free_buffers` are those in which nothing is kept,
    the best first; whoever calls `core.save.agree.step` sets them.
    """

    phase: AgreementPhase
    ranks: Ranks
    committed_step: int
    epoch: int = 0
    step: int = 0
    is_stop: bool = False  # the current epoch's order says STOP
    is_early: bool = True  # a stop may be answered between two steps; tried once
    stop: StopDue | None = None  # the stop under way, or waiting for a save under way
    why: str = ""
    lead: int = 1
    misses: int = 0
    tries: int = 0
    late_since_ns: int | None = None  # a rank keeps others waiting at S since then
    free_buffers: tuple[int, ...] = ()
    buffer: int | None = None  # into which the current epoch's copies go
    in_memory: bool = False  # copies there are all that the current epoch is to bring
    hold: HoldState = field(default_factory=HoldState)

    @classmethod
    def start(
        cls,
        ranks: int,
        committed_step: int,
        epoch: int = 0,
        *,
        resumed_step: int | None = None,
        hold_ns: int = 0,
    ) -> Agreement:
        """An attempt begins. `committed_step`: the newest durable step, 0 for none.

        `resumed_step`: what it resumed from, if that was newer. `hold_ns`: how long its last step
        is held for if it cannot be saved.
        """
        step = committed_step if resumed_step is None else resumed_step
        known = Ranks.start(ranks, step)
        return cls(AgreementPhase.IDLE, known, committed_step, epoch, hold=HoldState(hold_ns))

    def copy(self) -> Agreement:
        """The same state, to go on from apart."""
        return replace(self, ranks=self.ranks.copy())

    @property
    def fastest_step(self) -> int:
        """The largest boundary any rank is known to have published."""
        return self.ranks.fastest_step

    @property
    def open_buffers(self) -> tuple[int, ...]:
        """The free buffers that an order given now may name: no rank is known to copy into them."""
        return self.ranks.unwritten(self.free_buffers)

    @property
    def is_far(self) -> bool:
        """Whether a save is ordered of a step that no rank is in yet, and none has answered."""
        ranks = self.ranks
        return (
            self.phase is AgreementPhase.COLLECTING
            and not self.is_stop
            and self.step > ranks.fastest_step + 1
            and not (ranks.answers or ranks.ended)
        )

    @property
    def is_held(self) -> bool:
        """Whether the last step waits for the next try to save it."""
        return (
            self.hold.again_ns is not None
            and self.phase is AgreementPhase.IDLE
            and not self.is_saved
        )

    @property
    def is_saved(self) -> bool:
        """Whether nothing that is known to be completed is missing from the newest set."""
        return self.ranks.fastest_step <= self.committed_step
