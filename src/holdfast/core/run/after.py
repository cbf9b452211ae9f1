"""The end of an attempt: why it ended, and whether, when and how the run goes on."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits, records
from holdfast.core.durations import in_words
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.run import restart, rollback
from holdfast.core.run.before import choose
from holdfast.core.run.course import RunState
from holdfast.core.run.ending import EndVerdict, exit_code
from holdfast.core.run.holding import given_up_words, uneven_words
from holdfast.core.run.over import over, over_in_a_gap
from holdfast.core.run.state import State, Timer
from holdfast.errors import EXIT_CONFIGURATION, EXIT_DONE

NO_SESSION = "done; the command never called hf.start(): nothing was measured or saved"
RECORDED = (
    "done; its steps were recorded, and nothing was saved: the command never called hf.start()"
)
STEPS_BEFORE_STANDBYS = 2  # the first has all its imports behind it, the second is undisturbed
TIMERS_OVER = tuple(act.CancelTimer(timer) for timer in Timer if timer is not Timer.NOTICE)
# As ranks leave that were told to, after their end or before it.
LEFT_UNEVEN = frozenset({exits.ExitCause.STORE_UNAVAILABLE, exits.ExitCause.STOPPED})


def on_tree_gone(run: RunState, event: ev.TreeGone | ev.HostLost) -> list[act.Action]:
    """Nothing is left of the attempt: name the cause, then end, restart, wait or give up."""
    if run.launch_failure is not None:
        return _never_launched(run, event.at_ns, run.launch_failure)
    return _settle(run, event.at_ns)


def on_host_lost(run: RunState, event: ev.HostLost) -> list[act.Action]:
    """Processes survive SIGKILL: the attempt is over, and this host with it."""
    run.ending.host_lost = True
    return [act.Say("error", event.words), *on_tree_gone(run, event)]


def _never_launched(run: RunState, at_ns: int, failed: ev.LaunchFailed) -> list[act.Action]:
    answer: list[act.Action] = []
    if failed.is_on_record:
        is_command = failed.exit_code == EXIT_CONFIGURATION
        cause = exits.ExitCause.CONFIGURATION if is_command else exits.ExitCause.HOST_LOST
        end = act.EndAttempt(run.attempt, exits.HISTORY_CAUSE[cause], failed.words, None, True)
        answer.append(end)
    return answer + over_in_a_gap(run, at_ns, failed.exit_code, failed.words)


def _settle(run: RunState, at_ns: int) -> list[act.Action]:
    """Put the end on record; then the run is over, or it goes back, or it restarts."""
    saved = run.saving.what_is_saved if run.stop is not None else ""
    verdict = run.ending.verdict(run.hangs.verdict, run.stop, saved)
    cause, words, rank = verdict.cause, verdict.words, verdict.rank
    ends = [(gone.rank, gone.exit) for gone in run.ending.by_rank.values()]
    if cause is exits.ExitCause.BAD_CHECKPOINT and (bad := run.resume.set_name) is not None:
        run.rejected = run.rejected.add(bad, words, in_memory=run.resume.buffer is not None)
    if cause is exits.ExitCause.NOT_FETCHED and (wanted := run.resume.set_name) is not None:
        run.rejected = run.rejected.not_fetched(wanted, words, at_ns)
    asks = run.rollbacks.add(rollback.wishes_of(run.attempt, ends))
    run.ended_ns = at_ns
    run.saving.failures.end(at_ns)
    agreement = run.saving.agreement
    is_uneven = cause in LEFT_UNEVEN and run.stop is None and bool(agreement.uneven_end)
    if is_uneven:  # it is not the store's fault
        cause = exits.ExitCause.USER_ERROR
        words = uneven_words(agreement.uneven_end)
    answer: list[act.Action] = [*TIMERS_OVER]
    if cause is exits.ExitCause.DONE:
        run.done_ns = at_ns
        has_session = any(gone.exit.has_session for gone in run.ending.by_rank.values())
        without = RECORDED if run.is_recorded else NO_SESSION
        return answer + over(run, at_ns, EXIT_DONE, "done" if has_session else without)
    decision: restart.Decision | None
    own_signature = ""
    is_ended = agreement.ranks.have_ended
    restarts = run.ending.restarts_for is not None and cause in restart.FREE
    stops = run.stop is not None or (cause is exits.ExitCause.STOPPED and not restarts)
    if stops or restarts or run.rollbacks.asked_by_person:  # somebody knows what is next
        decision, reason = None, ""
    elif is_uneven:  # another attempt would come to the same end
        decision, reason = restart.GiveUp(), ""
    elif cause is exits.ExitCause.STORE_UNAVAILABLE and agreement.is_over and is_ended:
        # Another attempt would come to the same end, and find the same store.
        saving = run.saving
        words = given_up_words(saving.fastest_step, saving.committed_step, in_memory=False)
        decision, reason = restart.GiveUp(), ""
    elif not run.policy.is_supervised:
        decision, reason = restart.GiveUp(), ""
    else:
        decision, reason = _judge(run, at_ns, verdict, asks)
        own_signature = verdict.signature if verdict.is_from_script else ""
    again = decision if isinstance(decision, restart.Restart) else None
    answer += records.end_of_attempt(run.attempt, at_ns, cause, words, rank, again, own_signature)
    if stops:
        fault = words if run.ending.is_faulty else None
        last_words = run.stopping.last_words(run.saving.what_is_saved, fault)
        return answer + over(run, at_ns, run.stopping.exit_code, last_words)
    if isinstance(decision, restart.GiveUp):
        return answer + over(run, at_ns, exit_code(cause), "; ".join(filter(None, (words, reason))))
    answer.append(records.backing_off(at_ns, at_ns + (again.delay_ns if again else 0)))
    return answer + (_restart(run, at_ns, again, reason) if again else choose(run, at_ns))


def stand_by(run: RunState, answer: Sequence[act.Action], at_ns: int) -> tuple[act.Action, ...]:
    """What the next attempt's processes are to do, if that changes with this answer to an event."""
    state, before = run.state, run.standby
    if run.stopping.intent is not None:
        wanted = StandbyOrder.NONE
    elif state is State.RUNNING:
        if before is StandbyOrder.READY:  # for the rest of the attempt
            return ()
        is_well_on = run.saving.slowest_step >= run.resume.step + STEPS_BEFORE_STANDBYS
        wanted = StandbyOrder.READY if is_well_on else StandbyOrder.AS_IS
    elif state is State.KILLING:
        is_killed = act.Kill in map(type, answer)
        wanted = StandbyOrder.WOKEN if is_killed and restarts_at_once(run, at_ns) else before
    elif state is State.FLUSHING or state is State.OVER:
        wanted = StandbyOrder.NONE
    else:
        wanted = StandbyOrder.AS_IS
    if wanted is before:
        return ()
    run.standby = wanted
    return (act.StandBy(run.attempt + 1, wanted),)


