"""The controller's side of an agreed save: what it remembers between two events, and its moves.

The answers to events (`core.save.agree`) are made of the moves. Each moves the agreement on to
where it stands next, and says what is to be done for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.save.events import (
    DEFAULT_ANSWER_LIMIT_NS,
    Abort,
    Action,
    Commit,
    Hold,
    LetRanksLeave,
    MakeRoom,
    PublishOrder,
    PublishVerdict,
    SealBuffer,
    StopDue,
)
from holdfast.core.save.ranks import Ranks
from holdfast.core.save.word import AGREED, MAX_EPOCH, Order, with_buffer

MAX_LEAD = 4096
EARLY_PATIENCE = 4  # times the answer limit: ranks come to where they can answer one by one
MAX_SAVE_TRIES = 2  # a stop's save is tried again once, and so is the last step's before it is held
TAKING_LIMIT_NS = 200_000_000  # from a boundary until the rank has taken its step
FIRST_AGAIN_NS, LAST_AGAIN_NS = 2_000_000_000, 30_000_000_000

Actions = tuple[Action, ...]


class AgreementPhase(StrEnum):
    """Where an agreement stands."""

    IDLE = "idle"
    COLLECTING = "collecting"  # ordered; not every rank has answered
    COPYING = "copying"  # every rank has taken the same step; not every copy is there
    WRITING = "writing"  # every rank has copied the same step; not every shard is durable
    COMMITTING = "committing"  # every shard is durable; the manifest is being written
    OVER = "over"  # the ranks were told to leave, or one is gone: no more saves


NOT_COPIED = (AgreementPhase.COLLECTING, AgreementPhase.COPYING)
NOT_COMMITTED = (AgreementPhase.WRITING, AgreementPhase.COMMITTING)


class HoldState(NamedTuple):
    """How long the last step, which could not be saved, is held for; times of the hold so far."""

    limit_ns: int = 0  # 0: not at all
    since_ns: int | None = None
    again_ns: int | None = None  # nothing is under way: it is tried again then


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
    waits: bool = False  # ranks wait at the current epoch's step until all have taken it
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

    @property
    def fastest_step(self) -> int:
        """The largest boundary any rank is known to have published."""
        return self.ranks.extremes.greatest

    @property
    def ordered_step(self) -> int:
        """The step that the ranks have an order to make durable, still unanswered; 0: none."""
        is_open = self.phase in (*NOT_COPIED, *NOT_COMMITTED) and not self.in_memory
        return self.step if is_open else 0

    @property
    def is_active(self) -> bool:
        """Whether an order is out: the edges look at the ranks' words more often then."""
        if self.ranks.ended:
            return not self.is_held
        if self.phase in NOT_COPIED:
            return not self.in_memory  # else nobody waits, and the ranks ring when they have copied
        return self.is_writing

    @property
    def is_writing(self) -> bool:
        """Whether a set was copied and is on its way to the store."""
        return self.phase in NOT_COMMITTED

    @property
    def is_over(self) -> bool:
        """Whether the ranks have been told that they may leave."""
        return self.phase is AgreementPhase.OVER

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
            and self.step > self.fastest_step + 1
            and not (ranks.answers or ranks.ended)
        )

    @property
    def uneven_end(self) -> str:
        """In words, that a rank has ended its loop at a step which another one is past; or ""."""
        first, last = self.ranks.first_end, self.ranks.extremes.greatest
        if first is None or first == last:
            return ""
        return f"a rank ended its training at step {first}, and another one has done step {last}"

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
        return self.ranks.extremes.greatest <= self.committed_step


# --- orders, and what the ranks' answers to them come to -----------------------------------------


def order(
    state: Agreement,
    why: str,
    is_stop: bool,
    *,
    in_memory: bool = False,
    lead: int | None = None,
) -> Actions:
    """Order a step that no rank is known to have reached, later than any ordered before.

    `lead` is a new request's, whose tries and misses count from 0; None: it is the last one's.
    What could not be written once is not tried through memory again: the ranks write it. A buffer
    that a rank still copies into is not named: see `open_buffers`.
    """
    ranks = state.ranks
    if state.uneven_end:
        return leave(state, state.uneven_end)
    if lead is not None:
        state.lead, state.tries, state.misses = lead, 0, 0
    state.phase = AgreementPhase.COLLECTING
    state.epoch = _after(state.epoch)
    ahead = min(state.lead << max(0, state.misses - 1), MAX_LEAD)
    state.step = max(state.step, state.fastest_step) + ahead
    state.is_stop, state.in_memory, state.why = is_stop, in_memory, why
    state.late_since_ns, state.waits = None, False
    open_buffers = state.open_buffers
    state.buffer = open_buffers[0] if open_buffers and not state.tries else None
    ranks.ask(state.step)
    flags = 0
    if is_stop:
        flags = Order.STOP | Order.EARLY if state.is_early else int(Order.STOP)
    if state.buffer is not None:
        flags = with_buffer(flags if in_memory else flags | Order.DURABLE, state.buffer)
    return (PublishOrder(state.epoch, state.step, flags, why),)


