"""The host daemon's decisions: single stories, and random ones with an adversary for a world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.daemon import events as ev
from holdfast.core.daemon.autocheckpoint import Autocheckpoint, Policy
from holdfast.core.notices.board import SAME_NS, Notice, NoticeAction, NoticeState

S = 10**9
POLICY = Policy(grace_ns=60 * S, margin_ns=5 * S)


def holder(pid: int, works_for: ev.DeviceHolder | None = None) -> ev.DeviceHolder:
    boss = works_for and works_for.process
    return ev.DeviceHolder(ev.ProcessId(pid, pid * 100), "python", ("/dev/accel0",), works_for=boss)


def notice(at_ns: int, deadline_ns: int | None = None, source: str = "gce", **facts) -> Notice:
    action = facts.pop("action", NoticeAction.TERMINATE)
    return Notice(source, action, at_ns, topic="t", deadline_ns=deadline_ns, **facts)


class Story:
    """Feeds a machine, and answers its looks with who is there."""

    def __init__(self, machine: Autocheckpoint | None = None):
        self.machine = machine or Autocheckpoint(POLICY)
        self.there: list[ev.DeviceHolder] = []
        self.now_ns = 1000 * S
        self.signals: list[int] = []
        self.releases = 0
        self.reports: list[ev.RoundReport] = []
        self.said: list[str] = []

    def feed(self, event: ev.Event) -> None:
        todo = [event]
        while todo:
            for action in self.machine.handle(todo.pop(0)):
                if isinstance(action, ev.LookAtProcesses):
                    todo.append(self.looked(action.is_thorough))
                elif isinstance(action, ev.Signal):
                    self.signals.append(action.holder.process.pid)
                elif isinstance(action, ev.Report):
                    self.reports.append(action.round)
                elif isinstance(action, ev.ReleaseHost):
                    self.releases += 1
                else:
                    self.said.append(action.words)

    def looked(self, is_thorough: bool = True) -> ev.Looked:
        began_ns, self.now_ns = self.now_ns, self.now_ns + S // 100
        return ev.Looked(self.now_ns, began_ns, tuple(self.there), is_thorough)

    def notice(self, deadline_s: float | None = None, **facts) -> None:
        deadline_ns = None if deadline_s is None else self.now_ns + int(deadline_s * S)
        self.feed(ev.NoticeHeard(self.now_ns, notice(self.now_ns, deadline_ns, **facts)))

    def withdraw(self, **facts) -> None:
        self.notice(state=NoticeState.WITHDRAWN, **facts)

    def ends(self, one: ev.DeviceHolder) -> None:
        self.there.remove(one)
        self.feed(ev.Ended(self.now_ns, one.process))

    def wait(self, seconds: float) -> None:
        """Time passes; the machine is told when it wants to be."""
        until_ns = self.now_ns + int(seconds * S)
        while (at_ns := self.machine.next_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.feed(ev.TimeCame(self.now_ns))
        self.now_ns = max(self.now_ns, until_ns)


def test_holders_get_one_signal_each_and_the_host_goes_when_all_have_ended():
    story = Story()
    trainer, other = story.there = [holder(5), holder(6)]
    story.notice()
    assert (story.signals, story.releases) == ([5, 6], 0)
    story.wait(3)
    story.ends(trainer)
    assert (story.signals, story.releases) == ([5, 6], 0)
    story.ends(other)
    assert (story.signals, story.releases) == ([5, 6], 1)
    (report,) = story.reports
    assert report.outcome is ev.RoundOutcome.CLEAR
    assert [one.fate for one in report.entries] == ["ended after 3.0 s", "ended after 3.0 s"]


def test_who_ignores_the_signal_is_left_when_the_grace_period_is_over():
    story = Story()
    story.there = [holder(5)]
    story.notice()
    story.wait(59)
    assert story.releases == 0
    story.wait(2)
    assert (story.signals, story.releases) == ([5], 1)
    assert [one.fate for one in story.reports[0].left_behind] == ["was left behind"]
    assert story.reports[0].outcome is ev.RoundOutcome.OVERDUE


@pytest.mark.parametrize(("deadline_s", "over_s"), [(40, 35), (8, 6), (1000, None), (62, 57)])
def test_a_deadline_less_a_margin_ends_it_and_a_distant_one_begins_it_late(deadline_s, over_s):
    story = Story()
    story.there = [holder(5)]
    story.notice(deadline_s)
    if over_s is None:  # it is told ahead of time: the job trains on
        assert story.signals == []
        story.wait(1000 - 65 - 0.5)
        assert story.signals == []
        story.wait(1)
        over_s = 59
    assert story.signals == [5]
    story.wait(over_s - 0.5)
    assert story.releases == 0
    story.wait(1.5)
    assert story.releases == 1


def test_a_sooner_deadline_shortens_the_round_that_is_under_way():
    story = Story()
    story.there = [holder(5)]
    story.notice(50)
    story.notice(20)
    story.wait(14)
    assert story.releases == 0
    story.wait(2)
    assert (story.releases, story.signals) == (1, [5])


def test_a_late_comer_gets_its_signal_and_is_waited_for():
    story = Story()
    first, late = holder(5), holder(7)
    story.there = [first]
    story.notice()
    story.there.append(late)
    story.wait(1.5)
    assert story.signals == [5, 7]
    story.ends(first)
    assert story.releases == 0
    story.ends(late)
    assert story.releases == 1


def test_who_comes_during_the_last_look_or_after_it_gets_a_signal_while_there_is_time():
    story = Story()
    trainer, missed, later, too_late = holder(5), holder(6), holder(7), holder(8)
    story.there = [trainer]
    story.notice()
    story.ends(trainer)  # its end asks for looks, and two that find nobody release the host
    assert (story.signals, story.releases) == ([5], 1)
    story.there = [missed]  # it came while the second of them was taken
    story.wait(0)
    assert story.signals == [5, 6]
    assert "has come when the host was released" in story.said[-1]
    story.wait(20)
    story.there.append(later)
    story.wait(5.5)
    assert story.signals == [5, 6, 7]
    story.ends(missed)
    story.wait(60)
    story.there.append(too_late)
    story.wait(100)
    assert (story.signals, story.releases) == ([5, 6, 7], 1)
    assert story.machine.next_ns() is None


def test_a_notice_that_is_withdrawn_after_the_release_has_nobody_signalled():
    story = Story()
    story.notice()
    assert story.releases == 1
    story.withdraw()
    story.there = [holder(5)]
    story.wait(100)
    assert (story.signals, story.machine.next_ns()) == ([], None)


def test_a_child_that_one_look_missed_is_found_by_the_next():
    story = Story()
    parent = holder(5)
    story.there = [parent]
    story.notice()
    story.there = []
    actions = story.machine.handle(ev.Ended(story.now_ns, parent.process))
    assert actions[-1] == ev.LookAtProcesses(is_thorough=True)
    assert story.machine.handle(story.looked()) == [ev.LookAtProcesses(is_thorough=True)]
    story.there = [holder(8)]
    story.feed(story.looked())
    assert (story.signals, story.releases) == ([5, 8], 0)


def test_a_look_begun_before_the_last_end_does_not_release():
    story = Story()
    story.there = [holder(5)]
    story.notice()
    stale = replace(story.looked(), holders=())
    story.machine.handle(ev.Ended(story.now_ns, story.there[0].process))
    for _ in range(3):
        assert story.machine.handle(stale) == [ev.LookAtProcesses(is_thorough=True)]


def test_a_look_begun_before_the_notice_counts_for_nothing():
    story = Story()
    story.there = [holder(5)]
    stale = story.looked()
    notice_then = ev.NoticeHeard(story.now_ns, notice(story.now_ns))
    assert story.machine.handle(notice_then)[-1] == ev.LookAtProcesses(is_thorough=False)
    assert story.machine.handle(stale) == []


def test_workers_are_waited_for_and_signalled_only_once_they_are_orphans():
    story = Story()
    trainer = holder(5)
    worker = holder(6, works_for=trainer)
    story.there = [trainer, worker]
    story.notice()
    assert story.signals == [5]
    story.ends(trainer)
    assert story.releases == 0
    story.there = [replace(worker, works_for=None)]
    story.wait(1.5)
    assert (story.signals, story.releases) == ([5, 6], 0)
    story.ends(story.there[0])
    assert story.releases == 1


def test_a_withdrawn_notice_signals_nobody_new_and_releases_nothing():
    story = Story()
    story.there = [holder(5)]
    story.notice()
    story.withdraw()
    story.there.append(holder(6))
    story.wait(100)
    assert (story.signals, story.releases) == ([5], 0)
    assert story.reports[0].outcome is ev.RoundOutcome.WITHDRAWN
    story = Story()
    story.there = [holder(5)]
    story.notice(1000)
    story.withdraw()
    story.wait(2000)
    assert (story.signals, story.releases) == ([], 0)


def test_one_notice_is_one_round_and_a_second_one_signals_only_who_had_no_signal():
    story = Story()
    story.there = [holder(5)]
    story.notice()
    story.wait(61)
    story.notice()  # told again
    story.notice(source="aws")  # and by another source
    story.wait(100)
    assert (story.signals, story.releases) == ([5], 1)
    story.withdraw()
    story.withdraw(source="aws")
    story.there.append(holder(6))
    story.notice()
    story.wait(100)
    assert (story.signals, story.releases) == ([5, 6], 2)
    fates = [one.fate for one in story.reports[1].entries]
    assert fates == ["was left behind (was signalled in an earlier round)", "was left behind"]


def test_two_events_at_a_time_are_one_round_by_the_earlier_deadline():
    story = Story()
    story.there = [holder(5)]
    story.notice(event_id="a")
    story.notice(20, event_id="b")
    story.wait(16)
    assert (story.signals, story.releases) == ([5], 1)
    story.wait(100)
    assert story.releases == 1


def test_another_date_told_after_the_release_is_another_round():
    story = Story()
    story.there = [holder(5)]
    story.notice(30)
    story.wait(26)
    assert story.releases == 1
    story.notice(5000)
    story.there = [holder(6)]
    story.wait(4900)
    assert story.signals == [5]
    story.wait(100)
    assert (story.signals, story.releases) == ([5, 6], 2)


def test_an_agent_that_is_started_again_signals_nobody_whom_it_has_signalled_before():
    story = Story(Autocheckpoint(POLICY, [holder(5).process]))
    story.there = [holder(5), holder(6)]
    story.notice()
    assert story.signals == [6]


@pytest.mark.parametrize(
    ("facts", "acts"),
    [
        ({"action": NoticeAction.REBALANCE}, False),
        ({"action": NoticeAction.DRAIN}, False),
        ({"action": NoticeAction.LIVE_MIGRATION}, True),
        ({"action": NoticeAction.REBOOT}, True),
        ({"state": NoticeState.STARTED}, False),
        ({"state": NoticeState.STARTED, "lead_ns": 30 * S}, True),
    ],
)
def test_what_begins_a_round(facts, acts):
    story = Story()
    story.there = [holder(5)]
    story.notice(**facts)
    assert story.signals == ([5] if acts else [])
    assert acts or "nothing is done" in story.said[0]


def test_a_signal_that_is_refused_is_not_tried_again_and_waited_for():
    story = Story()
    story.there = [holder(5)]
    story.notice()
    story.feed(ev.Refused(story.now_ns, holder(5).process, "permission denied"))
    story.wait(61)
    assert (story.signals, story.releases) == ([5], 1)
    assert story.reports[0].entries[0].fate == "was left behind (permission denied)"


# --- random stories ---------------------------------------------------------------------------

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("notice"), st.integers(0, 2), st.sampled_from([None, 3, 20, 90, 400])),
        st.tuples(st.just("withdraw"), st.integers(0, 2), st.none()),
        st.tuples(st.just("arrive"), st.integers(0, 3), st.none()),
        st.tuples(st.just("end"), st.integers(0, 3), st.none()),
        st.tuples(st.just("miss"), st.integers(1, 1), st.none()),
        st.tuples(st.just("refuse"), st.integers(0, 3), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.2, 1, 7, 60, 300]), st.none()),
        st.tuples(st.just("restart"), st.just(0), st.none()),
    ),
    max_size=40,
)


@given(MOVES)
@example([("arrive", 0, None), ("notice", 0, 3), ("notice", 0, None), ("wait", 7, None)])
@example([("arrive", 0, None), ("notice", 0, 20), ("notice", 0, 20), ("wait", 60, None)])
def test_whatever_happens_nobody_is_signalled_twice_and_no_host_goes_early(moves):
    story = Story()
    born = 10
    standing: dict[int, int | None] = {}  # what is announced, and for when
    judged = 0
    for what, number, more in moves:
        if what == "notice":
            if more is not None or number not in standing:  # what was told once stays told
                standing[number] = None if more is None else story.now_ns + more * S
            story.notice(more, event_id=str(number))
        elif what == "withdraw":
            standing.pop(number, None)
            story.withdraw(event_id=str(number))
        elif what == "arrive":
            boss = story.there[number] if number < len(story.there) else None
            story.there.append(holder(born, works_for=boss if number % 2 else None))
            born += 1
        elif what == "end" and number < len(story.there):
            story.ends(story.there[number])
        elif what == "miss" and story.there:
            # One look that sees nobody, as when all fork just then: no release comes of it.
            for action in story.machine.handle(replace(story.looked(), holders=())):
                assert isinstance(action, ev.LookAtProcesses)
        elif what == "refuse" and number < len(story.there):
            story.feed(ev.Refused(story.now_ns, story.there[number].process, "refused"))
        elif what == "wait":
            story.wait(number)
        elif what == "restart":
            story.machine = Autocheckpoint(POLICY, story.machine.signalled)
        assert len(story.signals) == len(set(story.signals)), "signalled twice"
        for report in story.reports[judged:]:
            if report.outcome is ev.RoundOutcome.WITHDRAWN:
                continue
            deadlines = [at_ns - POLICY.margin_ns for at_ns in standing.values() if at_ns]
            # A deadline that is told again, and is this little later, is the same one.
            over_ns = report.over_ns + SAME_NS
            is_late = over_ns >= min([report.began_ns + POLICY.grace_ns, *deadlines])
            assert is_late or not story.there, "released early"
            assert standing, "released for nothing"
        judged = len(story.reports)
        assert story.releases == sum(
            report.outcome is not ev.RoundOutcome.WITHDRAWN for report in story.reports
        )
