"""Which host runs which rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.placement import Placement, place
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.save import events as news
from holdfast.core.save.flushes import Flushes, Wanted
from holdfast.core.save.policy import EverySteps
from holdfast.core.save.saving import Saving
from holdfast.core.save.tier_events import SetInBuffer


def test_neighbouring_ranks_share_a_host():
    placement = place(5, [0, 2])
    assert placement == Placement((0, 0, 0, 2, 2))
    assert placement.on(2) == (3, 4)
    assert placement.on(1) == ()


@given(st.integers(1, 40), st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True))
def test_every_rank_has_one_host_and_no_host_has_two_more_than_another(ranks, hosts):
    placement = place(ranks, hosts)
    assert placement.ranks == ranks
    on_each = [placement.on(host) for host in hosts]
    assert [rank for some in on_each for rank in some] == list(range(ranks))
    assert max(map(len, on_each)) - min(map(len, on_each)) <= 1


def test_without_a_host_there_is_no_placement():
    with pytest.raises(ValueError, match="no host to place 2 ranks on"):
        place(2, [])


def test_a_launch_says_where_each_rank_runs():
    machine = RunMachine(RunPolicy(ranks=4, hosts=2))
    machine.handle(ev.Opened(0, 0))
    actions = machine.handle(ev.Chosen(1, ev.SCRATCH, "from scratch"))
    (launch,) = [action for action in actions if isinstance(action, act.Launch)]
    assert launch.placement == Placement((0, 0, 1, 1))


def test_an_attempt_of_fewer_ranks_waits_for_no_more():
    """The world size is the attempt's: nobody waits for a rank that this one does not have."""
    saving = Saving(4, EverySteps(1))
    saving.begin(0, 0)
    saving.begin(1, 0, ranks=2)
    told = []
    for rank in (0, 1):
        saving.joined.add(rank)
        told += saving.hear(news.Progress(2, rank, 1))
    (order,) = told
    epoch, step = order.epoch, order.step
    for rank in (0, 1):
        told += saving.hear(news.Taken(3, rank, epoch, step))
        told += saving.hear(news.Snapped(3, rank, epoch, step))
        told += saving.hear(news.Durable(4, rank, epoch, step))
    assert news.Commit(epoch, step) in told


def test_a_set_of_more_ranks_than_run_now_is_whole_when_all_its_shards_are_durable():
    flushes = Flushes()
    flushes.want(0, Wanted(SetInBuffer(0, 1, 10, 0), "now"))
    told = [flushes.flushed(ev.Flushed(5, 0, rank, 1, 10, 3)) for rank in range(3)]
    assert told == [(), (), (act.CommitFlushed(0, 1, 10, 3),)]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=6))
def test_a_placement_in_brief_is_the_same(parts: list[tuple[int, int]]) -> None:
    placement = Placement(tuple(host for host, ranks in parts for _ in range(ranks)))
    assert Placement.of_runs(placement.runs) == placement


def test_many_hosts_with_as_many_ranks_each_are_few_words() -> None:
    assert place(80_000, range(10_000)).runs == [(0, 10_000, 8)]
    assert place(7, [0, 1, 3, 4]).runs == [(0, 2, 2), (3, 1, 2), (4, 1, 1)]
    with pytest.raises(ValueError, match="more than 1048576 ranks"):
        Placement.of_runs([(0, 1 << 40, 1)])
