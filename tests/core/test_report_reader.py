"""Reports of several hosts: what is told when the last has said so, and what at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hang.events import RankLook
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.save.ranks import RankAnswers

SEAL = act.Seal(0, 1, 5, 0)
FLUSH = act.Flush(0, 1, 5, 0, urgent=False, why="")


BEFORE = RankState(answers=RankAnswers(step=3))
NOW = 9  # when everything is heard


class Hosts:
    """Two hosts with two ranks each, and what is told of them."""

    def __init__(self, *wants: act.Action, launched: bool = True) -> None:
        self.reader = ReportReader(2, grace_ns=0)
        self.order = HostOrder()
        self.reports = [HostReport(), HostReport()]
        self.launch(0)
        self.want(*wants)
        if launched:
            for host in (0, 1):
                self.says(host, ev.Launched(host, 0))

    def launch(self, attempt: int) -> None:
        self.want(act.Launch(attempt, ev.Resume(None, 3, None), place(4, (0, 1))))
        for report in self.reports:
            report.begin(attempt, 3, 2)

    def want(self, *wants: act.Action) -> list[ev.Event]:
        for want in wants:
            self.order.want(want)
        return self.reader.ordered(self.order, NOW)

    def says(self, host: int, *facts: ev.Event) -> list[ev.Event]:
        for fact in facts:
            self.reports[host].note(fact)
        self.reports[host].number += 1
        return self.reader.read(host, self.reports[host], NOW, 0)

    def lose(self, host: int) -> list[ev.Event]:
        return self.reader.lose(host, NOW, 0)


def gone(rank: int, **how: bool) -> ev.RankExited:
    return ev.RankExited(NOW, 0, rank, 5, Exit(**how))


def test_an_attempt_is_launched_when_all_hosts_have_and_began_with_the_first() -> None:
    hosts = Hosts(launched=False)
    assert hosts.says(1, ev.Launched(7, 0), gone(2)) == []
    assert hosts.says(0, ev.Launched(8, 0)) == [ev.Launched(NOW, 0, began_ns=7), gone(2)]


def test_what_a_page_says_is_of_the_rank_that_the_placement_has_there() -> None:
    hosts = Hosts()
    hosts.reports[1].ranks = tuple(RankState(True, RankAnswers(step=step)) for step in (4, 5))
    joined = [one for one in hosts.says(1) if isinstance(one, ev.Joined)]
    assert [one.rank for one in joined] == [2, 3]


def test_pages_are_told_after_the_launch_and_before_an_end() -> None:
    hosts = Hosts(launched=False)
    hosts.reports[1].ranks = (RankState(True, RankAnswers(step=4)), BEFORE)
    assert hosts.says(1, ev.Launched(7, 0), gone(2)) == []
    told = hosts.says(0, ev.Launched(8, 0))
    assert [type(one) for one in told] == [ev.Launched, ev.Joined, ev.Heard, ev.RankExited]


def test_nothing_is_left_when_the_last_host_has_nothing() -> None:
    hosts = Hosts()
    assert hosts.says(0, gone(0), gone(1)) == [gone(0), gone(1)]
    assert hosts.says(0, ev.TreeGone(NOW, 0)) == []
    assert hosts.says(1, ev.TreeGone(NOW, 0)) == [ev.TreeGone(NOW, 0)]


def test_a_host_whose_processes_stay_is_lost_when_the_others_are_empty() -> None:
    hosts = Hosts()
    stuck = ev.HostLost(NOW, 0, "reboot it")
    assert hosts.says(0, stuck) == []
    assert hosts.says(1, ev.TreeGone(NOW, 0)) == [stuck]


def test_of_an_attempt_that_is_over_nothing_is_told() -> None:
    hosts = Hosts()
    hosts.launch(1)
    assert hosts.says(0, gone(0), ev.TreeGone(NOW, 0)) == []


def test_a_failed_launch_is_told_once() -> None:
    hosts = Hosts(launched=False)
    failed = ev.LaunchFailed(NOW, 0, 69, "no", True)
    assert hosts.says(0, failed, ev.TreeGone(NOW, 0)) == [failed]
    assert hosts.says(1, failed, ev.TreeGone(NOW, 0)) == [ev.TreeGone(NOW, 0)]


SEALED, NOT_SEALED = ev.Sealed(NOW, 0, 1, 5, 0), ev.SealFailed(NOW, 0, 1, 5, 0, "no space left")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [(SEALED, SEALED, SEALED), (NOT_SEALED, SEALED, NOT_SEALED), (SEALED, NOT_SEALED, NOT_SEALED)],
)
def test_a_set_is_sealed_when_all_hosts_have_and_else_it_failed(first, second, told) -> None:
    hosts = Hosts(SEAL)
    assert hosts.says(0, first) == []
    assert hosts.says(1, second) == [told]


def test_what_hosts_hold_alike_is_what_all_of_them_say() -> None:
    model, optimizer, other = ("model", "a"), ("optimizer", "b"), ("optimizer", "c")
    hosts = Hosts(SEAL)
    hosts.says(0, replace(SEALED, alike=(model, optimizer)))
    assert hosts.says(1, replace(SEALED, alike=(model, other))) == [replace(SEALED, alike=(model,))]


def flushed(rank: int) -> ev.Flushed:
    return ev.Flushed(NOW, 0, rank, 1, 5, of_ranks=4)


def test_a_flush_has_failed_when_no_host_reads_the_set_any_more() -> None:
    hosts = Hosts(FLUSH)
    failed = ev.FlushFailed(NOW, 0, 1, 5, "no space left")
    assert hosts.says(0, flushed(0), failed) == [flushed(0)]
    assert hosts.says(1, flushed(2)) == [flushed(2)]
    assert hosts.says(1, flushed(3)) == [flushed(3), failed]


def test_how_far_a_flush_is_counts_the_bytes_of_all() -> None:
    hosts = Hosts(FLUSH)
    assert hosts.says(0, ev.Flushing(NOW, 0, 1, 5, 10)) == [ev.Flushing(NOW, 0, 1, 5, 10)]
    assert hosts.says(1, ev.Flushing(NOW, 0, 1, 5, 30)) == [ev.Flushing(NOW, 0, 1, 5, 40)]


def test_one_look_is_as_old_as_the_oldest_of_its_parts() -> None:
    hosts = Hosts()
    looks = [ev.Examined(at_ns, 0, (RankLook(rank),)) for at_ns, rank in ((6, 0), (5, 2))]
    assert hosts.says(0, looks[0]) == []
    assert hosts.says(1, looks[1]) == [ev.Examined(5, 0, (RankLook(0), RankLook(2)))]
    assert hosts.says(1, looks[1]) == []  # each look is at all


def test_for_a_lost_host_somebody_else_speaks() -> None:
    hosts = Hosts(SEAL, FLUSH)
    hosts.says(0, SEALED, flushed(0), flushed(1))
    hosts.says(1, gone(2))
    told = hosts.lose(1)
    exits = [one for one in told if isinstance(one, ev.RankExited)]
    assert [(one.rank, one.exit.host_lost) for one in exits] == [(3, True)]
    assert [type(one) for one in told] == [ev.RankExited, ev.SealFailed, ev.FlushFailed]
    assert hosts.lose(1) == []
    assert hosts.says(1, gone(3)) == []  # it is not listened to any more
    assert hosts.says(0, ev.TreeGone(NOW, 0)) == [ev.TreeGone(NOW, 0)]


def test_how_ranks_ended_is_told_by_rank_and_of_a_lost_host_nothing_is_known() -> None:
    hosts = Hosts()
    hosts.lose(0)
    hosts.reports[1].ended = (RankEvidence(2, 1, ("No!",)), RankEvidence(3, -15))
    hosts.says(1, ev.TreeGone(NOW, 0))
    known = [(one.rank, one.code, one.last_lines) for one in hosts.reader.ended]
    assert known == [(0, None, ()), (1, None, ()), (2, 1, ("No!",)), (3, -15, ())]
    hosts.launch(1)
    assert hosts.reader.ended == ()


def test_what_a_host_had_done_when_it_was_lost_is_done() -> None:
    hosts = Hosts(SEAL, FLUSH)
    for host in (0, 1):
        hosts.says(host, SEALED)
    hosts.says(1, flushed(2), flushed(3))
    assert {type(one) for one in hosts.lose(1)} == {ev.RankExited}
    assert hosts.says(0, flushed(0), flushed(1)) == [flushed(0), flushed(1)]


def test_an_attempt_is_launched_once_also_where_a_host_was_replaced() -> None:
    hosts = Hosts()
    hosts.lose(1)
    hosts.reader.replace(1)
    hosts.reports[1] = HostReport()
    hosts.reports[1].begin(0, 3, 2)
    assert hosts.says(1, ev.Launched(9, 0)) == []


def test_an_empty_host_starts_what_is_ordered_after_the_loss() -> None:
    hosts = Hosts(launched=False)
    hosts.says(0, ev.Launched(1, 0))
    assert [type(one) for one in hosts.lose(1)][:2] == [ev.Launched, ev.RankExited]
    assert not hosts.reader.replace(1)
    hosts.lose(1)
    hosts.launch(1)
    assert hosts.reader.replace(1)


def test_what_a_lost_host_has_sealed_is_gone_with_it() -> None:
    hosts = Hosts(SEAL)
    hosts.says(1, SEALED)
    hosts.lose(1)
    assert [type(one) for one in hosts.says(0, SEALED)] == [ev.SealFailed]


def test_what_is_wanted_while_a_host_is_lost_it_cannot_do() -> None:
    hosts = Hosts()
    hosts.lose(1)
    hosts.want(SEAL, FLUSH)
    assert [type(one) for one in hosts.says(0, SEALED)] == [ev.SealFailed]
    assert [type(one) for one in hosts.says(0, flushed(0), flushed(1))] == [
        ev.Flushed, ev.Flushed, ev.FlushFailed
    ]  # fmt: skip
