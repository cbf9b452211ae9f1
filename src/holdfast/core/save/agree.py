"""The controller's side of an agreed save: one state, one table of transitions.

    state = Agreement.start(ranks=2, committed_step=0)
    actions = step(state, SaveAsked(now, "every 41 s"))

The controller orders a step S that no rank has passed. A rank that reaches boundary S takes it:
that is its vote. Its copy ends there, or beside the next steps (`word.may_end_later`). All copied:
the set is written, committed, and the verdict published. A rank that missed S (it passed the
boundary before the order reached it) makes the controller order a later step under a new epoch.
With a stop, ranks wait after their copy: nobody leaves before the commit.
docs/explanation/agreement.md tells why; tests/core/test_agree_exhaustive.py checks every
interleaving for two and three ranks.

Rules that the functions below rely on:
- An epoch's step and flags never change once published; an epoch that follows a stop's always has
  a larger step, so that a rank that waits for the old one goes on.
- An order may name a buffer of the memory tier (core.save.memory): then what all ranks have copied
  is sealed and, if it must be durable, flushed by others than they, who say how that went. A buffer
  that an order named is named again by the next, for as long as some rank may still take the order;
  but not while a rank is known to copy into it.
- A rank has one copy under way: it ends that before it takes another step. So what all have
  copied for the newest epoch is written by nobody any more.
- An answer counts for the epoch it names and for no other, so late news does no harm. That a copy
  is over counts for its buffer, whatever the epoch.
- A rank whose loop has ended answers any order with its last step, and one that is between two
  steps may answer a stop that says EARLY with the step it has done: a set may be of an earlier step
  than was ordered, but only if all ranks answered with that same step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.core.save import agree_moves as moves
from holdfast.core.save.agree_moves import MAX_LEAD, Actions, AgreementPhase
from holdfast.core.save.agree_moves import Agreement as Agreement
from holdfast.core.save.events import (
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
    Taken,
    Tick,
)
from holdfast.core.save.word import Order


def step(state: Agreement, event: Event) -> Actions:
    """One transition, of the state itself; what the edge does now, in this order."""
    return TABLE[type(event)][state.phase](state, event)


def wake_at_ns(state: Agreement) -> int | None:
    """When a Tick is due if nothing else happens; None: never."""
    stop, again_ns = state.stop, state.hold.again_ns
    if again_ns is not None and state.is_held:
        return again_ns
    if state.phase not in (
        AgreementPhase.COLLECTING,
        AgreementPhase.COPYING,
        AgreementPhase.WRITING,
    ):
        return None
    due = []
    if stop is not None and stop.leave_by_ns is not None:
        due.append(stop.leave_by_ns)
    if state.late_since_ns is not None:
        due.append(state.late_since_ns + moves.answer_limit_ns(state))
    return min(due, default=None)


def lead_steps(step_time_ns: int, reaction_ns: int) -> int:
    """How many boundaries ahead to order, so that the order gets there first.

    `reaction_ns`: from reading the ranks' progress to the order's being stored; negative where what
    is decided on is older than that progress (a busy host tells late). 1 for steps that are longer:
    ordering later than the next boundary only delays the save.
    """
    return min(1 + max(0, reaction_ns) // max(1, step_time_ns), MAX_LEAD)


# --- requests ------------------------------------------------------------------------------------


def _save(state: Agreement, event: SaveDue) -> Actions:
    if event.in_memory:
        if not state.open_buffers:
            return (Refuse("no buffer is free"),)
    elif _is_vain(state, event):
        return (Refuse(moves.nothing_new(state)),)
    in_memory, lead = event.in_memory, event.lead
    return moves.order(state, event.why, is_stop=False, in_memory=in_memory, lead=lead)


def _is_vain(state: Agreement, event: SaveDue) -> bool:
    return state.is_saved and not event.in_step


def _busy(state: Agreement, _: SaveDue) -> Actions:
    return (Refuse(f"the save of step {state.step} is under way ({state.phase.value})"),)


def _save_instead(state: Agreement, event: SaveDue) -> Actions:
    """Somebody wants a durable save, and another is ordered: in memory, or far ahead. It can wait.

    As with a stop, the new order may name an earlier step than the old one: nobody waits there.
    """
    can_wait = state.in_memory or (event.in_step and state.is_far)
    if event.in_memory or not can_wait or _is_vain(state, event):
        return _busy(state, event)
    aborted = moves.call_off(state, f"superseded by a save: {event.why}")
    state.step = 0
    return (*aborted, *_save(state, event))


def _no_more(state: Agreement, _: SaveDue) -> Actions:
    return (Refuse(f"no more saves in this attempt: {state.why}"),)


def _stop_instead(state: Agreement, event: StopDue) -> Actions:
    """Turn a save that is not yet agreed into a stop: under a new epoch, never in place.

    In place, a rank that had read the order without STOP would go on into a step whose collective
    its peers, which read it with STOP, never enter. The new order may name an earlier step than the
    old one, which may have been ordered far ahead: nobody waits at that one, it was no stop.
    """
    if state.is_stop or state.ranks.have_ended:
        return _later(state, event)
    aborted = moves.call_off(state, f"superseded by a stop: {event.why}")
    state.step = 0
    return (*aborted, *moves.stop(state, event))


def _later(state: Agreement, event: StopDue) -> Actions:
    """Finish the save under way first: all ranks have taken it, so something good is soon there.

    A stop that is under way only gets its deadline tightened: repeated requests (Slurm sends two)
    never cut a save short. It is StopMoved that gives more time.
    """
    earlier = state.stop
    if earlier is None:
        state.stop = event
        return ()
    deadlines = [d for d in (earlier.leave_by_ns, event.leave_by_ns) if d is not None]
    state.stop = replace(earlier, leave_by_ns=min(deadlines, default=None))
    return ()


def _moved(state: Agreement, event: StopMoved) -> Actions:
    """Only its deadline: a stop that was not asked for does not begin."""
    if state.stop is not None:
        state.stop = replace(state.stop, leave_by_ns=event.leave_by_ns)
    return ()


# --- what the ranks do ---------------------------------------------------------------------------


def _note(state: Agreement, event: Progress) -> Actions:
    state.ranks.at(event.rank, event.step)
    return ()


def _judge_note(state: Agreement, event: Progress) -> Actions:
    state.ranks.at(event.rank, event.step)
    return moves.judge(state, event.rank, event.at_ns)


def _note_end(state: Agreement, event: LoopEnded) -> Actions:
    state.ranks.at(event.rank, event.step)
    state.ranks.end(event.rank)
    return ()


def _judge_end(state: Agreement, event: LoopEnded) -> Actions:
    _note_end(state, event)
    return moves.judge(state, event.rank, event.at_ns)


def _end_idle(state: Agreement, event: LoopEnded) -> Actions:
    _note_end(state, event)
    return moves.rest(state, event.at_ns)


def _taken(state: Agreement, event: Taken) -> Actions:
    _note_copy(state, event)
    if event.epoch != state.epoch or event.rank in state.ranks.answers:
        return ()
    _note_answer(state, event)
    state.waits = state.waits or event.waits
    return moves.judge(state, event.rank, event.at_ns)


def _note_copy(state: Agreement, event: Taken) -> Actions:
    """Whatever becomes of the order, its buffer is being written."""
    state.ranks.begin_copy(event.rank, event.epoch, event.buffer)
    return ()


def _note_answer(state: Agreement, event: Taken | Snapped) -> None:
    ranks = state.ranks
    if event.step > ranks.steps[event.rank]:
        ranks.at(event.rank, event.step)  # it stored STEP before TAKEN
    ranks.answer(event.rank, event.step)


def _copied(state: Agreement, event: Snapped) -> Actions:
    """A copy that is there was taken, which may be news as well."""
    ranks = state.ranks
    ranks.end_copy(event.rank, event.epoch)
    if event.epoch != state.epoch or event.rank in ranks.copied:
        return ()
    ranks.copied.add(event.rank)
    if event.rank not in ranks.answers:
        _note_answer(state, event)
    return _judge_copy(state, event)


def _judge_copy(state: Agreement, event: Snapped | Durable) -> Actions:
    if state.phase is AgreementPhase.COLLECTING:
        return moves.judge(state, event.rank, event.at_ns)
    return moves.taken(state, event.at_ns)


def _note_over(state: Agreement, event: Snapped | SaveFailed) -> Actions:
    """Whatever became of the order, this rank writes into its buffer no more."""
    state.ranks.end_copy(event.rank, event.epoch)
    return ()


def _durable(state: Agreement, event: Durable) -> Actions:
    """A durable shard implies its copy, whose own news may come later or never."""
    ranks = state.ranks
    ranks.end_copy(event.rank, event.epoch)
    if event.epoch != state.epoch:
        return ()
    ranks.answer(event.rank, event.step)
    ranks.copied.add(event.rank)
    ranks.durable.add(event.rank)
    if state.phase is AgreementPhase.WRITING:
        return moves.written(state)
    return _judge_copy(state, event)


def _failed(state: Agreement, event: SaveFailed) -> Actions:
    _note_over(state, event)
    if event.epoch != state.epoch:
        return ()
    return moves.fail(state, event.at_ns, f"rank {event.rank} could not save step {event.step}")


def _gone_idle(state: Agreement, event: RankGone) -> Actions:
    state.ranks.lose(event.rank)
    moves.end(state, f"rank {event.rank} is gone")
    return ()


def _gone(state: Agreement, event: RankGone) -> Actions:
    """A death aborts the agreement, unless that rank's part of an agreed set is already durable."""
    state.ranks.lose(event.rank)
    if state.phase is AgreementPhase.COMMITTING:
        return ()
    if state.phase is AgreementPhase.WRITING and (
        event.rank in state.ranks.durable or state.buffer is not None
    ):
        return ()  # what is in a buffer outlives the rank
    reason = f"rank {event.rank} is gone"
    if state.is_stop:  # it may have done its last step, which was made durable beside this save
        return moves.leave(state, moves.nothing_new(state) if state.is_saved else reason)
    verdict = PublishVerdict(state.epoch, state.step, Order.ABORTED, reason)
    aborted = moves.call_off(state, reason)
    moves.end(state, reason)
    return (*aborted, verdict)


