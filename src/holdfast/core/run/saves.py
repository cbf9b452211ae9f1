"""The saves of a run: what ranks and tiers tell of them, and what is ordered in answer.

When a save is due and how ranks agree on it is `core.save.saving`'s, what is
done about memory `core.run.flushing`'s.
"""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run import flushing
from holdfast.core.run.before import choose
from holdfast.core.run.course import RunState
from holdfast.core.run.over import end_hold, flush_again, go_on_flushing
from holdfast.core.run.state import State, Timer
from holdfast.core.save import events as news
from holdfast.core.save.agree import wake_at_ns

# What a dying attempt may still say: of its saves, and how far it came. A fault that strikes at the
# same step again must not pass for progress because more of the second attempt was heard in time.
LAST_WORDS = (
    news.Committed,
    news.Durable,
    news.Taken,
    news.Snapped,
    news.Progress,
)


def on_heard(run: RunState, event: ev.Heard) -> list[act.Action]:
    """News of the saves: what is due is ordered, committed, published."""
    saving, at_ns = run.saving, event.at_ns
    said = saving.hear(event.news)
    answer = run.carry_out(said) if said else []
    answer += flushing.flush_if_due(run, at_ns)
    answer += flushing.replicate_if_due(run, at_ns)
    slowest = saving.slowest_step
    if slowest > run.resume.step:
        run.hangs.stepped(at_ns)
        if slowest > run.high_water:
            run.high_water = slowest
    if isinstance(event.news, news.Committed):  # by now it is known what a save takes
        answer += run.look_at_notices(at_ns)
        answer += flushing.tell(run, at_ns)
    if isinstance(event.news, news.LoopEnded):
        run.until = max(run.until, event.news.until)
    answer += after_saving(run, at_ns)
    return answer


def on_heard_while_killing(run: RunState, event: ev.Heard) -> list[act.Action]:
    """A set that all have copied or written is still completed while its writers die.

    And how far they came counts.
    """
    heard = event.news
    if isinstance(heard, news.LoopEnded):  # no last save is ordered of ranks that die
        run.until = max(run.until, heard.until)
        heard = news.Progress(heard.at_ns, heard.rank, heard.step)
    if not isinstance(heard, LAST_WORDS):
        return []
    answer = run.carry_out(run.saving.hear_last_words(heard))
    run.high_water = max(run.high_water, run.saving.slowest_step)
    return answer + _end_training(run)


def on_save_took(run: RunState, event: ev.SaveTook) -> list[act.Action]:
    """The measured cost of a copy: the save policy wants to know it."""
    run.saving.note_cost(event.blocked_ns)
    return []


def on_save_asked(run: RunState, event: ev.SaveAsked) -> list[act.Action]:
    """Order a save at the next boundary that all ranks can answer."""
    answer = run.carry_out(run.saving.ask(event.at_ns, event.source, in_step=event.in_step))
    return answer + after_saving(run, event.at_ns)


def on_save_asked_in_a_gap(run: RunState, event: ev.SaveAsked) -> list[act.Action]:
    """Nothing trains: the next attempt saves its first step."""
    if event.in_step or run.stop is not None or run.stopping.now is not None:
        return []  # of a script that is being ended; nothing comes after a stop
    run.saving.note(event.source)
    return [act.Say("info", f"{event.source}: saving as soon as a step is done")]


def on_hosts_answered(run: RunState, event: ev.HostsAnswered) -> list[act.Action]:
    """Remember how far ahead an order must be."""
    run.saving.answered = event.took_ns, event.since_ns
    return []


def time_passed(run: RunState, at_ns: int) -> list[act.Action]:
    """The saves' timer has fired."""
    run.saves_wake_ns = None
    answer = run.carry_out(run.saving.hear(news.Tick(at_ns)))
    return answer + after_saving(run, at_ns)


def after_saving(run: RunState, at_ns: int) -> list[act.Action]:
    """Keep the saves' timer right, and see to it that ranks which may leave do leave."""
    wake_ns = wake_at_ns(run.saving.agreement)
    answer: list[act.Action] = []
    if wake_ns != run.saves_wake_ns:
        run.saves_wake_ns = wake_ns
        timer = Timer.SAVES
        answer.append(act.CancelTimer(timer) if wake_ns is None else act.SetTimer(timer, wake_ns))
    if run.holding.until_ns is not None and run.saving.agreement.is_saved:
        answer += end_hold(run, at_ns)
    answer += _end_training(run)
    if run.stopping.intent is not None and run.saving.agreement.is_over and not run.is_leaving:
        run.is_leaving = True
        if run.policy.is_supervised:  # scripts that run by themselves take their time
            answer.append(act.SetTimer(Timer.LEAVE, run.stopping.leave_limit_ns(at_ns)))
    return answer


def _end_training(run: RunState) -> list[act.Action]:
    """Once the last step is durable: it was the script's own end, and not the one it had meant.

    One rank's word is enough, which may fail before the others have told that their loop is over.
    """
    agreement = run.saving.agreement
    if run.is_end_told or agreement.fastest_step >= run.until or not agreement.is_saved:
        return []
    run.is_end_told = True
    return [act.EndTraining(run.attempt, agreement.fastest_step, run.until)]


# --- the memory tier ------------------------------------------------------------------------


def on_buffers_ready(run: RunState, event: ev.BuffersReady) -> list[act.Action]:
    """A rank can copy into memory that outlives it, or cannot any more."""
    tier, at_ns = run.saving.tier, event.at_ns
    was_there, was_lost = tier.is_there, tier.is_lost
    tier.has(event.rank, event.buffers)
    answer = flushing.tell(run, at_ns) if was_lost or tier.is_lost else []
    if tier.is_there and not was_there:
        answer += run.carry_out(run.saving.buffers_came(at_ns)) + after_saving(run, at_ns)
    return answer


def on_tier(run: RunState, event: ev.TierEvent) -> list[act.Action]:
    """A set in memory is sealed, or was flushed, or was not: whoever waits for it goes on."""
    is_running = run.state is State.RUNNING
    answer = flushing.hear(run, event)
    if is_running:
        if isinstance(event, ev.Sealed):  # after the stop was asked for
            answer += flush_before_leaving(run, event.at_ns)
        if isinstance(event, ev.FlushCommitted):
            answer += run.look_at_notices(event.at_ns)
        return answer + flush_again(run, event) + after_saving(run, event.at_ns)
    if run.choice_waits and not run.saving.tier.is_sealing:
        return [*answer, act.CancelTimer(Timer.SEAL), *choose(run, event.at_ns)]
    return answer + go_on_flushing(run, event) if run.state is State.FLUSHING else answer


def flush_before_leaving(run: RunState, at_ns: int) -> list[act.Action]:
    """With a deadline what is in memory is flushed first: that much is safe in any case."""
    if run.stop is None or run.stop.deadline_ns is None:
        return []
    return flushing.flush_newest(run, at_ns, run.stop.source)
