"""An attempt that runs: its ranks show themselves, end, hang, or have had their time."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits, records
from holdfast.core.run import saves
from holdfast.core.run.before import TOO_LATE
from holdfast.core.run.course import RunState
from holdfast.core.run.flushing import flush_newest
from holdfast.core.run.over import LAST
from holdfast.core.run.saves import after_saving, time_passed
from holdfast.core.run.state import State, Timer
from holdfast.core.run.stops import begin_stop, end_to_go_back, end_to_restart
from holdfast.core.save import events as news
from holdfast.errors import EXIT_DONE


def on_launched(run: RunState, event: ev.Launched) -> list[act.Action]:
    """The attempt runs; a stop that was asked meanwhile begins now."""
    run.state = State.RUNNING
    answer: list[act.Action] = []
    began_ns = event.at_ns if event.began_ns is None else event.began_ns
    since_ns = run.ended_ns
    if event.waited is not None:
        answer += _waits(event.waited, since_ns)
        since_ns = event.waited.until_ns
    if since_ns is not None:
        answer.append(records.back_off(since_ns, began_ns))
    if not run.is_adopted:  # else that is on record
        answer.append(records.attempt_start(run.attempt, began_ns, run.resume.step))
        if (chips := event.chips or run.policy.all_chips) is not None:
            answer.append(records.capacity(began_ns, chips))
    answer += run.hangs.begin(event.at_ns, run.placement.ranks)
    if run.stopping.now is not None:
        run.state = State.KILLING
        return [*answer, act.Kill(run.stopping.now.source)]
    if run.stop:
        answer += begin_stop(run, run.stop, event.at_ns)
    elif run.ending.restarts_for is not None:
        answer.append(end_to_restart(run))
    elif run.rollbacks.asked_by_person:
        answer += end_to_go_back(run)
    return answer + run.look_at_notices(event.at_ns)


def _waits(waited: ev.Waited, ended_ns: int | None) -> list[act.Action]:
    """What of the time since the attempt before was a pause, and what for want of hosts."""
    if ended_ns is None or waited.since_ns is None or waited.since_ns <= ended_ns:
        return [] if ended_ns is None else [records.wait(waited, ended_ns)]
    pause = records.back_off(ended_ns, waited.since_ns)
    return [pause, records.wait(waited, waited.since_ns)]


def on_heard(run: RunState, event: ev.Heard) -> list[act.Action]:
    """News of the saves; after it a stop may begin that has waited for a step."""
    answer = saves.on_heard(run, event)
    stop = run.stopping.intent
    if stop is None or run.policy.is_supervised:
        return answer
    is_begun = run.saving.agreement.stop is not None or run.saving.agreement.is_over
    return answer if is_begun else answer + begin_stop(run, stop, event.at_ns)


def on_joined(run: RunState, event: ev.Joined) -> list[act.Action]:
    """A rank's session can be asked from now on, which is better than a signal."""
    run.saving.joined.add(event.rank)
    if run.ending.plain:  # what looked like a plain command was not one
        return on_rank_exited(run, run.ending.plain.pop(0))
    if run.stop is None or not run.is_relayed:
        return []
    run.is_relayed = False
    answer: list[act.Action] = []
    if run.stop.deadline_ns is None:
        answer.append(act.CancelTimer(Timer.DEADLINE))
    return answer + begin_stop(run, run.stop, event.at_ns)


def on_steps_recorded(run: RunState, event: ev.StepsRecorded) -> list[act.Action]:
    """Steps that the script saves by itself: they count as progress, and no save is ordered."""
    run.is_recorded = True
    run.high_water = max(run.high_water, event.step)
    return []


# --- a rank ends ----------------------------------------------------------------------------


def on_rank_exited(run: RunState, event: ev.RankExited) -> list[act.Action]:
    """The first loss ends the attempt; a rank that is done, or was told to leave, is none."""
    if (
        run.saving.joined and not event.exit.has_session
    ):  # then its peers have sessions, and so had it, or would have had
        event = replace(event, exit=replace(event.exit, has_session=True))
    run.ending.by_rank[event.rank] = event
    if event.exit.host_lost:
        run.saving.tier.host_lost()
    if not run.policy.is_supervised:
        return _rank_left(run, event)
    if event.exit.code == EXIT_DONE and not event.exit.has_session:
        run.ending.plain.append(event)
    cause, words = exits.classify(event.exit)
    if cause is exits.ExitCause.DONE:
        return []  # the others are on their way; TreeGone settles it
    if run.is_told_to_leave:
        return []  # told to leave: how it does that is its own affair
    if cause is exits.ExitCause.STOPPED:
        return _rank_stopped(run, event)
    run.state = State.KILLING
    run.ending.is_faulty = True
    who = f"rank {event.rank}: " if run.placement.ranks > 1 else ""
    answer: list[act.Action] = [records.fault(event, cause)]
    if cause is not exits.ExitCause.CONFIGURATION:  # which ends the run: its last words say it
        answer.append(act.Say("warning", f"{who}{words}"))
    return [*answer, act.Kill("a rank was lost")]


