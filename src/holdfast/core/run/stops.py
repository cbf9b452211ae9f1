"""A run that is asked to do something else: to save and leave, to stop now, to go back."""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.run import rollback
from holdfast.core.run.before import choose, over_unheard
from holdfast.core.run.course import RunState
from holdfast.core.run.over import over_in_a_gap
from holdfast.core.run.saves import after_saving, flush_before_leaving
from holdfast.core.run.state import State, Timer
from holdfast.core.run.stopping import StopIntent

SAVING, SAVING_NEXT = "saving", "saving at the next step"
STOP_NOW_LIMIT_NS = 5 * SECOND_NS  # for a store that does not answer


# --- to save and leave ----------------------------------------------------------------------


def on_stop_asked(
    run: RunState, event: ev.StopAsked, *, is_announced: bool = False
) -> list[act.Action]:
    """Save and leave, by the earliest deadline; where nothing runs, the run is over."""
    first, is_supervised = run.stop is None, run.policy.is_supervised
    how = SAVING if is_supervised else SAVING_NEXT
    is_there = run.state is State.RUNNING or not is_supervised
    answer = run.stopping.note(
        event,
        how if is_there else "",
        is_timed=is_there or run.state is State.LAUNCHING,
        is_announced=is_announced,
    )
    if run.state in (State.CHOOSING, State.WAITING) and is_supervised:
        return answer + over_in_a_gap(run, event.at_ns, *run.stopping.where_nothing_ran)
    is_asked = run.saving.agreement.is_active and not run.saving.agreement.is_over
    if run.stop and run.state is State.RUNNING and (first or is_asked):
        return answer + begin_stop(run, run.stop, event.at_ns)
    return answer


def move_deadline(run: RunState, at_ns: int, announced_ns: int | None) -> list[act.Action]:
    """What was announced comes later, or not at all: a stop that is under way has that time too."""
    if not run.stopping.announce(announced_ns):
        return []
    deadline_ns = run.stopping.deadline_ns
    if run.state not in (State.LAUNCHING, State.RUNNING):
        return []
    if run.is_relayed and deadline_ns is None:
        return [act.SetTimer(Timer.DEADLINE, at_ns + run.policy.relay_limit_ns)]
    timer: act.Action = act.CancelTimer(Timer.DEADLINE)
    if deadline_ns is not None:
        timer = act.SetTimer(Timer.DEADLINE, deadline_ns)
    if run.state is State.LAUNCHING:
        return [timer]
    moved = run.saving.move_stop(at_ns, run.stopping.leave_by_ns(at_ns))
    return [timer, *run.carry_out(moved), *after_saving(run, at_ns)]


def begin_stop(run: RunState, stop: StopIntent, at_ns: int) -> list[act.Action]:
    """Ask the ranks of a running attempt to save and leave, as they can be asked now."""
    return flush_before_leaving(run, at_ns) + _ask_to_leave(run, stop, at_ns)


def waits_for_a_step(run: RunState) -> bool:
    """Whether a stop of several scripts that run by themselves begins after their next step.

    One rank would leave at its boundary, while the others wait for it in the next step's
    collective. Once a step is done, all can save one and leave.
    """
    saving = run.saving
    return run.policy.ranks > 1 and saving.agreement.is_saved and not saving.agreement.is_over


def _ask_to_leave(run: RunState, stop: StopIntent, at_ns: int) -> list[act.Action]:
    if not run.policy.is_supervised:
        if waits_for_a_step(run):
            return []
    elif not run.saving.joined:
        # No session has shown itself: a plain program, or one that is still importing. The
        # signal is all it can understand, and an import has nothing to lose.
        run.is_relayed = True
        limit_ns = stop.deadline_ns
        if limit_ns is None:
            limit_ns = at_ns + run.policy.relay_limit_ns
        return [act.Relay(stop.source), act.SetTimer(Timer.DEADLINE, limit_ns)]
    elif run.saving.agreement.is_saved and not run.saving.agreement.ranks.have_ended:
        run.state = State.KILLING
        return [
            act.Say("info", "Leaving without saving: no step was done since the last checkpoint"),
            act.Kill(stop.source),
        ]
    actions = run.saving.stop(at_ns, stop.source, run.stopping.leave_by_ns(at_ns))
    return run.carry_out(actions) + after_saving(run, at_ns)


