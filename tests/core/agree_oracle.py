"""The agreement that `core.save.agree` must equal: slower, and simple enough to be seen to be
right.

    state, actions = step(state, event)

A state never changes, every rank's view is in a tuple, and each question is asked of all of them:
so an event costs as much as there are ranks. `test_agree_oracle.py` holds the two equal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.save.agree_moves import AgreementPhase
from holdfast.core.save.events import (
    Action,
    CommitFailed,
    Committed,
    Durable,
    DurableBeside,
    Event,
    LoopEnded,
    NotWritten,
    Progress,
    PublishVerdict,
    RankGone,
    Refuse,
    SaveDue,
    SaveFailed,
    Snapped,
    StopDue,
    StopMoved,
    Tick,
)
from holdfast.core.save.word import Order

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import agree_oracle_moves as moves
from agree_oracle_moves import Result
from agree_oracle_state import Agreement

sys.path.pop(0)


def step(state: Agreement, event: Event) -> tuple[Agreement, tuple[Action, ...]]:
    """One transition: the new state, and what the edge does now, in this order."""
    return TABLE[type(event)][state.phase](state, event)


def wake_at_ns(state: Agreement) -> int | None:
    """When a Tick is due if nothing else happens; None: never."""
    if state.is_held:
        return state.hold.again_ns
    stop = state.stop
    if stop is None or state.phase not in (AgreementPhase.COLLECTING, AgreementPhase.WRITING):
        return None
    due = []
    if stop.leave_by_ns is not None:
        due.append(stop.leave_by_ns)
    if state.late_since_ns is not None:
        due.append(state.late_since_ns + moves.answer_limit_ns(state))
    return min(due, default=None)


# --- requests ------------------------------------------------------------------------------------


def _save(state: Agreement, event: SaveDue) -> Result:
    if event.in_memory:
        if not state.free_buffers:
            return state, (Refuse("no buffer is free"),)
    elif _is_vain(state, event):
        return state, (Refuse(moves.nothing_new(state)),)
    in_memory, lead = event.in_memory, event.lead
    return moves.order(state, event.why, is_stop=False, in_memory=in_memory, lead=lead)


def _is_vain(state: Agreement, event: SaveDue) -> bool:
    return state.is_saved and not event.in_step


def _busy(state: Agreement, _: SaveDue) -> Result:
    return state, (Refuse(f"the save of step {state.step} is under way ({state.phase.value})"),)


def _save_instead(state: Agreement, event: SaveDue) -> Result:
    """Somebody wants a durable save, and another is ordered: in memory, or far ahead. It can wait.

    As with a stop, the new order may name an earlier step than the old one: nobody waits there.
    """
    can_wait = state.in_memory or (event.in_step and state.is_far)
    if event.in_memory or not can_wait or _is_vain(state, event):
        return _busy(state, event)
    state, aborted = moves.call_off(state, f"superseded by a save: {event.why}")
    state, actions = _save(state._replace(step=0), event)
    return state, (*aborted, *actions)


def _no_more(state: Agreement, _: SaveDue) -> Result:
    return state, (Refuse(f"no more saves in this attempt: {state.why}"),)


def _stop_instead(state: Agreement, event: StopDue) -> Result:
    """Turn a save that is not yet agreed into a stop: under a new epoch, never in place.

    In place, a rank that had read the order without STOP would go on into a step whose collective
    its peers, which read it with STOP, never enter. The new order may name an earlier step than the
    old one, which may have been ordered far ahead: nobody waits at that one, it was no stop.
    """
    if state.is_stop or all(rank.ended for rank in state.ranks):
        return _stop_later(state, event)
    state, aborted = moves.call_off(state, f"superseded by a stop: {event.why}")
    state, actions = moves.stop(state._replace(step=0), event)
    return state, (*aborted, *actions)


def _stop_later(state: Agreement, event: StopDue) -> Result:
    """Finish the save under way first: its copies are taken, so something good is soon durable.

    A stop that is under way only gets its deadline tightened: repeated requests (Slurm sends two)
    never cut a save short. It is StopMoved that gives more time.
    """
    earlier = state.stop
    if earlier is None:
        return state._replace(stop=event), ()
    deadlines = [d for d in (earlier.leave_by_ns, event.leave_by_ns) if d is not None]
    return state._replace(stop=replace(earlier, leave_by_ns=min(deadlines, default=None))), ()


def _stop_moved(state: Agreement, event: StopMoved) -> Result:
    """Only its deadline: a stop that was not asked for does not begin."""
    if state.stop is None:
        return state, ()
    return state._replace(stop=replace(state.stop, leave_by_ns=event.leave_by_ns)), ()


# --- what the ranks do ---------------------------------------------------------------------------


def _note(state: Agreement, event: Progress | LoopEnded) -> Result:
    rank = state.ranks[event.rank].at(event.step)
    if isinstance(event, LoopEnded):
        rank = rank._replace(ended=True)
    return moves.with_rank(state, event.rank, rank), ()


def _note_end(state: Agreement, event: LoopEnded) -> Result:
    return moves.rest(_note(state, event)[0], event.at_ns)


def _judge_note(state: Agreement, event: Progress | LoopEnded) -> Result:
    return moves.judge(_note(state, event)[0], event.at_ns)


def _answered(state: Agreement, event: Snapped) -> Result:
    rank = state.ranks[event.rank]
    if event.epoch != state.epoch or rank.answer is not None:
        return state, ()
    reached = max(rank.step, event.step)  # it stored STEP before SNAP
    rank = rank._replace(answer=event.step, step=reached)
    return moves.judge(moves.with_rank(state, event.rank, rank), event.at_ns)


def _durable(state: Agreement, event: Durable) -> Result:
    """A durable shard implies its copy, whose own news may come later or never."""
    if event.epoch != state.epoch:
        return state, ()
    state = moves.with_rank(state, event.rank, state.ranks[event.rank].written(event.step))
    if state.phase is AgreementPhase.COLLECTING:
        return moves.judge(state, event.at_ns)
    return moves.written(state)


def _save_failed(state: Agreement, event: SaveFailed) -> Result:
    if event.epoch != state.epoch:
        return state, ()
    return moves.fail(state, event.at_ns, f"rank {event.rank} could not save step {event.step}")


def _gone_idle(state: Agreement, event: RankGone) -> Result:
    return moves.end(moves.without(state, event.rank), f"rank {event.rank} is gone"), ()


def _gone(state: Agreement, event: RankGone) -> Result:
    """A death aborts the agreement, unless that rank's part of an agreed set is already durable."""
    state = moves.without(state, event.rank)
    if state.phase is AgreementPhase.COMMITTING:
        return state, ()
    if state.phase is AgreementPhase.WRITING and (
        state.ranks[event.rank].durable or state.buffer is not None
    ):
        return state, ()  # what is in a buffer outlives the rank
    reason = f"rank {event.rank} is gone"
    if state.is_stop:  # it may have done its last step, which was made durable beside this save
        return moves.leave(state, moves.nothing_new(state) if state.is_saved else reason)
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    state, aborted = moves.call_off(state, reason)
    return moves.end(state, reason), (*aborted, verdict)


