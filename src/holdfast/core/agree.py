"""The controller's side of an agreed save: one state, one table of transitions.

    state = Agreement.start(ranks=2, committed_step=0)
    state, actions = step(state, SaveAsked(now, "every 41 s"))

The controller orders a step S that no rank has passed. A rank that reaches boundary S copies its
state; that copy is its vote. All copied: the set is written, committed, and the verdict published.
A rank that missed S (it passed the boundary before the order reached it) makes the controller
order a later step under a new epoch. With a stop, ranks wait after their copy: nobody leaves
before the commit. docs/explanation/agreement.md tells why; tests/core/test_agree_exhaustive.py
checks every interleaving for two and three ranks.

Rules that the functions below rely on:
- An epoch's step and flags never change once published; an epoch that follows a stop's always has
  a larger step, so that a rank that waits for the old one goes on.
- An order may name a buffer of the memory tier (core.buffers): then what all ranks have copied is
  sealed and, if it must be durable, drained by others than they, who say how that went. A buffer
  that an order named is named again by the next, for as long as some rank may write into it.
- A snapshot counts for the epoch it names and for no other, so late news does no harm.
- A rank whose loop has ended answers any order with its last step, and one that is between two
  steps may answer a stop that says EARLY with the step it has done: a set may be of an earlier step
  than was ordered, but only if all ranks answered with that same step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.core.agree_events import (
    DEFAULT_ANSWER_LIMIT_NS,
    Abort,
    Action,
    Commit,
    CommitFailed,
    Committed,
    Durable,
    DurableBeside,
    Event,
    LoopEnded,
    NotWritten,
    Progress,
    PublishOrder,
    PublishVerdict,
    RankGone,
    Refuse,
    SaveAsked,
    SaveFailed,
    Seal,
    Snapped,
    StopAsked,
    Tick,
)
from holdfast.core.agree_state import Agreement as Agreement
from holdfast.core.agree_state import Phase as Phase
from holdfast.core.word import MAX_EPOCH, Order, with_buffer

MAX_LEAD = 4096
EARLY_PATIENCE = 4  # times the answer limit: ranks come to where they can answer one by one
MAX_SAVE_TRIES = 2  # a stop's or the final save is tried again once: a full disk stays full


def step(state: Agreement, event: Event) -> tuple[Agreement, tuple[Action, ...]]:
    """One transition: the new state, and what the edge does now, in this order."""
    return TABLE[type(event)][state.phase](state, event)


def wake_at_ns(state: Agreement) -> int | None:
    """When a Tick is due if nothing else happens; None: never."""
    due = []
    if state.phase in (Phase.COLLECTING, Phase.WRITING) and state.stop:
        if state.stop.leave_by_ns is not None:
            due.append(state.stop.leave_by_ns)
        if state.late_since_ns is not None:
            due.append(state.late_since_ns + _answer_limit_ns(state))
    return min(due, default=None)


def lead_steps(step_time_ns: int, reaction_ns: int) -> int:
    """How many boundaries ahead to order, so that the order gets there first.

    `reaction_ns`: from reading the ranks' progress to the order's being stored. 1 for steps that
    are longer than that: ordering later than the next boundary only delays the save.
    """
    return min(1 + reaction_ns // max(1, step_time_ns), MAX_LEAD)


_Result = tuple[Agreement, tuple[Action, ...]]


# --- requests ------------------------------------------------------------------------------------


def _save(state: Agreement, event: SaveAsked) -> _Result:
    if event.in_memory:
        if not state.free_buffers:
            return state, (Refuse("no buffer is free"),)
        state = replace(state, lead=event.lead, tries=0, misses=0)
        return _order(state, event.why, is_stop=False, in_memory=True)
    if state.is_saved:
        return state, (Refuse(f"no step completed since the save of step {state.committed_step}"),)
    return _order(replace(state, lead=event.lead, tries=0, misses=0), event.why, is_stop=False)


def _busy(state: Agreement, _: SaveAsked) -> _Result:
    return state, (Refuse(f"the save of step {state.step} is under way ({state.phase.value})"),)


def _save_instead(state: Agreement, event: SaveAsked) -> _Result:
    """Somebody wants a durable save, and a memory save is ordered: that one can wait."""
    if event.in_memory or not state.in_memory or state.is_saved:
        return _busy(state, event)
    state, aborted = _call_off(state, f"superseded by a save: {event.why}")
    state, actions = _save(replace(state, step=0), event)
    return state, (*aborted, *actions)


def _no_more(state: Agreement, _: SaveAsked) -> _Result:
    return state, (Refuse(f"no more saves in this attempt: {state.why}"),)


def _stop(state: Agreement, event: StopAsked) -> _Result:
    """Begin the stop's own save, if there is something to save and time to do it."""
    state = replace(state, stop=event, lead=event.lead, tries=0, misses=0, is_early=True)
    if event.leave_by_ns is not None and event.leave_by_ns <= event.at_ns:
        return _leave(state, "the deadline is at hand")
    if state.is_saved:
        return _leave(state, f"no step completed since the save of step {state.committed_step}")
    return _order(state, event.why, is_stop=True)


