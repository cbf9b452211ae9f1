"""The end of a run: what is only in memory is made durable first, then nothing happens any more."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.exits import ExitCause
from holdfast.core.notices.board import Notice
from holdfast.core.notices.plan import OnNotice
from holdfast.core.run.course import RunState
from holdfast.core.run.flushing import flush_newest
from holdfast.core.run.holding import given_up_words, lost_words
from holdfast.core.run.state import State, Timer
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, EXIT_UNAVAILABLE

LAST = "the run ends here"
FLUSH_FAILED = (ev.FlushFailed, ev.FlushCommitFailed)


def over_in_a_gap(run: RunState, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
    """No attempt runs; if one did, the time since then was ours."""
    gap: list[act.Action] = []
    if run.ended_ns is not None:  # what a thread of the store tells may have been a moment before
        gap = [records.back_off(run.ended_ns, max(run.ended_ns, at_ns))]
    return [*gap, *over(run, at_ns, exit_code, words)]


def over(run: RunState, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
    """The end, but for what is only in memory: that is made durable first."""
    run.finish, run.choice_waits = act.Finish(exit_code, words), False
    ends: list[act.Action] = []
    if run.done_ns is None:  # else its attempt has no end yet: see `_ends`
        ends = [records.run_end(at_ns)]
        ends += [records.stopped(at_ns)] if run.stopping.is_by_person else []
    answer = [] if run.stopping.now else flush_newest(run, at_ns, LAST)
    if run.stopping.now or not _is_pending(run):
        return [*ends, *finished(run, at_ns)]
    run.state = State.FLUSHING
    limit_ns = at_ns + run.policy.store_patience_ns
    if run.done_ns is not None:  # a store that hangs has its patience, one that fails the hold
        limit_ns = max(limit_ns, run.holding.until_ns or at_ns + run.holding.limit_ns)
    words = "Writing the newest snapshot from memory to the run store"
    limit_ns = run.stopping.deadline_ns or limit_ns
    return [*ends, act.Say("info", words), act.SetTimer(Timer.FLUSH, limit_ns), *answer]


def go_on_flushing(run: RunState, event: ev.TierEvent) -> list[act.Action]:
    """News of what the end waits for: wait on, try again, or end."""
    if isinstance(event, ev.FlushFailed) and event.is_gone:
        answer = flush_newest(run, event.at_ns, LAST)
        return answer if _is_pending(run) else finished(run, event.at_ns)
    if isinstance(event, FLUSH_FAILED):
        if run.done_ns is not None and _is_ahead(run):
            held = run.holding.failed(event.at_ns, event.step, event.why)
            if event.at_ns < (run.holding.until_ns or 0):
                return [*held, *flush_again(run, event)]
        return [] if _is_pending(run) else finished(run, event.at_ns)
    answer = flush_newest(run, event.at_ns, LAST)
    if _is_pending(run):
        return answer
    return [
        *answer,
        *([] if _is_ahead(run) else end_hold(run, event.at_ns)),
        *finished(run, event.at_ns),
    ]


def end_hold(run: RunState, at_ns: int) -> list[act.Action]:
    """The last step is durable, if that was waited for."""
    return run.holding.saved(at_ns, run.saving.committed_step, run.said_frequency.words)


def flush_again(run: RunState, event: ev.TierEvent) -> list[act.Action]:
    """The last step is in memory, and the store did not take it: try again after a while."""
    is_failed = isinstance(event, FLUSH_FAILED)
    until_ns = run.holding.until_ns
    if not is_failed or until_ns is None:
        return []
    again_ns = run.saving.tier.flushes.again_ns
    if event.at_ns < until_ns:
        again_ns = min(again_ns, until_ns)
    return [act.SetTimer(Timer.HOLD, again_ns)]


def finished(run: RunState, at_ns: int) -> list[act.Action]:
    """Nothing happens any more. One that is still held is given up: nothing is tried again."""
    held = run.holding.until_ns is not None
    saving = [records.saving(at_ns, run.said_frequency.words)] if held else []
    was_kept, run.state = run.state is State.FLUSHING, State.OVER
    finish = _with_memory(run, run.finish, was_kept=was_kept)
    return [*saving, *_ends(run, finish), replace(finish, settled=_settled(run, finish))]


def _with_memory(run: RunState, finish: act.Finish, *, was_kept: bool) -> act.Finish:
    """The same, with what became of the run's memory; `was_kept`: the end has waited for it."""
    fastest, committed = run.saving.fastest_step, run.saving.committed_step
    if _is_ahead(run):
        # A run whose end is in memory is done only when that end is durable.
        if finish.exit_code == EXIT_DONE:
            words = given_up_words(fastest, committed, in_memory=True)
            return act.Finish(EXIT_UNAVAILABLE, words, leaves_memory=True)
        words = f"{finish.words}; memory holds more, and is kept for a start on this host"
        return act.Finish(finish.exit_code, words, leaves_memory=True)
    lost_step = run.saving.tier.lost_step
    if finish.exit_code == EXIT_DONE and lost_step > committed:
        return act.Finish(EXIT_UNAVAILABLE, lost_words(lost_step, committed))
    if was_kept:
        words = f"{finish.words}; step {committed} was saved from memory"
        return act.Finish(finish.exit_code, words)
    return finish


