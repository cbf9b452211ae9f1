"""The end of a run: what is only in memory is made durable first, then nothing happens any more."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.notice_plan import OnNotice
from holdfast.core.notices import Notice
from holdfast.core.run_course import Course
from holdfast.core.run_state import State, Timer
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN

LAST = "the run ends here"


def over_in_a_gap(run: Course, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
    """No attempt runs; if one did, the time since then was ours."""
    gap: list[act.Action] = []
    if run.ended_ns is not None:  # what a thread of the store tells may have been a moment before
        gap = [records.back_off(run.ended_ns, max(run.ended_ns, at_ns))]
    return [*gap, *over(run, at_ns, exit_code, words)]


def over(run: Course, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
    """The end, but for what is only in memory: that is made durable first."""
    run.finish, run.choice_waits = act.Finish(exit_code, words), False
    answer = [] if run.stopping.now else run.keeping.drain_newest(at_ns, LAST)
    if run.stopping.now or not run.keeping.is_pending:
        return finished(run)
    run.state = State.KEEPING
    limit_ns = run.stopping.deadline_ns or at_ns + run.policy.store_patience_ns
    words = "what is in memory is taken to the run store"
    return [act.Say("info", words), act.SetTimer(Timer.KEEP, limit_ns), *answer]


def go_on_keeping(run: Course, event: ev.TierEvent) -> list[act.Action]:
    """News of what the end waits for: wait on, or end."""
    answer: list[act.Action] = []
    if not isinstance(event, ev.DrainFailed | ev.DrainCommitFailed):
        answer += run.keeping.drain_newest(event.at_ns, LAST)
    return answer if run.keeping.is_pending else answer + finished(run)


def finished(run: Course) -> list[act.Action]:
    """Nothing happens any more."""
    was_kept, run.state = run.state is State.KEEPING, State.OVER
    finish = run.keeping.last_words(run.finish, was_kept=was_kept)
    return [replace(finish, settled=_settled(run, finish))]


def _settled(run: Course, finish: act.Finish) -> tuple[Notice, ...]:
    """Which announced ends the run has nothing left on this host for.

    Only of a run that has left on account of a notice: one that failed may be looked into, and
    after one that is done its user may have more to do here. Nor where steps are in memory alone,
    or not saved at all, but for the one that a rank may do while it is ended.
    """
    stop, policy = run.stop, run.policy.notice
    is_asked = policy.then is OnNotice.RELEASE and stop is not None and stop.notice
    has_left = finish.exit_code == EXIT_SAVED_START_ME_AGAIN and run.stopping.now is None
    lost = run.saving.fastest_step - run.saving.committed_step
    is_saved = not finish.keep_memory and (lost <= 1 or not run.saving.joined)
    if not (is_asked and has_left and is_saved):
        return ()
    ends = [one for one in run.notices.announcements if policy.ends(one.action)]
    return tuple(telling.notice for one in ends for telling in one.tellings)


# --- while the end waits for what is in memory ----------------------------------------------


def on_keep_timer(run: Course, event: ev.TimerFired) -> list[act.Action]:
    """What is in memory could not be made durable in time: it stays there."""
    return finished(run) if event.timer == Timer.KEEP else []


def on_stop_asked_while_keeping(_: Course, event: ev.StopAsked) -> list[act.Action]:
    """The run is over already; there may be a deadline now."""
    if event.deadline_ns is None:
        return []
    return [act.SetTimer(Timer.KEEP, event.deadline_ns)]


def on_stop_now_while_keeping(run: Course, event: ev.StopNowAsked) -> list[act.Action]:
    """What is in memory stays there."""
    return [run.stopping.note_now(event), *finished(run)]
