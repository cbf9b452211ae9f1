"""A run that is warned: what is announced is said, put on record, and acted on in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.durations import in_words
from holdfast.core.notices.board import SAME_NS, Change, News
from holdfast.core.notices.plan import NoticePlan, What
from holdfast.core.run.course import RunState
from holdfast.core.run.flushing import flush_newest
from holdfast.core.run.over import move_deadline_while_flushing, on_stop_asked_while_flushing
from holdfast.core.run.saves import after_saving
from holdfast.core.run.state import State, Timer
from holdfast.core.run.stops import move_deadline, on_stop_asked

OnTimer = Callable[[RunState, ev.TimerFired], list[act.Action]]


def on_noticed(run: RunState, event: ev.Noticed) -> list[act.Action]:
    """Tell what is new in it, and save and leave when it is time: now, or by a timer."""
    news = run.notices.take(event.notice)
    is_news = news.change not in (Change.NOTHING, Change.CONFIRMED)
    answer: list[act.Action] = []
    if news.change is not Change.NOTHING:
        answer.append(records.announced(event.at_ns, run.notices.announcements))
    if is_news:
        answer += _say_news(run, news, event)
    elif news.change is Change.CONFIRMED:
        answer += _is_sooner(news, event.at_ns)
    return answer + _act(run, event.at_ns, is_news=is_news)


def on_noticed_while_flushing(run: RunState, event: ev.Noticed) -> list[act.Action]:
    """The run is over already; there may be a deadline now."""
    news = run.notices.take(event.notice)
    one = news.after or news.before
    if one is None or not run.policy.notice.ends(one.action):
        return []
    deadline_ns, words = _earliest_end(run)
    if news.after is None:
        return move_deadline_while_flushing(run, event.at_ns, deadline_ns)
    asked = ev.StopAsked(event.at_ns, words, deadline_ns, notice=True)
    return on_stop_asked_while_flushing(run, asked, is_announced=True)


def or_notice(on_timer: OnTimer) -> OnTimer:
    """The handler of a state's timers, where that of notices is another matter."""

    @wraps(on_timer)
    def handler(run: RunState, event: ev.TimerFired) -> list[act.Action]:
        if event.timer != Timer.NOTICE:
            return on_timer(run, event)
        run.notices.fired()
        return _act(run, event.at_ns, is_news=False)

    return handler


def on_timer_while_killing(_: RunState, __: ev.TimerFired) -> list[act.Action]:
    """What an announced end asks for is remembered; other timers have nothing to say here."""
    return []


# --- what is said ---------------------------------------------------------------------------


def _say_news(run: RunState, news: News, event: ev.Noticed) -> list[act.Action]:
    """One sentence for each change; an end that is announced goes on record."""
    one = news.after
    if one is None:
        source = news.before.words if news.before else event.notice.source
        goes_on = "training goes on" if run.stop is None else "what is under way is completed"
        return [act.Say("info", f"{source}: {news.reason}; {goes_on}")]
    when = ""
    if one.deadline_ns is not None:
        is_past = (event.notice.deadline_ns or one.deadline_ns) <= event.at_ns
        when = ", at any moment" if is_past else f", in {in_words(one.deadline_ns - event.at_ns)}"
    said = act.Say("warning", f"{news.reason}{when}")
    if not run.policy.notice.ends(one.action):
        return [said]
    run.stopping.announced()
    return [records.end_announced(event.at_ns, one), said]


def _is_sooner(news: News, at_ns: int) -> list[act.Action]:
    """Another source's own deadline for what is known already, where the plan now goes by that."""
    was = news.before.deadline_ns if news.before else None
    now = news.after.deadline_ns if news.after else None
    if was is None or now is None or was - now < SAME_NS:
        return []
    return [act.Say("info", f"{news.reason}, in {in_words(now - at_ns)}")]


# --- what is done ---------------------------------------------------------------------------


def _act(run: RunState, at_ns: int, *, is_news: bool) -> list[act.Action]:
    """Do what the plan says for now, and have the timer fire for what it says for later."""
    decided, reason = run.notices.decide(run.saving, at_ns)
    one = decided.about
    if run.stop is not None:  # it is leaving already
        return run.notices.wake(run.saving, None) + _leave_by(run, at_ns)
    if one is None:
        return run.notices.wake(run.saving, None)
    answer: list[act.Action] = []
    asked = ev.StopAsked(at_ns, one.words, one.deadline_ns, notice=True)
    if decided.at_ns > at_ns:
        if is_news:
            leaving = " and leaving" if decided.what is What.STOP else ""
            words = f"saving{leaving} in {in_words(decided.at_ns - at_ns)}, as late as is safe"
            words += f", and saving once now: {reason}" if decided.save_first else ""
            answer.append(act.Say("info", words))
        if decided.save_first and run.state is State.RUNNING:
            answer += _save(run, at_ns, one.words)
            run.notices.begun(one, decided.deadline_ns)
        return answer + run.notices.wake(run.saving, decided.at_ns)
    answer += run.notices.wake(run.saving, None)
    if decided.what is What.STOP:
        answer += _too_short(run, decided, at_ns)
        return answer + on_stop_asked(run, asked, is_announced=True)
    if run.state is not State.RUNNING:
        return answer  # there is nothing to save; the next launch looks again
    answer += _too_short(run, decided, at_ns)
    answer.append(act.Say("info", f"{one.words}: {reason}; training goes on"))
    answer += _save(run, at_ns, one.words)
    run.notices.served(one, decided.deadline_ns)
    return answer + run.look_at_notices(at_ns)


def _leave_by(run: RunState, at_ns: int) -> list[act.Action]:
    """A stop under way goes by the earliest end that is announced now: sooner, later, or none."""
    deadline_ns, words = _earliest_end(run)
    answer = move_deadline(run, at_ns, deadline_ns)
    if deadline_ns is not None:
        asked = ev.StopAsked(at_ns, words, deadline_ns, notice=True)
        answer += on_stop_asked(run, asked, is_announced=True)
    return answer


def _earliest_end(run: RunState) -> tuple[int | None, str]:
    """The deadline, and whose it is."""
    ends = [one for one in run.notices.announcements if run.policy.notice.ends(one.action)]
    dated = [(one.deadline_ns, one.words) for one in ends if one.deadline_ns is not None]
    return min(dated, default=(None, ""))


def _save(run: RunState, at_ns: int, why: str) -> list[act.Action]:
    """What is in memory first, then a step of its own: whatever comes, that much is safe."""
    answer = flush_newest(run, at_ns, why)
    answer += run.carry_out(run.saving.ask(at_ns, why))
    return answer + after_saving(run, at_ns)


def _too_short(run: RunState, decided: NoticePlan, at_ns: int) -> list[act.Action]:
    """A durable save is not likely to be done in time: say what is at risk."""
    if not decided.is_short or decided.about is None:
        return []
    left_ns = (decided.deadline_ns or at_ns) - at_ns
    needs = f"a save to the run store takes about {in_words(run.saving.save_time.need_ns)}"
    risk = run.saving.what_is_saved
    newest = run.saving.tier.newest
    if newest is not None and newest.step > run.saving.committed_step:
        risk += f"; step {newest.step} is in this host's memory"
    return [act.Say("warning", f"{in_words(left_ns)} are left, and {needs}: {risk}")]
