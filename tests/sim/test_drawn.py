"""Drawn faults: against lives drawn one by one, and what must hold for any stream of them."""

from __future__ import annotations

import heapq
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp, kstest

from holdfast.sim.drawn import Drawn
from holdfast.sim.faults import AnnouncedLoss, Fault, FaultCause
from holdfast.sim.laws import Early, Exponential, Fixed, Law, LogNormal, Weibull
from holdfast.sim.model import DAY_S, Failures, Fleet, Notices, Scenario, per_node_days

S = 10**9
LAWS = [Exponential(1000.0), Weibull(1000.0, 0.5), Weibull(1000.0, 1.5), LogNormal(600.0, 1.0)]
LOST = (FaultCause.HOST, FaultCause.RACK, FaultCause.SLICE)


def stream(seed: int = 1, hosts: int = 30, racks: int = 0, slices: int = 0, **failures) -> Drawn:
    fleet = Fleet(hosts=hosts, hosts_per_rack=racks, hosts_per_slice=slices)
    return Drawn(Scenario(fleet=fleet, failures=Failures(**failures)), seed)


def events(drawn: Drawn, away_ns: int | None = 0) -> Iterator[Fault | AnnouncedLoss]:
    """All that happens; lost hosts are replaced after `away_ns`, None: never."""
    last_ns = 0
    while (next_ns := drawn.next_ns()) is not None:
        event = drawn.pop()
        assert type(event.at_ns) is int
        assert event.at_ns == next_ns >= last_ns
        last_ns = event.at_ns
        yield event
        if isinstance(event, Fault) and event.cause in LOST and away_ns is not None:
            for host in event.hosts:
                drawn.renewed(host, event.at_ns + away_ns)


def one_by_one(law: Law, hosts: int, rng: Random, away_ns: int = 0) -> Iterator[int]:
    """The oracle: the life of each host is drawn when it begins."""
    ends = [round(law.sample_s(rng) * S) for _ in range(hosts)]
    heapq.heapify(ends)
    while True:
        yield ends[0]
        heapq.heapreplace(ends, ends[0] + away_ns + round(law.sample_s(rng) * S))


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("away_ns", [0, 100 * S])
def test_failures_come_as_if_each_life_were_drawn(law: Law, away_ns: int) -> None:
    """With 30 hosts the 60th failure is of second and third lives for the greater part."""
    mine = [
        [e.at_ns for e in islice(events(stream(seed, between=law), away_ns), 60)]
        for seed in range(300)
    ]
    rng = Random(7)
    naive = [list(islice(one_by_one(law, 30, rng, away_ns), 60)) for _ in range(300)]
    for k in (1, 2, 5, 20, 40, 60):
        found = ks_2samp([run[k - 1] for run in mine], [run[k - 1] for run in naive])
        assert found.pvalue > 0.005, (k, found)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_as_many_failures_as_if_each_life_were_drawn(law: Law) -> None:
    until_ns, runs = 3000 * S, 200
    mine, naive, rng = [], [], Random(3)
    for seed in range(runs):
        mine.append(
            next(n for n, e in enumerate(events(stream(seed, between=law))) if e.at_ns > until_ns)
        )
        naive.append(next(n for n, at in enumerate(one_by_one(law, 30, rng)) if at > until_ns))
    mean = sum(naive) / runs
    error = (sum((n - mean) ** 2 for n in naive) / runs / runs) ** 0.5
    assert abs(sum(mine) / runs - mean) < 4 * error * 2**0.5


def test_the_first_failure_of_many_exponential_hosts() -> None:
    """The least of n exponential lives is exponential, with an n-th of the mean."""
    first = [
        next(events(stream(seed, 100_000, between=Exponential(1e8)))).at_ns for seed in range(500)
    ]
    assert kstest([at / (1000 * S) for at in first], "expon").pvalue > 0.01


def test_every_host_fails_as_often() -> None:
    hosts = [e.hosts[0] for e in islice(events(stream(5, 20, between=Exponential(1000.0))), 4000)]
    assert chisquare([hosts.count(n) for n in range(20)]).pvalue > 0.01
    first = [
        next(events(stream(seed, 10, between=Weibull(9.0, 0.7)))).hosts[0] for seed in range(2000)
    ]
    assert chisquare([first.count(n) for n in range(10)]).pvalue > 0.01


def test_what_failed_is_shared_out() -> None:
    of = stream(2, between=Exponential(1000.0), host_share=0.5, hang_share=0.2)
    causes = Counter(e.cause for e in islice(events(of), 10_000))
    expected = {FaultCause.HOST: 5000, FaultCause.PROCESS: 4000, FaultCause.HANG: 1000}
    assert causes.keys() == expected.keys()
    assert chisquare([causes[c] for c in expected], list(expected.values())).pvalue > 0.01


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_lost_host_stays_lost(law: Law) -> None:
    of = stream(3, between=law)
    lost = [event.hosts[0] for event in events(of, None)]
    assert sorted(lost) == list(range(30))
    assert of.next_ns() is None
    with pytest.raises(IndexError):
        of.pop()
    of.renewed(4, 10**15)
    assert of.pop().hosts == (4,)