def judge(state: Agreement, rank: int, at_ns: int) -> Actions:
    """Have all answered alike, has this one missed S, does one keep others waiting at it.

    Of the others that was asked when they were heard: none that has not answered is past S.
    """
    ranks = state.ranks
    if state.uneven_end:  # who has ended may have left
        return leave(state, state.uneven_end)
    if ranks.have_answered:
        return _all_answered(state, at_ns)
    if ranks.steps[rank] > state.step and rank not in ranks.answers:
        return miss(state, at_ns, f"rank {rank} was past step {state.step} already")
    # A rank that missed S moves on to S + 1 and so proves it, unless it needs one that waits at S,
    # or one that has answered before S. One that has ended its loop answers in any case.
    is_waited = state.is_stop or state.waits
    blocked = is_waited and bool(ranks.answers) and ranks.is_one_late
    if blocked != (state.late_since_ns is not None):
        state.late_since_ns = at_ns if blocked else None
    return ()


def _all_answered(state: Agreement, at_ns: int) -> Actions:
    answers = state.ranks.answers.values()
    first, last = min(answers), max(answers)
    if first != last:
        state.is_early = False
        return miss(state, at_ns, f"ranks answered with steps {first} and {last}")
    state.step, state.late_since_ns = first, None
    return taken(state, at_ns)


def taken(state: Agreement, at_ns: int) -> Actions:
    """Every rank has taken the same step: all copies are there, or some are still under way.

    Those that wait for one another hear that they may begin.
    """
    if state.ranks.have_copied:
        return agreed(state, at_ns)
    is_news = state.phase is AgreementPhase.COLLECTING
    state.phase = AgreementPhase.COPYING
    if not (is_news and state.waits):
        return ()
    words = f"all ranks have taken step {state.step}"
    return (PublishVerdict(state.epoch, state.step, AGREED, words),)


def agreed(state: Agreement, at_ns: int) -> Actions:
    """Every rank has copied the same step."""
    if state.buffer is None:
        return written(state)
    seal = SealBuffer(state.epoch, state.step, state.buffer)
    state.free_buffers = tuple(b for b in state.free_buffers if b != state.buffer)
    is_last = state.ranks.have_ended and state.fastest_step == state.step
    if not state.in_memory or is_last:  # nothing comes after the last step: it must be durable
        state.phase, state.in_memory = AgreementPhase.WRITING, False
        return (seal,)
    return (seal, *rest(state, at_ns))


def miss(state: Agreement, at_ns: int, reason: str) -> Actions:
    """Some rank did not get the order in time: a later step, under a new epoch.

    Where ranks still copy into the only buffer, a save to memory is left until it is due again.
    """
    state.misses += 1
    aborted = call_off(state, reason)
    if state.in_memory and state.free_buffers and not state.open_buffers:
        return (*aborted, *rest(state, at_ns))
    return (*aborted, *order(state, state.why, state.is_stop, in_memory=state.in_memory))


def written(state: Agreement) -> Actions:
    """Every rank has copied: all shards are durable, or some are still being written."""
    if not state.ranks.are_durable:
        state.phase = AgreementPhase.WRITING
        return ()
    state.phase = AgreementPhase.COMMITTING
    return (Commit(state.epoch, state.step),)


# --- the ways on and out -------------------------------------------------------------------------


def fail(state: Agreement, at_ns: int, reason: str, *, is_sealed: bool = False) -> Actions:
    """Saving itself failed. Training goes on; what is the last chance is tried once more.

    The last step is then held. If it is sealed in memory, nobody needs the ranks for that.
    """
    ranks = state.ranks
    state.tries += 1
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    room = MakeRoom(min(ranks.answers.values(), default=state.step))
    aborted = (*call_off(state, reason), room)
    if not state.is_stop and not (ranks.have_ended and not state.in_memory):
        return (*aborted, verdict, *rest(state, at_ns))
    return (*aborted, *_after_failure(state, at_ns, reason, is_sealed=is_sealed))