def _note_gone(state: Agreement, event: RankGone) -> Result:
    return moves.without(state, event.rank), ()


# --- the commit, and time ------------------------------------------------------------------------


def _committed(state: Agreement, event: Committed) -> Result:
    """The set is complete: say so, then do what waited for it.

    One that was copied into a buffer is committed by whoever flushes it, while it is being written.
    """
    is_ours = state.phase is AgreementPhase.COMMITTING or state.buffer is not None
    if event.epoch != state.epoch or not is_ours:
        return _noted(state, event)
    flags = Order.COMMITTED | Order.STOP if state.is_stop else Order.COMMITTED
    words = f"step {event.step} is durable on all ranks"
    verdict = PublishVerdict(state.epoch, event.step, flags, words)
    if state.is_stop:
        known = state._replace(committed_step=event.step, tries=0)
        return moves.end(known, words), (verdict,)
    state, actions = moves.rest(state, event.at_ns, committed_step=event.step)
    return state, (verdict, *actions)


def _noted(state: Agreement, event: Committed | DurableBeside) -> Result:
    return state._replace(committed_step=max(state.committed_step, event.step)), ()


def _not_written(state: Agreement, event: NotWritten) -> Result:
    if event.epoch != state.epoch or state.buffer is None:
        return state, ()
    return moves.fail(state, event.at_ns, event.why, is_sealed=event.is_sealed)