def test_a_process_is_new_at_once() -> None:
    of = stream(4, 3, between=Fixed(10.0), host_share=0.0)
    found = [(e.at_ns // S, e.cause, e.hosts[0]) for e in islice(events(of), 9)]
    assert [at for at, _, _ in found] == [10, 10, 10, 20, 20, 20, 30, 30, 30]
    for start in (0, 3, 6):
        assert sorted(host for _, _, host in found[start : start + 3]) == [0, 1, 2]
    assert {cause for _, cause, _ in found} == {FaultCause.PROCESS}


def test_the_age_counts_from_the_renewal() -> None:
    of = stream(1, 2, between=Fixed(10.0))
    first = of.pop().hosts[0]
    of.renewed(first, 15 * S)
    of.pop()
    assert (of.next_ns(), of.pop()) == (25 * S, Fault(25 * S, FaultCause.HOST, (first,)))


def test_a_host_that_is_replaced_in_time_does_not_fail() -> None:
    of = stream(1, 1, between=Fixed(10.0))
    of.renewed(0, 7 * S)
    assert of.next_ns() == 17 * S


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_nth_life_is_as_long_whenever_it_begins(law: Law) -> None:
    """Policies are compared under the same faults, and the same warnings of them."""

    def lives(away_ns: int) -> list[list[tuple[int, int]]]:
        begun_ns, told_ns = [0] * 5, [0] * 5
        found: list[list[tuple[int, int]]] = [[] for _ in range(5)]
        notices = Notices(recall=1.0, lead=LogNormal(0.001, 0.5))
        for event in events(stream(9, 5, between=law, notices=notices), away_ns):
            if isinstance(event, AnnouncedLoss):
                told_ns[event.host] = event.at_ns
                continue
            (host,) = event.hosts
            found[host].append((event.at_ns - begun_ns[host], event.at_ns - told_ns[host]))
            begun_ns[host] = event.at_ns + away_ns
            if min(len(one) for one in found) >= 10:
                return [one[:10] for one in found]
        raise AssertionError

    assert lives(0) == lives(12345) == lives(3000 * S)
    assert len({life for one in lives(0) for life in one}) == 50


def test_no_life_is_empty() -> None:
    """Or all of them would lie in one instant, and it would never end."""
    times_ns = [e.at_ns for e in islice(events(stream(1, 1, between=Weibull(1.0, 0.05))), 500)]
    assert len(set(times_ns)) == 500
    assert min(b - a for a, b in pairwise(times_ns)) == 1


def test_a_rack_is_lost_as_a_whole() -> None:
    of = stream(1, 10, racks=4, rack_between=Exponential(100.0))
    racks = {(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)}
    found = list(islice(events(of), 200))
    assert {event.hosts for event in found} == racks
    assert {event.cause for event in found} == {FaultCause.RACK}
    assert found[-1].at_ns / S == pytest.approx(200 * 100 / 3, rel=0.2)


def test_a_rack_takes_only_the_hosts_that_are_there() -> None:
    of = stream(1, 8, racks=4, rack_between=Fixed(10.0), slices=8, slice_between=Fixed(14.0))
    assert {of.pop().hosts, of.pop().hosts} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert of.next_ns() is None  # nothing is there that could fail
    of.renewed(2, 12 * S)
    of.renewed(3, 15 * S)  # on its way when the slice fails
    assert of.pop() == Fault(14 * S, FaultCause.SLICE, (2,))
    assert of.pop() == Fault(20 * S, FaultCause.RACK, (3,))


def test_what_failed_unseen_fails_later_again() -> None:
    of = stream(1, 2, racks=2, rack_between=Fixed(10.0))
    assert of.pop().at_ns == 10 * S
    of.renewed(0, 35 * S)
    assert of.pop() == Fault(40 * S, FaultCause.RACK, (0,))


def test_racks_fail_as_often_when_their_hosts_come_and_go() -> None:
    of = stream(6, 60, racks=6, between=Exponential(500.0), rack_between=Exponential(3000.0))
    seen = 0
    for event in events(of, 20 * S):
        seen += event.cause is FaultCause.RACK
        if event.at_ns > 200_000 * S:
            break
    assert seen == pytest.approx(10 * 200_000 / 3000, abs=4 * 26)


NOTICES = Notices(recall=0.6, precision=0.3, lead=LogNormal(20.0, 0.5))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_recall_and_precision(law: Law) -> None:
    of = stream(8, 100, between=law, host_share=0.8, notices=NOTICES)
    found = list(islice(events(of), 20_000))
    right = {
        (e.host, e.deadline_ns) for e in found if isinstance(e, AnnouncedLoss) and e.comes_true
    }
    alarms = [e for e in found if isinstance(e, AnnouncedLoss) and not e.comes_true]
    losses = [
        (e.hosts[0], e.at_ns) for e in found if isinstance(e, Fault) and e.cause is FaultCause.HOST
    ]
    others = [e for e in found if isinstance(e, Fault) and e.cause is FaultCause.PROCESS]
    assert len(right & set(losses)) / len(losses) == pytest.approx(0.6, abs=0.025)
    assert len(right) / (len(right) + len(alarms)) == pytest.approx(0.3, abs=0.015)
    assert len(losses) / (len(losses) + len(others)) == pytest.approx(0.8, abs=0.02)
    last_ns = found[-1].at_ns
    assert {item for item in right if item[1] < last_ns} <= set(losses)


def test_leads_are_as_long_as_drawn() -> None:
    of = stream(8, 100, between=Exponential(1e5), notices=NOTICES)
    told = [e for e in islice(events(of), 3000) if isinstance(e, AnnouncedLoss)]
    for comes_true in (True, False):
        leads = [(e.deadline_ns - e.at_ns) / S / 20 for e in told if e.comes_true is comes_true]
        assert kstest(leads, "lognorm", (0.5,)).pvalue > 0.01


def test_warnings_do_not_change_what_happens() -> None:
    law = Weibull(1e4, 0.7)
    plain = [e.at_ns for e in islice(events(stream(8, between=law), S), 200)]
    runs = []
    for seed in range(200):
        of = events(stream(seed, between=law, notices=NOTICES), S)
        runs.append(list(islice((e.at_ns for e in of if isinstance(e, Fault)), 40)))
    bare = [
        [e.at_ns for e in islice(events(stream(s, between=law), S), 40)] for s in range(500, 700)
    ]
    assert len(set(plain)) == 200
    for k in (0, 9, 39):
        assert ks_2samp([run[k] for run in runs], [run[k] for run in bare]).pvalue > 0.01


def test_no_warning_before_the_host_was_there() -> None:
    notices = Notices(recall=1.0, lead=Fixed(60.0))
    of = stream(1, 1, between=Fixed(10.0), notices=notices)
    assert of.pop() == AnnouncedLoss(0, 0, 10 * S, True)
    assert of.pop() == Fault(10 * S, FaultCause.HOST, (0,))
    of.renewed(0, 12 * S)
    assert of.pop() == AnnouncedLoss(12 * S, 0, 22 * S, True)


def test_a_host_that_was_replaced_upon_a_warning_is_not_lost() -> None:
    of = stream(1, 1, between=Fixed(100.0), notices=Notices(recall=1.0, lead=Fixed(30.0)))
    assert of.pop() == AnnouncedLoss(70 * S, 0, 100 * S, True)
    of.renewed(0, 90 * S)
    assert of.pop() == AnnouncedLoss(160 * S, 0, 190 * S, True)


def test_a_warning_at_the_last_moment_comes_first() -> None:
    of = stream(1, 1, between=Fixed(100.0), notices=Notices(recall=1.0, lead=Fixed(0.0)))
    assert of.pop() == AnnouncedLoss(100 * S, 0, 100 * S, True)
    assert of.pop() == Fault(100 * S, FaultCause.HOST, (0,))


def test_nothing_fails_by_itself() -> None:
    assert stream(1).next_ns() is None
    assert stream(1, rack_between=Fixed(1.0)).next_ns() is None  # no racks
    assert stream(1, between=Exponential(1e300)).next_ns() is None  # not in 292 years


class Counted:
    """An exponential law that counts how often it is asked."""

    def __init__(self, mean_s: float) -> None:
        self.mean_s, self.asked = mean_s, 0
        self._law = Exponential(mean_s)

    def sample_s(self, rng: Random) -> float:
        self.asked += 1
        return self._law.sample_s(rng)

    def survival(self, age_s: float) -> float:
        self.asked += 1
        return self._law.survival(age_s)

    def age_at_s(self, survival: float) -> float:
        self.asked += 1
        return self._law.age_at_s(survival)


def test_the_cost_is_that_of_the_failures_not_of_the_hosts() -> None:
    costs = []
    for hosts in (10_000, 10_000_000):
        law = Counted(100.0 * hosts)
        tracemalloc.start()
        assert len(list(islice(events(stream(1, hosts, between=law)), 500))) == 500
        costs.append((law.asked, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    (few_asked, few_bytes), (many_asked, many_bytes) = costs
    assert few_asked <= 2 * 500 + 2 >= many_asked
    assert many_bytes < 1.5 * few_bytes < 1_500_000


def test_a_fleet_of_a_hundred_thousand_chips() -> None:
    """54 days at the rate of a published fleet: 6.50 failures per 1000 node-days."""
    of = stream(1, 12_500, between=per_node_days(6.5))
    end_ns = int(54 * DAY_S * S)
    failures = next(n for n, e in enumerate(events(of, 600 * S)) if e.at_ns > end_ns)
    assert failures == pytest.approx(12.5 * 54 * 6.5, abs=4 * 66)


@given(st.integers(0, 2**32), st.data())
def test_the_seed_decides_and_looking_changes_nothing(seed: int, data: st.DataObject) -> None:
    kinds = {
        "between": data.draw(st.sampled_from(LAWS)),
        "host_share": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "rack_between": data.draw(st.sampled_from([None, *LAWS])),
        "slice_between": data.draw(st.sampled_from([None, Weibull(300.0, 3.0)])),
        "notices": data.draw(st.sampled_from([Notices(), NOTICES, Notices(1.0, 1.0, Fixed(1e4))])),
    }
    away_ns = data.draw(st.sampled_from([None, 0, S, 500 * S]))
    hosts = data.draw(st.integers(1, 12))
    runs = []
    for looks in (0, 2):
        of, seen, lost = stream(seed, hosts, 3, 6, **kinds), [], set()
        for n in count():
            for _ in range(looks):
                of.next_ns()
            if n == 60 or of.next_ns() is None:
                break
            event = of.pop()
            seen.append(event)
            if isinstance(event, AnnouncedLoss):
                assert event.at_ns <= event.deadline_ns
                assert event.host not in lost
            else:
                assert event.hosts
                assert not lost & set(event.hosts)
                if event.cause in LOST:
                    lost |= set(event.hosts)
                if away_ns is not None:
                    for host in sorted(lost):
                        of.renewed(host, event.at_ns + away_ns)
                    lost.clear()
        runs.append(seen)
    assert runs[0] == runs[1]
    assert [e.at_ns for e in runs[0]] == sorted(e.at_ns for e in runs[0])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a host that fails each 0\.0 s does nothing else"):
        stream(1, between=Fixed(0.0))
    of = stream(1, 4, between=Fixed(10.0))
    with pytest.raises(ValueError, match="host 4 is none of the fleet's 4"):
        of.renewed(4, 0)
    of.pop()
    with pytest.raises(ValueError, match="cannot be new at 5 ns: 10000000000 ns is past"):
        of.renewed(0, 5)


YOUNG = Early(0.4, 100.0)


def cut_short(rng: Random, until_ns: int) -> int:
    """The oracle: how often 20 hosts, each replaced at once, are lost by then."""
    count = 0
    for _ in range(20):
        at_s = 0.0
        while (at_s := at_s + min(LAWS[0].sample_s(rng), YOUNG.sample_s(rng))) * S <= until_ns:
            count += 1
    return count


def test_infants_are_lost_as_if_each_life_were_drawn() -> None:
    """Early on, when most are of the first hosts, and later, of those that came for them."""
    rng, of = Random(4), [events(stream(n, 20, between=LAWS[0], early=YOUNG)) for n in range(200)]
    seen = [[next(event for event in run).at_ns for _ in range(60)] for run in of]
    for until_ns in (30 * S, 300 * S, 1000 * S):
        mine = [sum(at <= until_ns for at in run) for run in seen]
        naive = [cut_short(rng, until_ns) for _ in range(200)]
        spread = (sum((n - sum(naive) / 200) ** 2 for n in naive) / 200 / 100) ** 0.5
        assert abs(sum(mine) - sum(naive)) / 200 < 4 * spread
    first = [next(iter(run)) for run in seen]
    ended = [1 - (LAWS[0].survival(at / S) * YOUNG.survival(at / S)) ** 20 for at in first]
    assert kstest(ended, "uniform").pvalue > 0.01


def test_a_process_that_fails_makes_no_new_machine() -> None:
    """Or a host whose processes fail each second would be lost early for certain."""
    of = stream(3, 50, between=Fixed(1.0), host_share=0.0, early=Early(0.5, 10.0))
    lost = [e.hosts[0] for e in islice(events(of, None), 20_000) if e.cause is FaultCause.HOST]
    assert len(lost) == len(set(lost))
    assert len(lost) == pytest.approx(25, abs=12)


def test_infants_are_announced_and_cost_what_they_are() -> None:
    notices = Notices(recall=1.0, lead=Fixed(5.0))
    of = stream(3, 10_000_000, early=Early(1e-6, 1000.0), notices=notices)
    found = list(islice(events(of), 8))
    assert [isinstance(event, Fault) for event in found].count(True) in range(2, 6)
    assert {type(event) for event in found} == {Fault, AnnouncedLoss}
