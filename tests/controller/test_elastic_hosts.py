"""An elastic run among its hosts: whom the next attempt has, and what is said to the controller."""

from __future__ import annotations

from typing import Any

from holdfast.controller.elastic_hosts import ElasticHosts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.membership import HostLimits, Membership
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.run.machine import RunMachine, RunPolicy, State
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves

S = 1_000_000_000


class Conducted:
    """The real machine of a run of two hosts, of which one is enough; it trains on host 0 alone."""

    def __init__(self) -> None:
        policy = RunPolicy(ranks=2, hosts=2, is_elastic=True, save=saves.Never())
        self.machine = RunMachine(policy)
        self.now_ns = 0
        self.fed: list[ev.Event] = []
        self.answers: list[act.Action] = []
        self.members = Membership(2, 0, HostLimits())
        self.members.joined(0, 0, "a")
        self.elastic = ElasticHosts(self.members, ElasticLimits(1, S, S), self)
        self.feed(ev.Opened(0, 0))
        self.elastic.begins(0, self.members.close())
        self.feed(ev.Chosen(0, ev.SCRATCH, "from scratch"))
        self.feed(ev.Launched(0, 0))
        self.feed(ev.Joined(0, 0, 0))
        for step in (1, 2):
            self.feed(ev.Heard(step * S, 0, news.Progress(step * S, 0, step)))

    def feed(self, event: ev.Event) -> None:
        self.fed.append(event)
        self.answers += self.machine.handle(event)

    def told(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.fed if isinstance(one, kind)]

    def looks(self, at_s: int) -> None:
        self.members.heard(at_s * S, "a")
        self.members.heard(at_s * S, "b")
        self.elastic.look(at_s * S)


def test_the_attempt_has_the_ranks_of_the_hosts_that_are_there() -> None:
    run = Conducted()
    (launch,) = (one for one in run.answers if isinstance(one, act.Launch))
    assert launch.placement.hosts == (0,)


def test_a_host_that_is_back_is_taken_in_once_a_save_is_durable() -> None:
    run = Conducted()
    run.members.joined(10 * S, 1, "b")
    run.looks(10)
    run.looks(20)
    assert len(run.told(ev.SaveAsked)) == 1
    run.looks(21)
    assert run.told(ev.RestartAsked) == []
    (order,) = (
        one.what
        for one in run.answers
        if isinstance(one, act.CarryOut) and isinstance(one.what, news.PublishOrder)
    )
    of = order.epoch, order.step
    run.feed(ev.Heard(22 * S, 0, news.Progress(22 * S, 0, order.step)))
    for one in (news.Taken(22 * S, 0, *of), news.Snapped(22 * S, 0, *of)):
        run.feed(ev.Heard(22 * S, 0, one))
    run.feed(ev.Heard(22 * S, 0, news.Durable(22 * S, 0, *of)))
    run.feed(ev.Heard(23 * S, 0, news.Committed(23 * S, *of)))
    run.looks(24)
    assert len(run.told(ev.RestartAsked)) == 1
    assert run.machine.state is State.KILLING
    assert run.elastic.opens(in_memory=1000)  # whatever memory holds


def test_one_that_goes_meanwhile_is_not_restarted_for() -> None:
    run = Conducted()
    run.members.joined(10 * S, 1, "b")
    run.looks(10)
    run.looks(20)
    run.members.gone(21 * S, "b", "gone again")
    run.elastic.look(22 * S)
    run.elastic.look(2000 * S)
    assert len(run.told(ev.SaveAsked)) == 1
    assert run.told(ev.RestartAsked) == []


def test_a_save_that_does_not_get_done_is_not_asked_for_again_at_once() -> None:
    run = Conducted()
    run.members.joined(10 * S, 1, "b")
    for at_s in range(10, 1200, 5):
        run.looks(at_s)
    assert len(run.told(ev.SaveAsked)) == 1
    for at_s in range(1200, 1300, 5):
        run.looks(at_s)
    assert len(run.told(ev.SaveAsked)) == 2
    assert run.told(ev.RestartAsked) == []


def test_what_only_the_same_hosts_have_in_memory_is_not_thrown_away_for_one_more() -> None:
    run = Conducted()
    run.members.joined(10 * S, 1, "b")
    assert not run.elastic.opens(in_memory=2)  # nothing is in the store
    assert run.elastic.opens(in_memory=0)
    run.members.gone(11 * S, "b", "it is gone")
    run.members.gone(11 * S, "a", "it is gone")
    assert run.elastic.opens(in_memory=2)  # the same hosts are no more
