"""Replicas that were the same and are not any more: whose are wrong, and what a run does then."""

from __future__ import annotations

import json

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.event_json import decode, encode
from holdfast.core.hosts.copies import InMemory
from holdfast.core.hosts.messages import decode_report, encode_report
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.machine import RunMachine, RunPolicy, State
from holdfast.core.save import policy as saves
from holdfast.core.save.choose import SealedSet
from holdfast.core.save.corruption import Replica, ReplicaDifference, judge, merged
from holdfast.core.save.tier_events import SetInBuffer


def differ(array: str, *digests: str) -> ReplicaDifference:
    return ReplicaDifference(array, tuple(Replica(rank, one) for rank, one in enumerate(digests)))


def test_the_majority_is_right_and_of_two_nobody_knows() -> None:
    three = (0, 1, 2)
    table = (
        ((differ("w", "a", "b", "a"),), three, (1,)),
        ((differ("w", "a", "b", "a"), differ("m", "c", "d", "c")), three, (1,)),
        ((differ("w", "a", "b"),), three, (0, 1)),
        ((differ("w", "a", "b", "c"),), three, (0, 1, 2)),
        ((differ("w", "a", "b", "a"), differ("m", "c", "c", "d")), three, (1, 2)),
        ((differ("w", "a", "a", "a", "b"),), (0, 0, 1, 1), (1,)),
        ((differ("w", "a", "a", "b", "b"),), (0, 0, 1, 1), (0, 1)),
    )
    for differing, hosts, wanted in table:
        found, words = judge(differing, hosts)
        assert found == wanted, differing
        assert differing[0].array in words


def test_what_each_host_has_seen_of_a_ring_names_the_one() -> None:
    edges = (
        (ReplicaDifference("w", (Replica(1, "b"), Replica(0, "a"))),),
        (ReplicaDifference("w", (Replica(2, "a"), Replica(1, "b"))),),
    )
    assert judge(merged(edges), (0, 1, 2))[0] == (1,)


def test_a_difference_is_told_though_another_host_could_not_copy() -> None:
    reader = ReportReader(2, 0)
    launch = act.Launch(0, ev.SCRATCH, place(2, [0, 1]))
    found = differ("w", "a", "b")
    told: list[ev.Event] = []
    order = HostOrder()
    order.want(launch)
    order.want(act.Replicate(0, 1, 10, 0))
    reader.ordered(order, 1)
    outcomes = (ev.Replicated(5, 0, 1, 10, (found,)), ev.NotReplicated(5, 0, 1, 10, "no room"))
    for number, outcome in enumerate(outcomes):
        report = HostReport(1, 0)
        report.note(outcome)
        told += reader.read(number, report, 5, 0)
    assert told == [ev.Replicated(5, 0, 1, 10, (found,))]


def running(compared: int | None, hosts: tuple[int, ...] = (0, 1, 2)) -> RunMachine:
    policy = RunPolicy(ranks=3, hosts=3, save=saves.Never(), replicates=True, is_elastic=True)
    run = RunMachine(policy)
    for event in (
        ev.Opened(0, 0),
        ev.Placed(0, hosts),
        ev.Chosen(1, ev.SCRATCH, "starting from scratch (no checkpoint yet)"),
        ev.OnRecord(2, 0),
        ev.Launched(2, 0),
    ):
        run.handle(event)
    replicas = run.saving.tier.replicas
    replicas.under_way, replicas.compared_step = SetInBuffer(0, 5, 20, 1), compared
    replicas.newest = None if compared is None else SetInBuffer(0, 4, compared, 0)
    return run


def test_a_run_goes_back_to_the_newest_set_in_which_nothing_differed() -> None:
    run = running(compared=15)
    answer = run.handle(ev.Replicated(9, 0, 5, 20, (differ("state/w", "a", "b", "a"),)))
    assert [one.host for one in answer if isinstance(one, act.Distrust)] == [1]
    assert any(isinstance(one, act.Kill) for one in answer)
    assert run.state is State.KILLING
    (error,) = [one.words for one in answer if isinstance(one, act.Say) and one.level == "error"]
    assert error.startswith("Silent corruption by step 20 on host 1: its state/w differs")
    assert [(wish.to, wish.is_from_script) for wish in run.course.rollbacks.standing] == [
        (15, False)
    ]


def test_of_two_hosts_none_is_distrusted_and_both_go_back() -> None:
    run = running(compared=15)
    answer = run.handle(ev.Replicated(9, 0, 5, 20, (differ("state/w", "a", "b"),)))
    assert not any(isinstance(one, act.Distrust) for one in answer)
    assert run.state is State.KILLING


def test_without_a_set_that_was_compared_it_is_said_and_no_more() -> None:
    run = running(compared=None)
    answer = run.handle(ev.Replicated(9, 0, 5, 20, (differ("state/w", "a", "b", "a"),)))
    assert run.state is State.RUNNING
    assert any(isinstance(one, act.Say) and one.level == "error" for one in answer)


def test_old_news_changes_nothing() -> None:
    run = running(compared=15)
    run.handle(ev.Replicated(9, 0, 4, 18, (differ("state/w", "a", "b", "a"),)))
    assert run.state is State.RUNNING
    assert run.saving.tier.replicas.compared_step == 15


def test_only_a_set_in_which_nothing_differs_is_the_newest_on_two_hosts() -> None:
    run = running(compared=15)
    run.handle(ev.Replicated(9, 0, 5, 20))
    assert run.saving.tier.replicas.compared_step == 20
    assert run.saving.tier.replicas.newest == SetInBuffer(0, 5, 20, 1)


def test_what_is_told_of_it_is_the_same_after_a_journal_and_a_link() -> None:
    told = ev.Replicated(9, 0, 5, 20, (differ("state/w", "a", "b"),))
    assert decode(json.loads(json.dumps(encode(told)))) == told
    taken_over = ev.Adopted(1, 0, 5, 0, 0, InMemory((SealedSet(0, 5, 1),), SealedSet(0, 5, 1)))
    assert decode(json.loads(json.dumps(encode(taken_over)))) == taken_over
    report = HostReport(1, 0)
    report.note(told)
    again = decode_report(json.loads(json.dumps(encode_report(report))))
    assert [fact for _, fact in again.facts.numbered()] == [told]


def test_an_elastic_run_on_one_host_has_nothing_on_two() -> None:
    for hosts, count in (((0, 1, 2), 1), ((0,), 0)):
        answer = running(15, hosts).handle(ev.Replicated(9, 0, 5, 20))
        said = [one.words for one in answer if isinstance(one, act.Say)]
        assert sum("in memory on two hosts each" in words for words in said) == count
