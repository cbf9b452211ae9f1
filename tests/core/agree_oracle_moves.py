"""The oracle's moves: each gives the agreement as it stands next, and what is to be done."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from holdfast.core.save.agree_moves import (
    EARLY_PATIENCE,
    FIRST_AGAIN_NS,
    LAST_AGAIN_NS,
    MAX_LEAD,
    MAX_SAVE_TRIES,
    AgreementPhase,
    HoldState,
)
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
from holdfast.core.save.word import MAX_EPOCH, Order, with_buffer

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from agree_oracle_state import Agreement, RankView

sys.path.pop(0)

Result = tuple[Agreement, tuple[Action, ...]]


# --- orders, and what the ranks' answers to them come to -----------------------------------------


def order(
    state: Agreement,
    why: str,
    is_stop: bool,
    *,
    in_memory: bool = False,
    lead: int | None = None,
) -> Result:
    """Order a step that no rank is known to have reached, later than any ordered before.

    `lead` is a new request's, whose tries and misses count from 0; None: it is the last one's.
    What could not be written once is not tried through memory again: the ranks write it.
    """
    if uneven := uneven_end(state):
        return leave(state, uneven)
    tries, misses = (state.tries, state.misses) if lead is None else (0, 0)
    lead = state.lead if lead is None else lead
    buffer = state.free_buffers[0] if state.free_buffers and not tries else None
    ordered = Agreement(  # in the order of the fields: `_replace` takes three times as long
        AgreementPhase.COLLECTING,
        tuple([_asked_anew(rank) for rank in state.ranks]),
        state.committed_step,
        _after(state.epoch),
        max(state.step, state.fastest_step) + min(lead << max(0, misses - 1), MAX_LEAD),
        is_stop,
        state.is_early,
        state.stop,
        why,
        lead,
        misses,
        tries,
        None,
        state.free_buffers,
        buffer,
        in_memory,
        state.hold,
    )
    flags = 0
    if is_stop:
        flags = Order.STOP | Order.EARLY if state.is_early else int(Order.STOP)
    if buffer is not None:
        flags = with_buffer(flags if in_memory else flags | Order.DURABLE, buffer)
    return ordered, (PublishOrder(ordered.epoch, ordered.step, flags, why),)


def uneven_end(state: Agreement) -> str:
    """Whether a rank has ended its loop at a step which another one is past."""
    first = min((rank.step for rank in state.ranks if rank.ended), default=state.fastest_step)
    last = state.fastest_step
    if first == last:
        return ""
    return f"a rank ended its training at step {first}, and another one has done step {last}"


def judge(state: Agreement, at_ns: int) -> Result:
    """Have all answered alike, has one missed S, does one keep others waiting at it."""
    if uneven := uneven_end(state):
        return leave(state, uneven)
    answers = [rank.answer for rank in state.ranks if rank.answer is not None]
    if len(answers) == len(state.ranks):
        if min(answers) != max(answers):
            why = f"ranks answered with steps {min(answers)} and {max(answers)}"
            return miss(state._replace(is_early=False), why)
        if state.step != answers[0] or state.late_since_ns is not None:
            state = state._replace(step=answers[0], late_since_ns=None)
        return agreed(state, at_ns)
    for number, rank in enumerate(state.ranks):
        if rank.answer is None and rank.step > state.step:
            return miss(state, f"rank {number} was past step {state.step} already")
    # A rank that missed S moves on to S + 1 and so proves it, unless it needs one that waits at S,
    # or one that has answered before S. One that has ended its loop answers in any case.
    early = is_early_answered(state)
    blocked = (
        state.is_stop
        and bool(answers)
        and any(
            r.answer is None and not r.ended and (early or r.step == state.step)
            for r in state.ranks
        )
    )
    if blocked == (state.late_since_ns is not None):
        return state, ()
    return state._replace(late_since_ns=at_ns if blocked else None), ()


def agreed(state: Agreement, at_ns: int) -> Result:
    """Every rank has copied the same step."""
    if state.buffer is None:
        return written(state)
    seal = SealBuffer(state.epoch, state.step, state.buffer)
    others = tuple(b for b in state.free_buffers if b != state.buffer)
    state = state._replace(free_buffers=others)
    is_last = all(rank.ended for rank in state.ranks) and state.fastest_step == state.step
    if not state.in_memory or is_last:  # nothing comes after the last step: it must be durable
        return state._replace(phase=AgreementPhase.WRITING, in_memory=False), (seal,)
    state, actions = rest(state, at_ns)
    return state, (seal, *actions)


def miss(state: Agreement, reason: str) -> Result:
    """Some rank did not get the order in time: a later step, under a new epoch."""
    state, aborted = call_off(state._replace(misses=state.misses + 1), reason)
    state, actions = order(state, state.why, state.is_stop, in_memory=state.in_memory)
    return state, (*aborted, *actions)


def written(state: Agreement) -> Result:
    """Every rank has copied: all shards are durable, or some are still being written."""
    for rank in state.ranks:
        if not rank.durable:
            return state.at(AgreementPhase.WRITING), ()
    return state.at(AgreementPhase.COMMITTING), (Commit(state.epoch, state.step),)


# --- the ways on and out -------------------------------------------------------------------------


def fail(state: Agreement, at_ns: int, reason: str, *, is_sealed: bool = False) -> Result:
    """Saving itself failed. Training goes on; what is the last chance is tried once more.

    The last step is then held. If it is sealed in memory, nobody needs the ranks for that.
    """
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    state, aborted = call_off(state._replace(tries=state.tries + 1), reason)
    answers = [rank.answer for rank in state.ranks if rank.answer is not None]
    aborted = (*aborted, MakeRoom(min(answers, default=state.step)))
    has_ended = all(rank.ended for rank in state.ranks) and not state.in_memory
    if not state.is_stop and not has_ended:
        state, actions = rest(state, at_ns)
        return state, (*aborted, verdict, *actions)
    if any(rank.gone for rank in state.ranks):
        state, actions = leave(state, reason)
    elif is_sealed and not state.is_stop and state.step == state.fastest_step:
        why = f"step {state.step} is in memory, and not yet durable: {reason}"
        state, actions = end(state, why), (LetRanksLeave(at_ns, state.step, reason),)
    elif state.tries < MAX_SAVE_TRIES:
        state, actions = order(state, state.why, state.is_stop)
    elif state.is_stop:
        state, actions = leave(state, reason)
    else:
        state, actions = hold(state, at_ns, reason)
    return state, (*aborted, *actions)


def hold(state: Agreement, at_ns: int, reason: str) -> Result:
    """The last step waits for a store that can take it, and the ranks with it."""
    limit_ns, since_ns, _ = state.hold
    until_ns = (at_ns if since_ns is None else since_ns) + limit_ns
    if at_ns >= until_ns:
        return leave(state, reason)
    delay_ns = min(FIRST_AGAIN_NS << min(state.tries - MAX_SAVE_TRIES, 6), LAST_AGAIN_NS)
    held = HoldState(limit_ns, until_ns - limit_ns, min(at_ns + delay_ns, until_ns))
    step, state = state.fastest_step, state.at_rest(state.committed_step, state.tries)
    return state._replace(hold=held), (Hold(at_ns, step, reason, until_ns),)


def rest(state: Agreement, at_ns: int, *, committed_step: int | None = None) -> Result:
    """Nothing is under way: do what waited, or the last save of a loop that has ended, or rest.

    `committed_step`: that step has become durable, so that nothing is tried again.
    """
    if committed_step is None:
        state = state.at_rest(state.committed_step, state.tries)
    else:
        state = state.at_rest(committed_step, 0)
    have_ended = True
    for number, rank in enumerate(state.ranks):
        if rank.gone:
            return end(state, f"rank {number} is gone"), ()
        have_ended = have_ended and rank.ended
    if state.stop is not None:
        return stop(state, replace(state.stop, at_ns=at_ns))
    if have_ended and not state.is_saved:
        return order(state, "the last step", is_stop=False, lead=1)
    return state, ()


def stop(state: Agreement, event: StopDue) -> Result:
    """Begin the stop's own save, if there is something to save and time to do it."""
    state = state._replace(stop=event, is_early=True)
    if event.leave_by_ns is not None and event.leave_by_ns <= event.at_ns:
        return leave(state, "the deadline is at hand")
    if state.is_saved:
        return leave(state, nothing_new(state))
    return order(state, event.why, is_stop=True, lead=event.lead)