def _stop_instead(state: Agreement, event: StopAsked) -> _Result:
    """Turn a save that is not yet agreed into a stop: under a new epoch, never in place.

    In place, a rank that had read the order without STOP would go on into a step whose collective
    its peers, which read it with STOP, never enter. The new order may name an earlier step than the
    old one, which may have been ordered far ahead: nobody waits at that one, it was no stop.
    """
    if state.is_stop or all(rank.ended for rank in state.ranks):
        return _stop_later(state, event)
    state, aborted = _call_off(state, f"superseded by a stop: {event.why}")
    state, actions = _stop(replace(state, step=0), event)
    return state, (*aborted, *actions)


def _stop_later(state: Agreement, event: StopAsked) -> _Result:
    """Finish the save under way first: its copies are taken, so something good is soon durable.

    A stop that is under way only gets its deadline tightened: repeated requests (Slurm sends two)
    never cut a save short.
    """
    earlier = state.stop
    if earlier is None:
        return replace(state, stop=event), ()
    deadlines = [d for d in (earlier.leave_by_ns, event.leave_by_ns) if d is not None]
    return replace(state, stop=replace(earlier, leave_by_ns=min(deadlines, default=None))), ()


# --- what the ranks do ---------------------------------------------------------------------------


def _note(state: Agreement, event: Progress | LoopEnded) -> _Result:
    ended = isinstance(event, LoopEnded)
    return _with_rank(state, event.rank, step=event.step, **({"ended": True} if ended else {})), ()


def _note_end(state: Agreement, event: LoopEnded) -> _Result:
    return _rest(_note(state, event)[0], event.at_ns)


def _judge_note(state: Agreement, event: Progress | LoopEnded) -> _Result:
    return _judge(_note(state, event)[0], event.at_ns)


def _answered(state: Agreement, event: Snapped) -> _Result:
    rank = state.ranks[event.rank]
    if event.epoch != state.epoch or rank.answer is not None:
        return state, ()
    reached = max(rank.step, event.step)  # it stored STEP before SNAP
    state = _with_rank(state, event.rank, answer=event.step, step=reached)
    return _judge(state, event.at_ns)


def _durable(state: Agreement, event: Durable) -> _Result:
    """A durable shard implies its copy, whose own news may come later or never."""
    if event.epoch != state.epoch:
        return state, ()
    state = _with_rank(state, event.rank, answer=event.step, durable=True)
    if state.phase is Phase.COLLECTING:
        return _judge(state, event.at_ns)
    return _commit_if_complete(state)


def _save_failed(state: Agreement, event: SaveFailed) -> _Result:
    if event.epoch != state.epoch:
        return state, ()
    return _fail(state, event.at_ns, f"rank {event.rank} could not save step {event.step}")


