"""Recorded fleets, played to the places of a run."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from holdfast.errors import ConfigurationError
from holdfast.sim.faults import AnnouncedLoss, Arrival, Fault, FaultCause
from holdfast.sim.laws import Fixed
from holdfast.sim.model import Fleet, Notices
from holdfast.sim.trace_file import read_trace
from holdfast.sim.traces import Event, Replayed, Trace, TraceChange

DATA = Path(__file__).parent / "data"  # of uclasystem/bamboo: README.md there
S = 10**9
HOST = FaultCause.HOST


def trace(*changes: tuple[int, int | None, FaultCause | None], are_there: bool = False) -> Trace:
    known = {machine for _, machine, _ in changes if machine is not None}
    names = tuple(f"n{n}" for n in range(len(known)))
    return Trace(tuple(TraceChange(*change) for change in changes), names, are_there)


def events(replayed: Replayed) -> list[Event]:
    found = []
    while (next_ns := replayed.next_ns()) is not None:
        found.append(replayed.pop())
        assert found[-1].at_ns == next_ns
    with pytest.raises(IndexError):
        replayed.pop()
    return found


def lost(at_ns: int, *places: int, cause: FaultCause = HOST) -> Fault:
    return Fault(at_ns, cause, places)


def test_machines_fill_the_places_and_stand_by() -> None:
    of = trace((5, 0, None), (5, 1, None), (6, 2, None), (9, 0, HOST), (12, 1, HOST), (15, 0, None))
    replayed = Replayed(of, Fleet(hosts=2))
    assert replayed.hosts_at_start == 0
    assert events(replayed) == [
        Arrival(5, 0), Arrival(5, 1),
        lost(9, 0), Arrival(9, 0),  # the third was there
        lost(12, 1),
        Arrival(15, 1),
    ]  # fmt: skip


def test_what_befalls_a_machine_that_stands_by_is_no_fault() -> None:
    of = trace((0, 0, None), (1, 1, None), (5, 1, HOST), (6, 0, HOST))
    assert events(Replayed(of, Fleet(hosts=1))) == [Arrival(0, 0), lost(6, 0)]


def test_those_that_go_at_once_do_not_replace_each_other() -> None:
    of = trace((0, 0, None), (0, 1, None), (5, 0, HOST), (5, 1, HOST), (5, 2, None))
    assert events(Replayed(of, Fleet(hosts=1))) == [Arrival(0, 0), lost(5, 0), Arrival(5, 0)]


def test_a_machine_that_goes_and_comes_at_once_is_a_fault() -> None:
    of = trace((5, 0, HOST), (5, 0, None), are_there=True)
    assert events(Replayed(of, Fleet(hosts=1))) == [lost(5, 0), Arrival(5, 0)]


def test_outages_of_a_fleet_without_spares() -> None:
    of = trace(
        (5, 0, HOST),
        (7, 1, FaultCause.HANG),
        (8, 0, FaultCause.PROCESS),
        (9, 0, None),
        are_there=True,
    )
    replayed = Replayed(of, Fleet(hosts=4), seed=3)
    assert replayed.hosts_at_start == 4
    loss, hang, back = events(replayed)
    assert back == Arrival(9, loss.hosts[0])  # nothing fails in a place that is empty
    assert hang.cause is FaultCause.HANG
    assert hang.hosts != loss.hosts


def test_a_spare_takes_the_place_at_once_and_who_comes_back_is_a_spare() -> None:
    of = trace((5, 0, HOST), (9, 0, None), (20, 1, HOST), (21, 2, HOST), are_there=True)
    found = Counter()
    for seed in range(60):
        replayed = Replayed(of, Fleet(hosts=3, spares=1), seed)
        run = events(replayed)
        found[len(run)] += 1
        for fault, arrival in pairwise(run):
            if isinstance(fault, Fault) and fault.at_ns < 21:
                assert arrival == Arrival(fault.at_ns, fault.hosts[0])
    # The last of three losses is not made good.
    assert found.keys() == {3, 5}  # where the first to go stood by, its loss is no fault


def test_a_rack_or_slice_is_one_fault() -> None:
    rack, slice_ = FaultCause.RACK, FaultCause.SLICE
    of = trace(
        (5, 0, rack), (5, 1, rack), (5, 2, slice_), (5, 3, HOST), (9, 4, rack), are_there=True
    )  # fmt: skip
    runs = [events(Replayed(of, Fleet(hosts=5), seed)) for seed in range(20)]
    found = runs[0]
    assert [(e.at_ns, e.cause, len(e.hosts)) for e in found] == [
        (5, HOST, 1), (5, rack, 2), (5, slice_, 1), (9, rack, 1)
    ]  # fmt: skip
    assert sorted(place for e in found for place in e.hosts) == [0, 1, 2, 3, 4]
    assert all(list(e.hosts) == sorted(e.hosts) for run in runs for e in run)


def test_which_machine_is_where_is_left_to_the_seed() -> None:
    of = trace((5, 0, HOST), are_there=True)
    fleet = Fleet(hosts=4, spares=1)
    places = [tuple(e.hosts[0] for e in events(Replayed(of, fleet, n))[:1]) for n in range(1000)]
    assert chisquare([places.count(p) for p in [(), (0,), (1,), (2,), (3,)]]).pvalue > 0.01
    assert events(Replayed(of, fleet, 7)) == events(Replayed(of, fleet, 7))


def test_which_of_the_counted_goes_is_left_to_the_seed() -> None:
    of = trace(*[(0, None, None)] * 5, (9, None, HOST))
    runs = [events(Replayed(of, Fleet(hosts=4), seed)) for seed in range(1000)]
    gone = [run[4].hosts if len(run) > 4 else () for run in runs]
    assert chisquare([gone.count(p) for p in [(), (0,), (1,), (2,), (3,)]]).pvalue > 0.01


def test_telling_a_record_that_a_host_is_new_has_no_effect() -> None:
    of = trace((5, 0, HOST), (9, 0, None), are_there=True)
    replayed = Replayed(of, Fleet(hosts=1))
    assert replayed.pop() == lost(5, 0)
    replayed.renewed(0, 6)
    assert events(replayed) == [Arrival(9, 0)]


@pytest.mark.parametrize(
    ("name", "hosts", "losses"),
    [("p3-trace.csv", 32, 167), ("g4dn-trace.csv", 24, 74), ("a100x1-east1b.txt", 64, 154)],
)
def test_published_traces(name: str, hosts: int, losses: int) -> None:
    """With as many places as there ever were machines, each loss is a fault."""
    of = read_trace(DATA / f"bamboo-{name}")
    filled: set[int] = set()
    faults = 0
    for event in events(Replayed(of, Fleet(hosts=hosts))):
        if isinstance(event, Arrival):
            assert event.host not in filled
            filled.add(event.host)
        else:
            filled -= set(event.hosts)
            faults += 1
    assert faults == losses == sum(change.cause is HOST for change in of.changes)


@given(
    st.integers(0, 99), st.integers(1, 40), st.sampled_from(["p3-trace.csv", "a100x1-east1b.txt"])
)
def test_places_are_filled_whenever_there_are_machines(seed: int, hosts: int, name: str) -> None:
    of = read_trace(DATA / f"bamboo-{name}")
    hosts = min(hosts, of.most)
    run = events(Replayed(of, Fleet(hosts=hosts), seed))
    filled, held, n = 0, 0, 0
    for at_ns in sorted({change.at_ns for change in of.changes}):
        while n < len(run) and run[n].at_ns == at_ns:
            filled += 1 if isinstance(run[n], Arrival) else -1
            n += 1
        held += sum((c.cause is None) - (c.cause is HOST) for c in of.changes if c.at_ns == at_ns)
        assert filled == min(held, hosts)
    assert n == len(run)


def test_announcements_of_what_was_recorded() -> None:
    of = read_trace(DATA / "bamboo-p3-trace.csv")
    notices = Notices(recall=0.5, precision=0.25, lead=Fixed(120.0))
    found: Counter[str] = Counter()
    for seed in range(20):
        run = events(Replayed(of, Fleet(hosts=24), seed, notices))
        plain = events(Replayed(of, Fleet(hosts=24), seed))
        assert [e for e in run if not isinstance(e, AnnouncedLoss)] == plain
        came_ns, losses = {}, {(e.at_ns, e.hosts[0]) for e in plain if isinstance(e, Fault)}
        for event in run:
            if isinstance(event, Arrival):
                came_ns[event.host] = event.at_ns
            elif isinstance(event, AnnouncedLoss):
                assert event.host in came_ns
                lead_ns = event.deadline_ns - event.at_ns
                assert lead_ns == 120 * S or came_ns[event.host] == event.at_ns
                assert ((event.deadline_ns, event.host) in losses) >= event.comes_true
                found["right" if event.comes_true else "wrong"] += 1
            else:
                del came_ns[event.hosts[0]]
                found["lost"] += 1
    assert found["right"] / found["lost"] == pytest.approx(0.5, abs=0.04)
    assert found["right"] / (found["right"] + found["wrong"]) == pytest.approx(0.25, abs=0.02)


def test_no_announcement_before_the_machine_was_there() -> None:
    of = trace((5 * S, 0, None), (15 * S, 0, HOST))
    run = events(Replayed(of, Fleet(hosts=1), 0, Notices(recall=1.0, lead=Fixed(30.0))))
    told = AnnouncedLoss(5 * S, 0, 15 * S, True)
    assert run == [Arrival(5 * S, 0), told, lost(15 * S, 0)]


def test_only_losses_of_a_host_are_announced() -> None:
    of = trace((5, 0, FaultCause.PROCESS), (7, 0, FaultCause.RACK), (9, 1, HOST), are_there=True)
    run = events(Replayed(of, Fleet(hosts=2), 0, Notices(recall=1.0, lead=Fixed(0.0))))
    assert [type(event) for event in run] == [Fault, Fault, AnnouncedLoss, Fault]


def test_too_many_or_too_few_machines_are_refused() -> None:
    names = trace((5, 0, HOST), (6, 1, HOST), (7, 2, HOST), are_there=True)
    with pytest.raises(ConfigurationError, match="tells of 3 nodes, but the run has 1 hosts and 1"):
        Replayed(names, Fleet(hosts=1, spares=1))
    Replayed(names, Fleet(hosts=2, spares=1))
    of = trace((0, 0, None), (0, 1, None), (3, 0, HOST), (3, 2, None))
    words = "never has more than 2 nodes at once, but the run needs 3 hosts"
    with pytest.raises(ConfigurationError, match=words):
        Replayed(of, Fleet(hosts=3))
    Replayed(of, Fleet(hosts=4, hosts_per_slice=2, elastic=True))