def _commit_failed(state: Agreement, event: CommitFailed) -> Result:
    return moves.fail(state, event.at_ns, f"the manifest of step {event.step}: {event.why}")


def _tick(state: Agreement, event: Tick) -> Result:
    stop = state.stop
    if stop is None:
        return state, ()
    if stop.leave_by_ns is not None and stop.leave_by_ns <= event.at_ns:
        return moves.leave(state, f"the deadline came before step {state.step} was durable")
    late_since_ns = state.late_since_ns
    if late_since_ns is not None and event.at_ns - late_since_ns >= moves.answer_limit_ns(state):
        why = f"a rank is at step {state.step} and has not copied it"
        if moves.is_early_answered(state):
            why = "a rank was between two steps, and another was not"
        return moves.miss(state._replace(is_early=False), why)
    return state, ()


def _try_again(state: Agreement, event: Tick) -> Result:
    """The last step, which could not be saved; for as long as it is held."""
    if not state.is_held or event.at_ns < (state.hold.again_ns or 0):
        return state, ()
    return moves.order(state, "the last step", is_stop=False)


def _ignore(state: Agreement, _: Event) -> Result:
    return state, ()


_PHASES = tuple(
    one for one in AgreementPhase if one is not AgreementPhase.COPYING
)  # it knows no gap


def _row(
    *handlers: Callable[[Agreement, Any], Result],
) -> dict[AgreementPhase, Callable[..., Result]]:
    return dict(zip(_PHASES, handlers, strict=True))


# fmt: off
TABLE: dict[type[Event], dict[AgreementPhase, Callable[..., Result]]] = {
    #                  IDLE        COLLECTING     WRITING       COMMITTING      OVER
    SaveDue:    _row(_save,      _save_instead, _busy,        _busy,          _no_more),
    StopDue:    _row(moves.stop, _stop_instead, _stop_later,  _stop_later,    _ignore),
    StopMoved:    _row(_stop_moved, _stop_moved,  _stop_moved,  _stop_moved,    _ignore),
    Progress:     _row(_note,      _judge_note,   _note,        _note,          _note),
    LoopEnded:    _row(_note_end,  _judge_note,   _note,        _note,          _note),
    Snapped:      _row(_ignore,    _answered,     _ignore,      _ignore,        _ignore),
    Durable:      _row(_ignore,    _durable,      _durable,     _ignore,        _ignore),
    SaveFailed:   _row(_ignore,    _save_failed,  _save_failed, _ignore,        _ignore),
    RankGone:     _row(_gone_idle, _gone,         _gone,        _gone,          _note_gone),
    Committed:    _row(_noted,     _noted,        _committed,   _committed,     _noted),
    CommitFailed: _row(_ignore,    _ignore,       _ignore,      _commit_failed, _ignore),
    NotWritten:   _row(_ignore,    _ignore,       _not_written, _ignore,        _ignore),
    DurableBeside: _row(_noted,    _noted,        _noted,       _noted,         _noted),
    Tick:         _row(_try_again, _tick,         _tick,        _ignore,        _ignore),
}
# fmt: on