# --- to stop now ----------------------------------------------------------------------------


def on_stop_now(run: RunState, event: ev.StopNowAsked) -> list[act.Action]:
    """End every process; where nothing runs, the run is over."""
    answer = [run.stopping.note_now(event)]
    if run.state in (State.RUNNING, State.KILLING):
        run.state = State.KILLING
        return [*answer, act.Kill(event.source)]
    if not run.policy.is_supervised:
        _, words = run.stopping.where_nothing_ran
        return answer + over_unheard(run, event.at_ns, words)
    if run.state is State.NEW:
        return answer  # as soon as there is something to end
    if run.state is State.LAUNCHING:  # the same, unless the store keeps us waiting
        return [*answer, act.SetTimer(Timer.LEAVE, event.at_ns + STOP_NOW_LIMIT_NS)]
    return answer + over_in_a_gap(run, event.at_ns, *run.stopping.where_nothing_ran)


def on_suspended_while_launching(run: RunState, event: ev.Suspended) -> list[act.Action]:
    """The store could not answer meanwhile: it has its time from now on."""
    if run.stopping.now is None:
        return []
    return [act.SetTimer(Timer.LEAVE, event.at_ns + STOP_NOW_LIMIT_NS)]


def on_interrupted(run: RunState, event: ev.Interrupted) -> list[act.Action]:
    """The first time save and leave, with no deadline; the second time end every process."""
    asked = run.stopping.interrupted(event)
    if isinstance(asked, ev.StopNowAsked):
        return on_stop_now(run, asked)
    return on_stop_asked(run, asked)


# --- to restart -----------------------------------------------------------------------------


def on_restart_asked(run: RunState, event: ev.RestartAsked) -> list[act.Action]:
    """End an attempt that trains, which was saved before; one that ends anyway has its own end.

    One that is being launched ends as soon as it is. Before its hosts are told to start it, another
    one takes the place of who goes, and nothing ends. An elastic run has chosen its hosts by then.
    """
    if run.stop is not None or run.ending.by_rank or not run.policy.is_supervised:
        return []
    if run.state is State.LAUNCHING and not (run.is_on_record or run.policy.is_elastic):
        return []
    run.ending.restarts_for = event
    said = act.Say("info", f"Restarting: {event.words}")
    return [said] if run.state is State.LAUNCHING else [said, end_to_restart(run)]


def end_to_restart(run: RunState) -> act.Action:
    """End what runs: the next attempt has other hosts."""
    run.state = State.KILLING
    return act.Kill("the run restarts")


# --- to go back -----------------------------------------------------------------------------


def on_rollback_asked(run: RunState, event: ev.RollbackAsked) -> list[act.Action]:
    """End the attempt without a save, and start from where a person wants it to."""
    if not run.rollbacks.add((event.wish,)):
        return []
    said = act.Say("warning", f"Asked to go {rollback.wish_words(event.wish)}")
    if run.stop is not None:
        return [said, act.Say("warning", "The run is stopping; its next start goes back")]
    if run.state is State.RUNNING:
        return [said, *end_to_go_back(run)]
    if run.state is State.WAITING:
        return [said, act.CancelTimer(Timer.RESTART), *choose(run, event.at_ns)]
    return [said]  # as soon as the store has answered, the ranks run, or all are gone


def end_to_go_back(run: RunState) -> list[act.Action]:
    """End what runs: somebody wants it to start from elsewhere."""
    run.state = State.KILLING
    run.ending.gone_back, _ = rollback.prevailing(run.rollbacks.standing)
    return [act.Kill("the run goes back")]