def _after_failure(state: Agreement, at_ns: int, reason: str, *, is_sealed: bool) -> Actions:
    """What comes of a stop's save, or of the last step's."""
    if state.ranks.gone:
        return leave(state, reason)
    if is_sealed and not state.is_stop and state.step == state.fastest_step:
        end(state, f"step {state.step} is in memory, and not yet durable: {reason}")
        return (LetRanksLeave(at_ns, state.step, reason),)
    if state.tries < MAX_SAVE_TRIES:
        return order(state, state.why, state.is_stop)
    return leave(state, reason) if state.is_stop else hold(state, at_ns, reason)


def hold(state: Agreement, at_ns: int, reason: str) -> Actions:
    """The last step waits for a store that can take it, and the ranks with it."""
    limit_ns, since_ns, _ = state.hold
    until_ns = (at_ns if since_ns is None else since_ns) + limit_ns
    if at_ns >= until_ns:
        return leave(state, reason)
    delay_ns = min(FIRST_AGAIN_NS << min(state.tries - MAX_SAVE_TRIES, 6), LAST_AGAIN_NS)
    _to_rest(state)
    state.hold = HoldState(limit_ns, until_ns - limit_ns, min(at_ns + delay_ns, until_ns))
    return (Hold(at_ns, state.fastest_step, reason, until_ns),)


def rest(state: Agreement, at_ns: int) -> Actions:
    """Nothing is under way: do what waited, or the last save of a loop that has ended, or rest."""
    _to_rest(state)
    ranks = state.ranks
    if ranks.gone:
        end(state, f"rank {min(ranks.gone)} is gone")
        return ()
    if state.stop is not None:
        return stop(state, replace(state.stop, at_ns=at_ns))
    if ranks.have_ended and not state.is_saved:
        return order(state, "the last step", is_stop=False, lead=1)
    return ()


def _to_rest(state: Agreement) -> None:
    state.phase, state.is_stop, state.late_since_ns = AgreementPhase.IDLE, False, None
    if state.hold.again_ns is not None:
        state.hold = state.hold._replace(again_ns=None)


def stop(state: Agreement, event: StopDue) -> Actions:
    """Begin the stop's own save, if there is something to save and time to do it."""
    state.stop, state.is_early = event, True
    if event.leave_by_ns is not None and event.leave_by_ns <= event.at_ns:
        return leave(state, "the deadline is at hand")
    if state.is_saved:
        return leave(state, nothing_new(state))
    return order(state, event.why, is_stop=True, lead=event.lead)


def call_off(state: Agreement, reason: str) -> Actions:
    """Nothing will come of what is under way, if anything is."""
    if state.phase in (AgreementPhase.IDLE, AgreementPhase.OVER):
        return ()
    state.phase = AgreementPhase.IDLE
    return (Abort(state.epoch, state.step, reason),)


def leave(state: Agreement, reason: str) -> Actions:
    """Give up what is under way, and tell the ranks to leave with the newest complete set."""
    aborted = call_off(state, reason)
    state.epoch = _after(state.epoch)
    end(state, reason)
    return (*aborted, PublishOrder(state.epoch, state.committed_step, Order.LEAVE, reason))


def end(state: Agreement, reason: str) -> None:
    """No more saves in this attempt."""
    state.phase, state.is_stop, state.late_since_ns, state.why = (
        AgreementPhase.OVER,
        False,
        None,
        reason,
    )


def nothing_new(state: Agreement) -> str:
    """Why nothing is to be saved, in words."""
    return f"no step completed since the save of step {state.committed_step}"


def answer_limit_ns(state: Agreement) -> int:
    """How long ranks may keep others waiting at the ordered step."""
    limit_ns = DEFAULT_ANSWER_LIMIT_NS
    if state.waits:
        limit_ns = TAKING_LIMIT_NS
    elif state.stop:
        limit_ns = state.stop.answer_limit_ns
    if state.ranks.is_early_answered:
        limit_ns *= EARLY_PATIENCE
    return limit_ns << min(state.misses, 6)  # a copy may really take that long


def _after(epoch: int) -> int:
    return epoch % MAX_EPOCH + 1  # 16 bits that wrap; 0 means "no order"