def _note_gone(state: Agreement, event: RankGone) -> Actions:
    state.ranks.lose(event.rank)
    return ()


# --- the commit, and time ------------------------------------------------------------------------


def _committed(state: Agreement, event: Committed) -> Actions:
    """The set is complete: say so, then do what waited for it.

    One that was copied into a buffer is committed by whoever flushes it, while it is being written.
    """
    is_ours = state.phase is AgreementPhase.COMMITTING or state.buffer is not None
    if event.epoch != state.epoch or not is_ours:
        return _noted(state, event)
    flags = Order.COMMITTED | Order.STOP if state.is_stop else Order.COMMITTED
    words = f"step {event.step} is durable on all ranks"
    verdict = PublishVerdict(state.epoch, event.step, flags, words)
    state.committed_step, state.tries = event.step, 0
    if state.is_stop:
        moves.end(state, words)
        return (verdict,)
    return (verdict, *moves.rest(state, event.at_ns))


def _noted(state: Agreement, event: Committed | DurableBeside) -> Actions:
    state.committed_step = max(state.committed_step, event.step)
    return ()


def _unwritten(state: Agreement, event: NotWritten) -> Actions:
    if event.epoch != state.epoch or state.buffer is None:
        return ()
    return moves.fail(state, event.at_ns, event.why, is_sealed=event.is_sealed)