def _gone_idle(state: Agreement, event: RankGone) -> _Result:
    return _end(_with_rank(state, event.rank, gone=True), f"rank {event.rank} is gone"), ()


def _gone(state: Agreement, event: RankGone) -> _Result:
    """A death aborts the agreement, unless that rank's part of an agreed set is already durable."""
    state = _with_rank(state, event.rank, gone=True)
    if state.phase is Phase.COMMITTING:
        return state, ()
    if state.phase is Phase.WRITING and (
        state.ranks[event.rank].durable or state.buffer is not None
    ):
        return state, ()  # what is in a buffer outlives the rank
    reason = f"rank {event.rank} is gone"
    if state.is_stop:
        return _leave(state, reason)
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    state, aborted = _call_off(state, reason)
    return _end(state, reason), (*aborted, verdict)


def _note_gone(state: Agreement, event: RankGone) -> _Result:
    return _with_rank(state, event.rank, gone=True), ()


# --- the commit, and time ------------------------------------------------------------------------


def _committed(state: Agreement, event: Committed) -> _Result:
    """The set is complete: say so, then do what waited for it.

    One that was copied into a buffer is committed by whoever drains it, while it is being written.
    """
    is_ours = state.phase is Phase.COMMITTING or state.buffer is not None
    if event.epoch != state.epoch or not is_ours:
        return _noted(state, event)
    flags = Order.COMMITTED | (Order.STOP if state.is_stop else Order(0))
    words = f"step {event.step} is durable on all ranks"
    verdict = PublishVerdict(state.epoch, event.step, flags, words)
    state = replace(state, committed_step=event.step, tries=0)
    if state.is_stop:
        return _end(state, words), (verdict,)
    state, actions = _rest(state, event.at_ns)
    return state, (verdict, *actions)


def _noted(state: Agreement, event: Committed | DurableBeside) -> _Result:
    return replace(state, committed_step=max(state.committed_step, event.step)), ()


def _noted_beside(state: Agreement, event: DurableBeside) -> _Result:
    """A stop that waits for a step which nobody has come to need not wait any longer."""
    state, _ = _noted(state, event)
    if state.is_stop and state.is_saved:  # an answer of a later step would have made it later
        return _leave(state, f"no step completed since the save of step {state.committed_step}")
    return state, ()


def _not_written(state: Agreement, event: NotWritten) -> _Result:
    if event.epoch != state.epoch or state.buffer is None:
        return state, ()
    return _fail(state, event.at_ns, event.why)


def _commit_failed(state: Agreement, event: CommitFailed) -> _Result:
    return _fail(state, event.at_ns, f"the manifest of step {event.step}: {event.why}")


def _tick(state: Agreement, event: Tick) -> _Result:
    stop = state.stop
    if stop is None:
        return state, ()
    if stop.leave_by_ns is not None and stop.leave_by_ns <= event.at_ns:
        return _leave(state, f"the deadline came before step {state.step} was durable")
    late_since_ns = state.late_since_ns
    if late_since_ns is not None and event.at_ns - late_since_ns >= _answer_limit_ns(state):
        why = f"a rank is at step {state.step} and has not copied it"
        if _is_early_answered(state):
            why = "a rank was between two steps, and another was not"
        return _miss(replace(state, is_early=False), why)
    return state, ()


def _ignore(state: Agreement, _: Event) -> _Result:
    return state, ()


_PHASES = tuple(Phase)  # IDLE, COLLECTING, WRITING, COMMITTING, OVER: the columns of the table


def _row(*handlers: Callable[[Agreement, Any], _Result]) -> dict[Phase, Callable[..., _Result]]:
    return dict(zip(_PHASES, handlers, strict=True))