def restarts_at_once(run: RunState, at_ns: int) -> bool:
    """Whether another attempt follows at once on the one that is being ended, as things stand now.

    A guess, for what may be undone: more may become known before nothing of the attempt is left.
    """
    if run.state is not State.KILLING or run.launch_failure is not None or run.stop is not None:
        return False
    if run.rollbacks.asked_by_person or run.ending.restarts_for is not None:
        return True
    verdict = run.ending.verdict(run.hangs.verdict, None, "")
    failures = (*run.failures, _failure(run, at_ns, verdict, asks=False))
    decision, _ = run.policy.restart.decide(failures, at_ns)
    return isinstance(decision, restart.Restart) and decision.delay_ns == 0


def _failure(run: RunState, at_ns: int, verdict: EndVerdict, *, asks: bool) -> restart.Failure:
    return restart.Failure(
        attempt=run.attempt,
        cause=verdict.cause,
        signature=verdict.signature,
        completed_before=rollback.progress_from(run.failures, run.high_water_at_launch, asks=asks),
        completed_after=run.high_water,
        at_ns=at_ns,
        asked_rollback=asks,
        is_from_script=verdict.is_from_script,
    )


def _judge(
    run: RunState, at_ns: int, verdict: EndVerdict, asks: bool
) -> tuple[restart.Decision, str]:
    """Start again, now or after a while, or give up: the restart policy's decision."""
    run.failures = (*run.failures, _failure(run, at_ns, verdict, asks=asks))
    policy = run.policy.restart
    run.judge_by(restart.still_judged(run.failures, at_ns - policy.looks_back_ns))
    return policy.decide(run.failures, at_ns)


def _restart(run: RunState, at_ns: int, decision: restart.Restart, reason: str) -> list[act.Action]:
    level = "warning" if decision.alike else "info"
    if decision.delay_ns == 0:
        return [act.Say(level, f"Restarting now; {reason}"), *choose(run, at_ns)]
    run.state = State.WAITING
    return [
        act.Say(level, f"Restarting in {in_words(decision.delay_ns)}; {reason}"),
        act.SetTimer(Timer.RESTART, at_ns + decision.delay_ns),
    ]
