"""The oracle's state: every rank's view in a tuple, looked through at every event."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.save.agree_moves import AgreementPhase, HoldState
from holdfast.core.save.events import StopDue

_made = tuple.__new__


class RankView(NamedTuple):
    """What the controller knows of a rank. `answer`: the step it copied for the current epoch."""

    step: int = 0
    ended: bool = False
    gone: bool = False
    answer: int | None = None
    durable: bool = False

    # What nearly every event does is spelled out: `_replace` takes three times as long.

    def at(self, step: int) -> RankView:
        """It has published that boundary."""
        return RankView(step, self.ended, self.gone, self.answer, self.durable)

    def written(self, step: int) -> RankView:
        """That step, which it has copied for the current epoch, is durable."""
        return RankView(self.step, self.ended, self.gone, step, True)


class Agreement(NamedTuple):
    """The whole state. `step` is the ordered step, and from WRITING on the agreed one.

    `committed_step` is the newest durable step. `free_buffers` are those that an order given now
    may name, the best first; whoever calls `core.save.agree.step` sets them.
    """

    phase: AgreementPhase
    ranks: tuple[RankView, ...]
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
    hold: HoldState = HoldState()

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
        views = (RankView(step),) * ranks
        return cls(AgreementPhase.IDLE, views, committed_step, epoch, hold=HoldState(hold_ns))

    # As above, in the order of the fields.

    def with_ranks(self, ranks: tuple[RankView, ...]) -> Agreement:
        """That is known of them now."""
        return _made(Agreement, (self.phase, ranks, *self[2:]))

    def at(self, phase: AgreementPhase) -> Agreement:
        """It stands there now."""
        return _made(Agreement, (phase, *self[1:]))

    def at_rest(self, committed_step: int, tries: int) -> Agreement:
        """Nothing is under way any more."""
        return Agreement(
            AgreementPhase.IDLE,
            self.ranks,
            committed_step,
            self.epoch,
            self.step,
            False,
            self.is_early,
            self.stop,
            self.why,
            self.lead,
            self.misses,
            tries,
            None,
            self.free_buffers,
            self.buffer,
            self.in_memory,
            self.hold if self.hold.again_ns is None else self.hold._replace(again_ns=None),
        )

    @property
    def fastest_step(self) -> int:
        """The largest boundary any rank is known to have published."""
        return max([rank.step for rank in self.ranks])

    @property
    def slowest_step(self) -> int:
        """The largest boundary that all ranks are known to have published."""
        return min([rank.step for rank in self.ranks])

    @property
    def is_far(self) -> bool:
        """Whether a save is ordered of a step that no rank is in yet, and none has answered."""
        return (
            self.phase is AgreementPhase.COLLECTING
            and not self.is_stop
            and self.step > self.fastest_step + 1
            and all(rank.answer is None and not rank.ended for rank in self.ranks)
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
        return self.fastest_step <= self.committed_step
