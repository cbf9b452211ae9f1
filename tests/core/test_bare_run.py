"""What is decided for scripts that nobody supervises, where that differs (see bare_*.txt, too)."""

from __future__ import annotations

from typing import TypeVar

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hosts.messages import decode_report, encode_report
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.machine import RunMachine, State, Timer
from holdfast.core.run.rollback import Wish
from holdfast.core.save import policy as saves
from holdfast.core.save.choose import SeenSets, StoredSet
from holdfast.session.controlling import bare_policy

T = TypeVar("T")
OLD, NEW = StoredSet(0, 4), StoredSet(0, 8)
SEEN = SeenSets("r", 0, ((0, None),), (OLD, NEW))


def machine(ranks: int = 1) -> RunMachine:
    return RunMachine(bare_policy(saves.Never(), ranks, 1800, ranks))


def only(kind: type[T], actions: tuple[act.Action, ...]) -> T:
    (found,) = (one for one in actions if isinstance(one, kind))
    return found


def stop(at_ns: int, by_ns: int | None) -> ev.StopAsked:
    return ev.StopAsked(at_ns, "SIGTERM", by_ns, notice=True)


def test_a_stop_before_anything_was_chosen_waits_for_the_script() -> None:
    made = machine()
    assert only(act.SetTimer, made.handle(stop(1, 100))) == act.SetTimer(Timer.DEADLINE, 100)
    made.handle(ev.Opened(2, 0))
    launch = only(act.Launch, made.handle(ev.SetsSeen(3, SeenSets("r", -1))))
    made.handle(ev.Launched(4, launch.attempt))
    assert made.state is State.RUNNING
    assert made.stop is not None


@pytest.mark.parametrize("before", [[], [ev.Opened(2, 0)], [ev.Opened(2, 0), ev.SetsSeen(3, SEEN)]])
def test_its_deadline_ends_the_script_wherever_it_is(before: list[ev.Event]) -> None:
    made = machine()
    made.handle(stop(1, 100))
    for event in before:
        made.handle(event)
    finish = only(act.Finish, made.handle(ev.TimerFired(100, Timer.DEADLINE)))
    assert finish.exit_code == 75
    assert made.handle(ev.TimerFired(100, Timer.DEADLINE)) == ()


@pytest.mark.parametrize("before", [[], [ev.Opened(2, 0)], [ev.Opened(2, 0), ev.SetsSeen(3, SEEN)]])
def test_to_stop_now_ends_it_wherever_it_is(before: list[ev.Event]) -> None:
    made = machine()
    for event in before:
        made.handle(event)
    answer = made.handle(ev.StopNowAsked(4, "holdfast stop by me"))
    assert only(act.Finish, answer).exit_code == 75
    assert not any(isinstance(one, act.Kill) for one in answer)  # there is no attempt to end


def test_the_second_ctrl_c_ends_it_before_anything_was_chosen() -> None:
    made = machine()
    made.handle(ev.Interrupted(1, "Ctrl-C"))
    assert made.state is State.NEW
    assert only(act.Finish, made.handle(ev.Interrupted(2, "Ctrl-C"))).exit_code == 75
    assert made.state is State.OVER


def test_what_it_was_to_start_from_in_memory_is_made_durable_when_its_deadline_comes() -> None:
    made = machine()
    made.handle(ev.Opened(0, 1))
    in_memory = ev.Resume("0000-000005", 5, 0, buffer=1, committed_step=3)
    made.handle(ev.Chosen(1, in_memory, "from memory"))
    made.handle(stop(2, 100))
    answer = made.handle(ev.TimerFired(100, Timer.DEADLINE))
    assert only(act.Flush, answer).step == 5
    assert made.state is State.FLUSHING


def test_a_set_that_a_rank_cannot_read_is_passed_over() -> None:
    """It costs a sentence: the attempt is not on record, and its number is still free."""
    made = machine(2)
    made.handle(ev.Opened(0, 1))
    first = only(act.Launch, made.handle(ev.SetsSeen(1, SEEN)))
    assert (first.attempt, first.resume.set_name) == (1, NEW.name)
    assert only(act.Choose, made.handle(ev.SetRefused(2, 1, "rank 1: a flipped bit")))
    second = only(act.Launch, made.handle(ev.SetsSeen(3, SEEN)))
    assert (second.attempt, second.resume.set_name) == (1, OLD.name)
    assert made.handle(ev.SetRefused(4, 0, "of an earlier attempt")) == ()


def test_what_somebody_wished_for_stands_until_a_set_for_it_is_read() -> None:
    made = machine()
    wish = Wish("w", 8, 0, "holdfast rollback by me", is_from_script=False)
    made.handle(ev.Opened(0, 1, wishes=(wish,)))
    first = only(act.Launch, made.handle(ev.SetsSeen(1, SEEN)))
    again = only(act.Choose, made.handle(ev.SetRefused(2, 1, "a flipped bit")))
    second = only(act.Launch, made.handle(ev.SetsSeen(3, SEEN)))
    assert again.wish == wish
    assert first.rollback == second.rollback
    assert second.rollback is not None
    assert second.rollback.ids == ("w",)


def test_where_no_set_can_be_read_the_run_is_over() -> None:
    made = machine()
    made.handle(ev.Opened(0, 1))
    for at_ns in (1, 3):
        made.handle(ev.SetsSeen(at_ns, SEEN))
        made.handle(ev.SetRefused(at_ns + 1, 1, "a flipped bit"))
    finish = only(act.Finish, made.handle(ev.SetsSeen(5, SEEN)))
    assert finish.exit_code == 69
    assert "none can be trusted" in finish.words


def test_a_rank_that_ended_early_is_told_in_its_own_words() -> None:
    made = machine(2)
    made.handle(ev.Opened(0, 0))
    made.handle(ev.SetsSeen(1, SeenSets("r", -1)))
    made.handle(ev.Launched(2, 0))
    words = "the script ended before its last step was done"
    made.handle(ev.RankExited(5, 0, 1, 5, Exit(report=RankReport("", words, "", ""))))
    assert made.state is State.RUNNING
    made.handle(ev.RankExited(6, 0, 0, 6, Exit(code=0, finished=True)))
    end = only(act.EndAttempt, made.handle(ev.TreeGone(7, 0)))
    assert (end.cause, end.words) == ("failed", f"rank 1: {words}")
    assert end.restart is None


def test_a_host_tells_of_each_stop_that_its_rank_was_asked_for() -> None:
    """A deadline is not lost where Ctrl-C comes before the first was read."""
    report = HostReport(1)
    asked = [stop(5, 100), ev.StopAsked(6, "Ctrl-C on rank 1", None, notice=False)]
    for event in asked:
        report.note(event)
    told = ReportReader(1, grace_ns=0).read(0, decode_report(encode_report(report)), 6, 0)
    assert [one.source for one in told if isinstance(one, ev.StopAsked)] == [
        "SIGTERM", "Ctrl-C on rank 1",
    ]  # fmt: skip