def call_off(state: Agreement, reason: str) -> Result:
    """Nothing will come of what is under way, if anything is."""
    if state.phase in (AgreementPhase.IDLE, AgreementPhase.OVER):
        return state, ()
    return state.at(AgreementPhase.IDLE), (Abort(state.epoch, state.step, reason),)


def leave(state: Agreement, reason: str) -> Result:
    """Give up what is under way, and tell the ranks to leave with the newest complete set."""
    state, aborted = call_off(state, reason)
    state = end(state._replace(epoch=_after(state.epoch)), reason)
    return state, (
        *aborted,
        PublishOrder(state.epoch, state.committed_step, Order.LEAVE, reason),
    )


def end(state: Agreement, reason: str) -> Agreement:
    """No more saves in this attempt."""
    return state._replace(phase=AgreementPhase.OVER, is_stop=False, late_since_ns=None, why=reason)


def nothing_new(state: Agreement) -> str:
    """Why nothing is to be saved, in words."""
    return f"no step completed since the save of step {state.committed_step}"


# --- what is known -------------------------------------------------------------------------------


def with_rank(state: Agreement, number: int, rank: RankView) -> Agreement:
    """What is known of one rank by now."""
    return state.with_ranks((*state.ranks[:number], rank, *state.ranks[number + 1 :]))


def without(state: Agreement, number: int) -> Agreement:
    """One rank is gone."""
    return with_rank(state, number, state.ranks[number]._replace(gone=True))


def is_early_answered(state: Agreement) -> bool:
    """Whether a rank has answered between two steps, before S."""
    return any(
        rank.answer is not None and not rank.ended and rank.answer < state.step
        for rank in state.ranks
    )


def answer_limit_ns(state: Agreement) -> int:
    """How long ranks may keep others waiting at the ordered step."""
    limit_ns = state.stop.answer_limit_ns if state.stop else DEFAULT_ANSWER_LIMIT_NS
    if is_early_answered(state):
        limit_ns *= EARLY_PATIENCE
    return limit_ns << min(state.misses, 6)  # a copy may really take that long


def _asked_anew(rank: RankView) -> RankView:
    """Its answer to an earlier order says nothing of the next one."""
    is_new = rank.answer is None and not rank.durable
    return rank if is_new else rank._replace(answer=None, durable=False)


def _after(epoch: int) -> int:
    return epoch % MAX_EPOCH + 1  # 16 bits that wrap; 0 means "no order"