def _uncommitted(state: Agreement, event: CommitFailed) -> Actions:
    return moves.fail(state, event.at_ns, f"the manifest of step {event.step}: {event.why}")


def _tick(state: Agreement, event: Tick) -> Actions:
    stop = state.stop
    if stop is not None and stop.leave_by_ns is not None and stop.leave_by_ns <= event.at_ns:
        return moves.leave(state, f"the deadline came before step {state.step} was durable")
    late_since_ns = state.late_since_ns
    if late_since_ns is not None and event.at_ns - late_since_ns >= moves.answer_limit_ns(state):
        why = (
            f"a rank is at step {state.step} and has not {'taken' if state.waits else 'copied'} it"
        )
        if state.ranks.is_early_answered:
            why = "a rank was between two steps, and another was not"
        state.is_early = False
        return moves.miss(state, event.at_ns, why)
    return ()


def _try_again(state: Agreement, event: Tick) -> Actions:
    """The last step, which could not be saved; for as long as it is held."""
    if not state.is_held or event.at_ns < (state.hold.again_ns or 0):
        return ()
    return moves.order(state, "the last step", is_stop=False)


def _ignore(_: Agreement, __: Event) -> Actions:
    return ()


_PHASES = tuple(AgreementPhase)  # the columns of the table


def _row(
    *handlers: Callable[[Agreement, Any], Actions],
) -> dict[AgreementPhase, Callable[..., Actions]]:
    return dict(zip(_PHASES, handlers, strict=True))


# fmt: off
TABLE: dict[type[Event], dict[AgreementPhase, Callable[..., Actions]]] = {
    #                   IDLE        COLLECTING     COPYING    WRITING     COMMITTING    OVER
    SaveDue:     _row(_save,      _save_instead, _busy,     _busy,      _busy,        _no_more),
    StopDue:     _row(moves.stop, _stop_instead, _later,    _later,     _later,       _ignore),
    StopMoved:     _row(_moved,     _moved,        _moved,    _moved,     _moved,       _ignore),
    Progress:      _row(_note,      _judge_note,   _note,     _note,      _note,        _note),
    LoopEnded:     _row(_end_idle,  _judge_end,    _note_end, _note_end,  _note_end,    _note_end),
    Taken:         _row(_note_copy, _taken,        _taken,    _taken,     _taken,       _ignore),
    Snapped:       _row(_note_over, _copied,       _copied,   _copied,    _copied,      _ignore),
    Durable:       _row(_ignore,    _durable,      _durable,  _durable,   _ignore,      _ignore),
    SaveFailed:    _row(_note_over, _failed,       _failed,   _failed,    _note_over,   _ignore),
    RankGone:      _row(_gone_idle, _gone,         _gone,     _gone,      _gone,        _note_gone),
    Committed:     _row(_noted,     _noted,        _noted,    _committed, _committed,   _noted),
    CommitFailed:  _row(_ignore,    _ignore,       _ignore,   _ignore,    _uncommitted, _ignore),
    NotWritten:    _row(_ignore,    _ignore,       _ignore,   _unwritten, _ignore,      _ignore),
    DurableBeside: _row(_noted,     _noted,        _noted,    _noted,     _noted,       _noted),
    Tick:          _row(_try_again, _tick,         _tick,     _tick,      _ignore,      _ignore),
}
# fmt: on