def _is_pending(run: RunState) -> bool:
    return run.saving.tier.is_pending(run.saving.committed_step)


def _is_ahead(run: RunState) -> bool:
    return run.saving.tier.is_ahead(run.saving.committed_step)


def _ends(run: RunState, finish: act.Finish) -> list[act.Action]:
    """The end of a run whose ranks were done: done only now that its last step is durable."""
    if run.done_ns is None:
        return []
    cause, words = ExitCause.DONE, run.finish.words
    if finish.exit_code != EXIT_DONE:
        cause, words = ExitCause.STORE_UNAVAILABLE, finish.words
    ends = records.end_of_attempt(run.attempt, run.done_ns, cause, words)
    # Nobody waits for a host then; whoever has it train further starts it again.
    after = [records.stopped(run.done_ns)] if finish.exit_code == EXIT_DONE else []
    return [*ends, records.run_end(run.done_ns), *after]


def _settled(run: RunState, finish: act.Finish) -> tuple[Notice, ...]:
    """Which announced ends the run has nothing left on this host for.

    Only of a run that has left on account of a notice: one that failed may be looked into, and
    after one that is done its user may have more to do here. Nor where steps are in memory alone,
    or not saved at all, but for the one that a rank may do while it is ended.
    """
    stop, policy = run.stop, run.policy.notice
    is_asked = policy.then is OnNotice.RELEASE and stop is not None and stop.notice
    has_left = finish.exit_code == EXIT_SAVED_START_ME_AGAIN and run.stopping.now is None
    lost = run.saving.fastest_step - run.saving.committed_step
    is_saved = not finish.leaves_memory and (lost <= 1 or not run.saving.joined)
    if not (is_asked and has_left and is_saved):
        return ()
    ends = [one for one in run.notices.announcements if policy.ends(one.action)]
    return tuple(telling.notice for one in ends for telling in one.tellings)


# --- while the end waits for what is in memory ----------------------------------------------


def on_flush_timer(run: RunState, event: ev.TimerFired) -> list[act.Action]:
    """What is in memory is tried again; or it was not made durable in time, and stays there."""
    if event.timer == Timer.HOLD:
        return flush_newest(run, event.at_ns, LAST)
    return finished(run, event.at_ns) if event.timer == Timer.FLUSH else []


def on_stop_asked_while_flushing(
    run: RunState, event: ev.StopAsked, *, is_announced: bool = False
) -> list[act.Action]:
    """The run is over already; there may be a deadline now. Nobody waits for the next try."""
    stopped = _stopped_while_flushing(run, event)
    by_ns = run.stopping.over_by_ns(event.deadline_ns, is_announced=is_announced)
    if event.deadline_ns is not None and by_ns is not None:
        return [*stopped, act.SetTimer(Timer.FLUSH, by_ns)]
    return stopped if _is_pending(run) else [*stopped, *finished(run, event.at_ns)]


def _stopped_while_flushing(
    run: RunState, event: ev.StopAsked | ev.StopNowAsked
) -> list[act.Action]:
    """A person wants that end now, too, if it is one that calls for another start."""
    is_theirs = run.stopping.heard_person(event)
    goes_on = run.finish.exit_code == EXIT_SAVED_START_ME_AGAIN
    return [records.stopped(event.at_ns)] if is_theirs and goes_on else []


def move_deadline_while_flushing(
    run: RunState, at_ns: int, announced_ns: int | None
) -> list[act.Action]:
    """What was announced is taken back: what it cut short has its time again."""
    by_ns = run.stopping.over_by_ns(announced_ns, is_announced=True)
    return [act.SetTimer(Timer.FLUSH, by_ns or at_ns + run.policy.store_patience_ns)]


def on_stop_now_while_flushing(run: RunState, event: ev.StopNowAsked) -> list[act.Action]:
    """What is in memory stays there."""
    stopped = _stopped_while_flushing(run, event)
    return [*stopped, run.stopping.note_now(event), *finished(run, event.at_ns)]


def on_interrupted_while_flushing(run: RunState, event: ev.Interrupted) -> list[act.Action]:
    """The first time nobody waits for the next try; the second time for nothing."""
    asked = run.stopping.interrupted(event)
    if isinstance(asked, ev.StopNowAsked):
        return on_stop_now_while_flushing(run, asked)
    return on_stop_asked_while_flushing(run, asked)