# fmt: off
TABLE: dict[type[Event], dict[Phase, Callable[..., _Result]]] = {
    #                  IDLE        COLLECTING     WRITING       COMMITTING      OVER
    SaveAsked:    _row(_save,      _save_instead, _busy,        _busy,          _no_more),
    StopAsked:    _row(_stop,      _stop_instead, _stop_later,  _stop_later,    _ignore),
    Progress:     _row(_note,      _judge_note,   _note,        _note,          _note),
    LoopEnded:    _row(_note_end,  _judge_note,   _note,        _note,          _note),
    Snapped:      _row(_ignore,    _answered,     _ignore,      _ignore,        _ignore),
    Durable:      _row(_ignore,    _durable,      _durable,     _ignore,        _ignore),
    SaveFailed:   _row(_ignore,    _save_failed,  _save_failed, _ignore,        _ignore),
    RankGone:     _row(_gone_idle, _gone,         _gone,        _gone,          _note_gone),
    Committed:    _row(_noted,     _noted,        _committed,   _committed,     _noted),
    CommitFailed: _row(_ignore,    _ignore,       _ignore,      _commit_failed, _ignore),
    NotWritten:   _row(_ignore,    _ignore,       _not_written, _ignore,        _ignore),
    DurableBeside: _row(_noted,    _noted_beside, _noted,       _noted,         _noted),
    Tick:         _row(_ignore,    _tick,         _tick,        _ignore,        _ignore),
}
# fmt: on


# --- the moves -----------------------------------------------------------------------------------


def _order(state: Agreement, why: str, is_stop: bool, *, in_memory: bool = False) -> _Result:
    """Order a step that no rank is known to have reached, later than any ordered before.

    What could not be written once is not tried through memory again: the ranks write it.
    """
    ends = [rank.step for rank in state.ranks if rank.ended]
    if len(ends) == len(state.ranks) and min(ends) != max(ends):
        return _leave(state, f"the ranks' loops ended at different steps: {min(ends)}, {max(ends)}")
    lead = min(state.lead << max(0, state.misses - 1), MAX_LEAD)
    buffer = state.free_buffers[0] if state.free_buffers and not state.tries else None
    state = replace(
        state,
        phase=Phase.COLLECTING,
        ranks=tuple(replace(rank, answer=None, durable=False) for rank in state.ranks),
        epoch=_after(state.epoch),
        step=max(state.step, state.fastest_step) + lead,
        is_stop=is_stop,
        why=why,
        late_since_ns=None,
        buffer=buffer,
        in_memory=in_memory,
    )
    flags = int(Order.STOP if is_stop else Order(0))
    if is_stop and state.is_early:
        flags |= Order.EARLY
    if buffer is not None and not in_memory:
        flags |= Order.DURABLE
    return state, (PublishOrder(state.epoch, state.step, with_buffer(flags, buffer), why),)


def _judge(state: Agreement, at_ns: int) -> _Result:
    """Have all answered alike, has one missed S, does one keep others waiting at it."""
    answers = [rank.answer for rank in state.ranks if rank.answer is not None]
    if len(answers) == len(state.ranks):
        if min(answers) != max(answers):
            why = f"ranks answered with steps {min(answers)} and {max(answers)}"
            return _miss(replace(state, is_early=False), why)
        return _agreed(replace(state, step=answers[0], late_since_ns=None), at_ns)
    for number, rank in enumerate(state.ranks):
        if rank.answer is None and rank.step > state.step:
            return _miss(state, f"rank {number} was past step {state.step} already")
    # A rank that missed S moves on to S + 1 and so proves it, unless it needs one that waits at S,
    # or one that has answered before S. One that has ended its loop answers in any case.
    early = _is_early_answered(state)
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
    return replace(state, late_since_ns=at_ns if blocked else None), ()


def _agreed(state: Agreement, at_ns: int) -> _Result:
    """Every rank has copied the same step."""
    if state.buffer is None:
        return _commit_if_complete(replace(state, phase=Phase.WRITING))
    seal = Seal(state.epoch, state.step, state.buffer)
    rest = tuple(b for b in state.free_buffers if b != state.buffer)
    state = replace(state, free_buffers=rest)
    is_last = all(rank.ended for rank in state.ranks) and state.fastest_step == state.step
    if not state.in_memory or is_last:  # nothing comes after the last step: it must be durable
        return replace(state, phase=Phase.WRITING, in_memory=False), (seal,)
    state, actions = _rest(state, at_ns)
    return state, (seal, *actions)


