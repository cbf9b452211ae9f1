"""Simulated runs that go on without the slices that have lost a host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.run.restart import AllOf
from holdfast.sim.clock import to_ns
from holdfast.sim.drawn import Drawn
from holdfast.sim.faults import AnnouncedLoss, Fault, FaultCause
from holdfast.sim.laws import Exponential, Fixed, LogNormal
from holdfast.sim.model import DAY_S, Failures, Fleet, Recovery, SaveCosts, Scenario
from holdfast.sim.replicate import policy_of
from holdfast.sim.traces import Replayed, Trace, TraceChange
from holdfast.sim.world import World

S = 1_000_000_000
AT_ONCE = AllOf(())
TWO = Fleet(hosts=4, hosts_per_slice=2, elastic=True)
EACH_MINUTE = SaveCosts(stall_s=2, interval_s=60)
HOST, PROCESS = FaultCause.HOST, FaultCause.PROCESS


class Told:
    """Faults as a test says them: (seconds, cause, hosts) each."""

    hosts_at_start = 4
    tells_arrivals = False

    def __init__(self, *events: tuple[float, FaultCause, tuple[int, ...]]) -> None:
        self._events = [Fault(to_ns(at_s), cause, hosts) for at_s, cause, hosts in events]

    def next_ns(self) -> int | None:
        return self._events[0].at_ns if self._events else None

    def pop(self) -> Fault:
        return self._events.pop(0)

    def renewed(self, host: int, at_ns: int) -> None:
        """They come when the test says so."""


def scenario(fleet: Fleet = TWO, replace_s: float = 200, **more: object) -> Scenario:
    recovery = Recovery(restart=Fixed(10), restore_s=4, replace=Fixed(replace_s))
    return Scenario(
        fleet=fleet, **{"saves": EACH_MINUTE, "recovery": recovery, "duration_s": 1000, **more}
    )


def run(of: Scenario, faults: object, *, folds: bool = True):
    world = World(of, faults, policy_of(of, AT_ONCE), seed=1, folds=folds)
    return world, world.run().account(to_ns(of.duration_s))


def seconds(account) -> dict[str, float]:
    return {kind: ns / S / account.chips for kind, ns in account.kinds.items() if ns}


def test_a_slice_is_lost_and_taken_in_again() -> None:
    """By hand: 234 steps are kept by 252 s, 48 lost; 310 to 502 on one slice, in steps of 2 s with
    three saves and the agreed one; from 514 on two again, with seven saves."""
    world, account = run(scenario(), Told((300, HOST, (2,))))
    assert seconds(account) == {
        "step": 234 + 93 + 472, "lost": 48, "save": 8 + (3 * 2 + 2) / 2 + 14,
        "startup": 10 + 6 / 2 + 6, "restore": 4 / 2 + 4, "reschedule": (504 - 300) / 2,
    }  # fmt: skip
    assert account.steps_kept == 234 + 93 + 472  # a step holds as much work on one slice as on two
    assert [one.cause for one in account.disruptions] == ["host_lost", "stopped"]
    assert [one.lost_steps for one in account.disruptions] == [48, 0]
    assert not world.stops


@pytest.mark.parametrize("fleet", [replace(TWO, elastic=False), replace(TWO, least_slices=2)])
def test_where_it_may_not_go_on_it_waits(fleet: Fleet) -> None:
    _, account = run(scenario(fleet), Told((300, HOST, (2,))))
    kinds = seconds(account)
    assert (kinds["reschedule:queue"], "reschedule" in kinds) == (200, False)


def test_a_short_wait_is_waited() -> None:
    """A restart takes 10 s, and a second one of both slices 12 s, with its save."""
    for wait_s, kind in ((12, "reschedule:queue"), (60, "reschedule")):
        _, account = run(scenario(replace_s=wait_s), Told((300, HOST, (2,))))
        assert set(seconds(account)) & {"reschedule", "reschedule:queue"} == {kind}


def test_a_spare_takes_its_place_at_once() -> None:
    _, account = run(scenario(replace(TWO, spares=1)), Told((300, HOST, (2,))))
    assert "reschedule" not in seconds(account)


def test_where_only_repairs_bring_hosts_back_those_are_waited_for() -> None:
    """Twice in the same place, which had another wait before."""
    repair = Recovery(restart=Fixed(10), replace=Fixed(200), repair=Fixed(200))
    _, account = run(scenario(recovery=repair), Told((300, HOST, (2,)), (600, HOST, (2,))))
    assert seconds(account)["reschedule"] == pytest.approx(200, abs=5)


def test_what_befalls_a_slice_that_does_not_train_ends_no_attempt() -> None:
    """A slice needs all of its hosts: the second is lost later, and comes later."""
    faults = Told((300, HOST, (2,)), (400, HOST, (3,)), (450, PROCESS, (3,)))
    _, account = run(scenario(), faults)
    assert [one.cause for one in account.disruptions] == ["host_lost", "stopped"]
    assert seconds(account)["reschedule"] == pytest.approx((600 - 300) / 2, abs=3)


def test_a_restart_that_comes_anyway_takes_the_slice_in() -> None:
    """It is back while nothing runs; the back-off and the rest are as ever."""
    _, account = run(scenario(), Told((300, HOST, (2,)), (495, HOST, (0,))))
    assert [one.cause for one in account.disruptions] == ["host_lost", "host_lost", "stopped"]
    kinds = seconds(account)
    assert kinds["reschedule:queue"] == 5 / 2  # no slice was whole; one was not expected to train
    assert kinds["reschedule"] == pytest.approx((695 - 300) / 2, abs=3)


def test_both_slices_lost_at_once_are_waited_for_together() -> None:
    _, account = run(scenario(), Told((300, FaultCause.RACK, (1, 2))))
    assert seconds(account)["reschedule:queue"] == 200
    assert len(account.disruptions) == 1


def test_an_announcement_of_a_slice_that_does_not_train_saves_nothing() -> None:
    faults = Told((300, HOST, (2,)))
    told = AnnouncedLoss(to_ns(400), 3, to_ns(430), comes_true=False)
    faults._events.append(told)
    _, with_it = run(scenario(), faults)
    _, without = run(scenario(), Told((300, HOST, (2,))))
    assert with_it == without


def test_a_recorded_fleet_trains_as_soon_as_a_slice_is_whole() -> None:
    """Machines that come in one moment are counted together; the record tells no wait ahead."""
    comes = [TraceChange(at_s * S, n, None) for n, at_s in enumerate((50, 50, 50, 300))]
    trace = Trace(tuple(comes), ("a", "b", "c", "d"), False)
    _, account = run(scenario(), Replayed(trace, TWO))
    assert len(account.disruptions) == 1
    assert seconds(account)["queued"] == 50
    assert seconds(account)["reschedule"] == pytest.approx((300 - 50) / 2, abs=3)
    together = Trace(tuple(TraceChange(50 * S, n, None) for n in range(4)), trace.machines, False)
    _, account = run(scenario(), Replayed(together, TWO))
    assert account.disruptions == ()


# --- drawn faults --------------------------------------------------------------------------------


def drawn(**more: object) -> Scenario:
    """A slice of eight is away for a third of the time."""
    fleet = Fleet(hosts=16, chips_per_host=3, hosts_per_slice=2, elastic=True, least_slices=3)
    recovery = Recovery(restart=Fixed(60), restore_s=20, replace=LogNormal(5000, 0.8))
    failures = Failures(Exponential(16 * 3600), host_share=0.7, slice_between=Exponential(200_000))
    known = {"fleet": fleet, "recovery": recovery, "failures": failures, "duration_s": 3 * DAY_S}
    saves = SaveCosts(stall_s=5, write_s=20, interval_s=600)
    return Scenario(**{"saves": saves, "step_s": 8.4, **known, **more})


MEMORY = SaveCosts(write_s=60, interval_s=1800, memory=True, copy_s=1, memory_interval_s=600)


@pytest.mark.parametrize("saves", [drawn().saves, MEMORY], ids=["blocking", "in memory"])
def test_chips_times_time_is_conserved_and_folds_change_nothing(saves: SaveCosts) -> None:
    of = drawn(saves=saves, duration_s=DAY_S)
    world, account = run(of, Drawn(of, 3))
    assert sum(account.kinds.values()) == to_ns(of.duration_s) * of.fleet.chips
    # 840 ms of a slice are eight times what they are of eight: each step is as much work.
    full_ns = to_ns(of.step_s) * of.fleet.chips
    assert account.kinds["step"] == pytest.approx(account.steps_kept * full_ns, rel=1e-6)
    causes = {one.cause for one in account.disruptions}
    assert causes == {"host_lost", "killed", "stopped"}
    assert not world.stops
    assert run(of, Drawn(of, 3), folds=False)[1] == account
    ledger = Ledger()
    lines = "".join(f"{line}\n" for line in to_lines(world.story.history()))
    ledger.add_history(parse_text(lines))
    assert ledger.account(to_ns(of.duration_s)) == account


@pytest.mark.parametrize("seed", range(4))
def test_where_restarts_cost_nothing_going_on_keeps_no_less_than_waiting(seed: int) -> None:
    free = Recovery(restart=Fixed(0), replace=LogNormal(5000, 0.8))
    of = drawn(recovery=free, saves=SaveCosts(interval_s=60), step_s=60.0, duration_s=DAY_S)
    waits = replace(of, fleet=replace(of.fleet, elastic=False))
    goes_on, waited = (run(one, Drawn(one, seed))[1].goodput for one in (of, waits))
    assert goes_on > waited


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hosts_per_slice": 0}, "give --hosts-per-slice"),
        ({"hosts": 5}, "5 hosts are not a whole number of slices of 2: give a multiple"),
        ({"hosts_per_slice": 4}, "needs two slices"),
        ({"least_slices": 3}, "at least 3 of 2 slices"),
    ],
)
def test_fleets_that_cannot_be(wrong, why) -> None:
    with pytest.raises(ValueError, match=why):
        replace(TWO, **wrong)