def _rank_left(run: RunState, event: ev.RankExited) -> list[act.Action]:
    """A script that runs by itself has ended: the others go on, and nobody waits for this one."""
    cause, _ = exits.classify(event.exit)
    if cause is exits.ExitCause.DONE or run.is_told_to_leave:
        return []
    answer: list[act.Action] = []
    if run.stop is None or event.exit.report is not None:
        run.ending.is_faulty = True
        answer.append(records.fault(event, cause))
    gone = news.RankGone(event.at_ns, event.rank)
    return answer + run.carry_out(run.saving.hear(gone)) + after_saving(run, event.at_ns)


def _rank_stopped(run: RunState, event: ev.RankExited) -> list[act.Action]:
    """It left in peace, before it was told to or instead of saving: nobody waits for it."""
    if len(run.ending.by_rank) == run.placement.ranks:
        return []
    answer: list[act.Action] = []
    if run.stop is None:
        answer += begin_stop(run, run.stopping.note_left(event.rank), event.at_ns)
    if run.state is State.RUNNING and not run.is_relayed:
        gone = news.RankGone(event.at_ns, event.rank)
        answer += run.carry_out(run.saving.hear(gone)) + after_saving(run, event.at_ns)
    return answer


def on_rank_exited_while_killing(run: RunState, event: ev.RankExited) -> list[act.Action]:
    """Kept for the verdict on why the attempt ended."""
    run.ending.by_rank.setdefault(event.rank, event)
    if event.exit.host_lost:
        run.saving.tier.host_lost()
    return []


# --- time, and hangs ------------------------------------------------------------------------


def on_timer(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """Time has passed: for the saves, or for ranks that should be gone."""
    if event.timer == Timer.SAVES:
        return time_passed(run, event.at_ns)
    if event.timer == Timer.HOLD:
        return flush_newest(run, event.at_ns, LAST)
    if event.timer in (Timer.DEADLINE, Timer.LEAVE):
        run.state = State.KILLING
        if not run.policy.is_supervised:
            return [act.Say("warning", f"{TOO_LATE}: ending it"), act.Kill(TOO_LATE)]
        late = (
            "the deadline came" if event.timer == Timer.DEADLINE else "they did not leave in time"
        )
        return [act.Say("warning", f"Killing the ranks that are left: {late}"), act.Kill(late)]
    return [act.Examine(run.attempt)] if event.timer == Timer.HANG else []


def on_examined(run: RunState, event: ev.Examined) -> list[act.Action]:
    """Tell a hang from slow steps; when it is certain, end the attempt."""
    if run.is_told_to_leave:
        return []  # there are limits for that
    answer = run.hangs.examined(
        event,
        gone=run.ending.by_rank,
        reached=run.high_water,
        is_writing=run.saving.agreement.is_writing,
    )
    if run.hangs.verdict is not None:
        run.state = State.KILLING
        run.ending.is_faulty = True
    return answer


def on_stacks_collected(run: RunState, event: ev.StacksCollected) -> list[act.Action]:
    """Look once more: it may have gone on meanwhile."""
    return run.hangs.collected(event)


def on_profile_asked(run: RunState, event: ev.ProfileAsked) -> list[act.Action]:
    """Have the rank do it, if there is one of that number, and it trains."""
    ranks = run.policy.ranks
    if run.is_leaving or event.rank >= ranks:
        why = "it leaves" if run.is_leaving else f"there are ranks 0 to {ranks - 1}"
        return [act.Say("warning", f"Rank {event.rank} is not profiled for {event.source}: {why}")]
    words = f"Profiling {event.steps} steps of rank {event.rank}, for {event.source}"
    order = act.Profile(run.attempt, event.name, event.rank, event.steps, event.limit_ns)
    return [act.Say("info", words), order]


def on_suspended(run: RunState, event: ev.Suspended) -> list[act.Action]:
    """The ranks could not run, so nothing was late: their limits start anew."""
    answer = run.hangs.suspended(event)
    if run.is_leaving and run.stop is not None:
        answer.append(act.SetTimer(Timer.LEAVE, run.stopping.leave_limit_ns(event.at_ns)))
    return answer