def _is_early_answered(state: Agreement) -> bool:
    """Whether a rank has answered between two steps, before S."""
    return any(
        rank.answer is not None and not rank.ended and rank.answer < state.step
        for rank in state.ranks
    )


def _miss(state: Agreement, reason: str) -> _Result:
    """Some rank did not get the order in time: a later step, under a new epoch."""
    state, aborted = _call_off(replace(state, misses=state.misses + 1), reason)
    state, actions = _order(state, state.why, state.is_stop, in_memory=state.in_memory)
    return state, (*aborted, *actions)


def _commit_if_complete(state: Agreement) -> _Result:
    if not all(rank.durable for rank in state.ranks):
        return state, ()
    return replace(state, phase=Phase.COMMITTING), (Commit(state.epoch, state.step),)


def _fail(state: Agreement, at_ns: int, reason: str) -> _Result:
    """Saving itself failed. Training goes on; what is the last chance is tried once more."""
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    state, aborted = _call_off(replace(state, tries=state.tries + 1), reason)
    is_last = all(rank.ended for rank in state.ranks) and not state.in_memory
    if not state.is_stop and not is_last:
        state, actions = _rest(state, at_ns)
        return state, (*aborted, verdict, *actions)
    if state.tries < MAX_SAVE_TRIES and not any(rank.gone for rank in state.ranks):
        state, actions = _order(state, state.why, state.is_stop)
    else:
        state, actions = _leave(state, reason)
    return state, (*aborted, *actions)


def _rest(state: Agreement, at_ns: int) -> _Result:
    """Nothing is under way: do what waited, or the last save of a loop that has ended, or rest."""
    state = replace(state, phase=Phase.IDLE, is_stop=False, late_since_ns=None)
    for number, rank in enumerate(state.ranks):
        if rank.gone:
            return _end(state, f"rank {number} is gone"), ()
    if state.stop is not None:
        return _stop(state, replace(state.stop, at_ns=at_ns))
    if all(rank.ended for rank in state.ranks) and not state.is_saved:
        return _order(replace(state, lead=1, tries=0, misses=0), "the last step", is_stop=False)
    return state, ()


def _call_off(state: Agreement, reason: str) -> _Result:
    """Nothing will come of what is under way, if anything is."""
    if state.phase in (Phase.IDLE, Phase.OVER):
        return state, ()
    return replace(state, phase=Phase.IDLE), (Abort(state.epoch, state.step, reason),)


def _leave(state: Agreement, reason: str) -> _Result:
    """Give up what is under way, and tell the ranks to leave with the newest complete set."""
    state, aborted = _call_off(state, reason)
    state = _end(replace(state, epoch=_after(state.epoch)), reason)
    return state, (
        *aborted,
        PublishOrder(state.epoch, state.committed_step, Order.LEAVE, reason),
    )


def _end(state: Agreement, reason: str) -> Agreement:
    return replace(state, phase=Phase.OVER, is_stop=False, late_since_ns=None, why=reason)


def _with_rank(state: Agreement, number: int, **known: Any) -> Agreement:
    rank = replace(state.ranks[number], **known)
    return replace(state, ranks=(*state.ranks[:number], rank, *state.ranks[number + 1 :]))


def _after(epoch: int) -> int:
    return epoch % MAX_EPOCH + 1  # 16 bits that wrap; 0 means "no order"


def _answer_limit_ns(state: Agreement) -> int:
    limit_ns = state.stop.answer_limit_ns if state.stop else DEFAULT_ANSWER_LIMIT_NS
    if _is_early_answered(state):
        limit_ns *= EARLY_PATIENCE
    return limit_ns << min(state.misses, 6)  # a copy may really take that long
