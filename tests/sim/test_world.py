"""Simulated runs: held to closed forms, to themselves without folding, to what they are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger.facts import NoticeFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.notices.plan import NoticePolicy, OnNotice
from holdfast.core.plan import optimum
from holdfast.core.run.machine import RunPolicy
from holdfast.core.run.restart import AllOf
from holdfast.core.save.policy import EverySeconds
from holdfast.sim.clock import SECOND, to_ns
from holdfast.sim.drawn import Drawn
from holdfast.sim.faults import AnnouncedLoss, Fault, FaultCause
from holdfast.sim.laws import Exponential, Fixed, LogNormal
from holdfast.sim.model import (
    DAY_S,
    Failures,
    Fleet,
    Notices,
    Recovery,
    SaveCosts,
    Scenario,
    per_node_days,
)
from holdfast.sim.replicate import Runs, SimulatedRun, Spread, policy_of
from holdfast.sim.standbys import SimulatedStandbys
from holdfast.sim.traces import Replayed, Trace, TraceChange
from holdfast.sim.world import World

S = 1_000_000_000
AT_ONCE = AllOf(())  # starts again whatever happened, and never gives up


class Told:
    """Faults as a test says them: (seconds, cause) each, of host 0."""

    hosts_at_start = 1
    tells_arrivals = False

    def __init__(self, *events: tuple[float, FaultCause | AnnouncedLoss]) -> None:
        self._events = [
            what if isinstance(what, AnnouncedLoss) else Fault(to_ns(at_s), what, (0,))
            for at_s, what in events
        ]

    def next_ns(self) -> int | None:
        return self._events[0].at_ns if self._events else None

    def pop(self) -> Fault | AnnouncedLoss:
        return self._events.pop(0)

    def renewed(self, host: int, at_ns: int) -> None:
        """They come when the test says so."""


def run(scenario: Scenario, faults: object, policy: RunPolicy | None = None, *, folds: bool = True):
    policy = policy or policy_of(scenario, AT_ONCE)
    world = World(scenario, faults, policy, seed=1, folds=folds)
    return world, world.run().account(to_ns(scenario.duration_s))


EACH_MINUTE = SaveCosts(stall_s=2, interval_s=60)


def small(saves: SaveCosts = EACH_MINUTE, **more: object) -> Scenario:
    recovery = Recovery(restart=Fixed(10), restore_s=4, restore_from_memory_s=1)
    return Scenario(saves=saves, **{"recovery": recovery, "duration_s": 1000, **more})


def seconds(account) -> dict[str, float]:
    return {kind: ns / S / account.chips for kind, ns in account.kinds.items() if ns}


def outcome(scenario: Scenario, seed: int) -> SimulatedRun:
    return Runs("", scenario).outcome(seed)


# --- closed forms --------------------------------------------------------------------------------


def exponential(mtbf_s: float, save_s: float, restart_s: float, interval_s: float, days: float):
    return Scenario(
        failures=Failures(Exponential(mtbf_s), host_share=0.0),
        saves=SaveCosts(stall_s=save_s, interval_s=interval_s),
        recovery=Recovery(restart=Fixed(restart_s)),
        duration_s=days * DAY_S,
        step_s=interval_s / 100,
    )


@pytest.mark.parametrize(
    ("mtbf_s", "save_s", "restart_s", "interval_s", "days"),
    [(11_124, 60, 600, 1115.7, 300), (11_124, 300, 600, 2387.5, 300), (1080, 1, 600, 45.8, 30)],
)
def test_dalys_exact_form(mtbf_s, save_s, restart_s, interval_s, days) -> None:
    """J. T. Daly, FGCS 22(3), 2006, equation 20; 2,400 failures leave 0.004 of chance."""
    scenario = exponential(mtbf_s, save_s, restart_s, interval_s, days)
    exact = optimum.efficiency(interval_s, save_s, restart_s, mtbf_s)
    _, account = run(scenario, Drawn(scenario, 7))
    assert account.goodput == pytest.approx(exact, abs=0.01)


def test_without_failures_only_saves_cost() -> None:
    """The first save is due 60 s after the launch, and ordered for the boundary after that."""
    _, account = run(small(duration_s=10 + 51 + 2 + 99 * (61 + 2)), Told())
    assert seconds(account) == {"startup": 10.0, "step": 51.0 + 99 * 61, "save": 200.0}


@pytest.mark.parametrize(("interval_s", "published"), [(3600, 0.714), (300, 0.933)])
def test_sixteen_thousand_gpus_at_the_failure_rate_of_rsc_1(interval_s, published) -> None:
    """A. Kokolis et al., arXiv 2410.21680: 6.50 failures per 1000 node-days; restart 5 min."""
    scenario = Scenario(
        fleet=Fleet(hosts=2048, chips_per_host=8),
        failures=Failures(per_node_days(6.5)),
        saves=SaveCosts(interval_s=interval_s),
        recovery=Recovery(restart=Fixed(300)),
        duration_s=54 * DAY_S,
    )
    outcomes = [outcome(scenario, seed) for seed in range(4)]
    assert Spread.of([one.goodput for one in outcomes]).mean == pytest.approx(published, abs=0.015)


# --- folding -------------------------------------------------------------------------------------

NO_STALL = SaveCosts(write_s=20, interval_s=600)
IN_MEMORY = SaveCosts(write_s=20, interval_s=600, memory=True, copy_s=0.5, memory_interval_s=60)


@pytest.mark.parametrize(
    "saves",
    [SaveCosts(stall_s=5, write_s=20, interval_s=600), NO_STALL, IN_MEMORY],
    ids=["blocking", "beside", "in memory"],
)
@pytest.mark.parametrize(("step_s", "idle"), [(1.0, 0.0), (0.07, 0.0), (1.0, 0.2)])
def test_what_is_folded_comes_out_as_if_it_were_played(
    saves: SaveCosts, step_s: float, idle: float
) -> None:
    scenario = small(
        saves, failures=Failures(Exponential(7200), host_share=0.0), duration_s=2 * DAY_S,
        step_s=step_s, idle=idle,
    )  # fmt: skip
    folded, one = run(scenario, Drawn(scenario, 3))
    played, other = run(scenario, Drawn(scenario, 3), folds=False)
    assert one == other
    assert folded.events < played.events / 1.5


@pytest.mark.parametrize("saves", [SaveCosts(stall_s=5, interval_s=600), NO_STALL])
def test_saves_that_were_asked_for_are_no_cadence(saves: SaveCosts) -> None:
    """After a false alarm the next ones come as late as ever."""
    notices = Notices(recall=0.5, precision=0.2, lead=Fixed(60))
    failures = Failures(Exponential(20_000), notices=notices)
    scenario = small(saves, failures=failures, duration_s=10 * DAY_S)
    _, one = run(scenario, Drawn(scenario, 3))
    _, other = run(scenario, Drawn(scenario, 3), folds=False)
    assert seconds(one) == pytest.approx(seconds(other))


@pytest.mark.parametrize("seed", [3, 4])
def test_a_fold_leaves_the_sets_that_a_lost_host_goes_back_to(seed: int) -> None:
    """A flush takes the newest copy, so that one must have been played."""
    scenario = small(IN_MEMORY, failures=Failures(Exponential(7200)), duration_s=2 * DAY_S)
    _, one = run(scenario, Drawn(scenario, seed))
    _, other = run(scenario, Drawn(scenario, seed), folds=False)
    assert one == other


# --- what befalls a run --------------------------------------------------------------------------


def test_steps_that_wait_for_data_are_that_much_shorter() -> None:
    _, account = run(small(idle=0.25, duration_s=10 + 51 + 2 + 99 * (61 + 2)), Told())
    steps_s = 51.0 + 99 * 61
    assert seconds(account) == {
        "startup": 10.0, "step": 0.75 * steps_s, "other": 0.25 * steps_s, "save": 200.0
    }  # fmt: skip


def test_a_restart_from_memory_is_as_much_shorter_as_its_restore() -> None:
    _, account = run(small(replace(IN_MEMORY, peers=True)), Told((500, FaultCause.PROCESS)))
    assert seconds(account)["startup"] + seconds(account)["restore"] == 10 + 10 - 4 + 1


def test_a_process_that_fails_costs_what_was_not_saved_and_the_restart() -> None:
    _, account = run(small(), Told((110, FaultCause.PROCESS)))
    kinds = seconds(account)
    assert kinds["lost"] == 47.0  # saved at 61, went on at 63
    assert kinds["startup"] == 10.0 + 6.0
    assert kinds["restore"] == 4.0
    assert account.disruptions[0].cause == "killed"


@pytest.mark.parametrize("folds", [True, False])
def test_what_was_restored_is_not_saved_again_however_long_the_restart_took(folds: bool) -> None:
    _, account = run(small(SaveCosts(interval_s=10)), Told((110, FaultCause.PROCESS)), folds=folds)
    kinds = seconds(account)
    assert kinds["startup"] == 10.0 + 6.0
    assert 0 < kinds["lost"] < 12


def test_a_failure_strikes_a_restart_too() -> None:
    _, account = run(small(), Told((110, FaultCause.PROCESS), (115, FaultCause.PROCESS)))
    kinds = seconds(account)
    assert [one.cause for one in account.disruptions] == ["killed", "killed"]
    assert kinds["startup"] == 10.0 + 5.0 + 6.0


def test_a_failure_in_a_save_leaves_the_one_before() -> None:
    _, account = run(small(), Told((125, FaultCause.PROCESS)))
    assert seconds(account)["lost"] == 61.0  # from 63 to 124
    assert seconds(account)["save"] > 2.0 + 1.0


def test_a_write_that_was_under_way_is_lost_with_its_process() -> None:
    saves = SaveCosts(stall_s=2, write_s=30, interval_s=60)
    _, account = run(small(saves), Told((50, FaultCause.PROCESS)))
    assert seconds(account)["lost"] == 21.0 + 17.0  # copied at 31, trained on at 33


def test_memory_outlives_a_process_and_not_its_host() -> None:
    """A copy each minute, taken to the run store each five."""
    saves = replace(IN_MEMORY, interval_s=300)
    lost = {}
    for cause in (FaultCause.PROCESS, FaultCause.HOST):
        _, account = run(small(saves), Told((295, cause)))
        lost[cause] = seconds(account)["lost"]
    assert lost[FaultCause.PROCESS] < 62
    assert lost[FaultCause.HOST] > 180
    peers = small(replace(saves, peers=True))
    for cause, alike in ((FaultCause.HOST, FaultCause.PROCESS), (FaultCause.RACK, FaultCause.HOST)):
        _, account = run(peers, Told((295, cause)))
        assert seconds(account)["lost"] == lost[alike]  # a rack takes the copies along


HANGS = Failures(hang_share=1, hang_detect_s=50)


def test_a_hang_is_lost_until_it_is_noticed() -> None:
    """The core's own watch finds it, so long after the last step."""
    _, account = run(small(failures=HANGS), Told((110.5, FaultCause.HANG)))
    assert seconds(account)["hang"] == 50.0
    assert account.disruptions[0].cause == "hang"


def test_a_run_that_ends_in_a_hang() -> None:
    _, account = run(small(failures=HANGS, duration_s=130), Told((110, FaultCause.HANG)))
    assert account.goodput == pytest.approx((51 + 47) / 130, abs=0.01)  # nobody has noticed yet


def test_where_nobody_looks_for_hangs_the_run_stands_still_for_ever() -> None:
    _, account = run(small(), Told((110, FaultCause.HANG)))
    assert account.goodput == pytest.approx((51 + 47) / 1000, abs=0.01)


def test_what_was_being_written_when_the_ranks_hung_is_durable() -> None:
    """A writer is a thread of its own; a rank that dies takes it along."""
    scenario = small(SaveCosts(stall_s=2, write_s=30, interval_s=60), failures=HANGS)
    lost = {}
    for cause in (FaultCause.HANG, FaultCause.PROCESS):
        _, account = run(scenario, Told((50, cause)))
        lost[cause] = seconds(account)["lost"]
    assert lost == {FaultCause.HANG: 17.0, FaultCause.PROCESS: 21.0 + 17.0}


def test_a_hang_in_a_restart_has_the_time_of_that_as_well() -> None:
    """Until it hung the time counts as the restart's."""
    scenario = small(failures=HANGS, recovery=Recovery(restart=Fixed(20)))
    _, account = run(scenario, Told((110, FaultCause.PROCESS), (120, FaultCause.HANG)))
    assert [one.cause for one in account.disruptions] == ["killed", "hang"]
    assert seconds(account)["hang"] == 20 + 1 + 50 - 10


def test_a_rank_that_hangs_in_a_save_is_noticed_as_late() -> None:
    _, account = run(small(failures=HANGS), Told((62, FaultCause.HANG)))
    assert seconds(account)["hang"] == 49.0  # from the beginning of the save


def test_a_restart_that_takes_long_is_no_hang() -> None:
    scenario = small(failures=HANGS, recovery=Recovery(restart=Fixed(700)))
    _, account = run(scenario, Told())
    assert account.disruptions == ()


@pytest.mark.parametrize("seed", range(6))
def test_looks_that_are_left_out_change_nothing(seed: int) -> None:
    """Each of them is taken where nothing is folded."""
    failures = Failures(Exponential(3600), host_share=0.2, hang_share=0.7, hang_detect_s=400)
    recovery = Recovery(restart=LogNormal(200, 0.5), restore_s=4)
    scenario = small(failures=failures, recovery=recovery, duration_s=2 * DAY_S)
    folded, one = run(scenario, Drawn(scenario, seed))
    played, other = run(scenario, Drawn(scenario, seed), folds=False)
    assert one == other
    assert one.kinds["hang"]
    assert folded.events < played.events / 1.5


def test_a_lost_host_is_waited_for_and_a_spare_is_there_sooner() -> None:
    recovery = Recovery(restart=Fixed(10), swap=Fixed(20), replace=Fixed(100))
    for spares, kind, waited in ((0, "reschedule:queue", 100), (1, "reschedule:provision", 20)):
        scenario = small(recovery=recovery, fleet=Fleet(spares=spares))
        _, account = run(scenario, Told((110, FaultCause.HOST)))
        assert seconds(account)[kind] == waited
        assert account.disruptions[0].cause == "host_lost"


def test_a_spare_comes_back_when_it_is_repaired() -> None:
    recovery = Recovery(restart=Fixed(10), swap=Fixed(0), replace=Fixed(500), repair=Fixed(200))
    scenario = small(recovery=recovery, fleet=Fleet(spares=1))
    _, account = run(scenario, Told((110, FaultCause.HOST), (400, FaultCause.HOST)))
    assert "reschedule:queue" not in seconds(account)
    _, account = run(scenario, Told((110, FaultCause.HOST), (200, FaultCause.HOST)))
    assert seconds(account)["reschedule:queue"] == 110.0  # the first takes the second one's place


def test_a_replacement_goes_when_the_lost_host_is_repaired() -> None:
    """Or there would be ever more spares."""
    recovery = Recovery(restart=Fixed(10), replace=Fixed(50), repair=Fixed(100))
    scenario = small(recovery=recovery)
    _, account = run(
        scenario, Told((110, FaultCause.HOST), (400, FaultCause.HOST), (700, FaultCause.HOST))
    )
    assert seconds(account)["reschedule:queue"] == 150.0


def test_a_host_that_is_lost_while_another_is_waited_for() -> None:
    scenario = small(recovery=Recovery(restart=Fixed(10), replace=Fixed(100)))
    _, account = run(scenario, Told((110, FaultCause.HOST), (150, FaultCause.HOST)))
    assert seconds(account)["reschedule:queue"] == 140.0
    assert len(account.disruptions) == 1


def test_a_recorded_fleet_is_waited_for_until_a_machine_comes() -> None:
    """One that stands by is there at once, and is set up; else the queue is until one comes."""
    scenario = small(recovery=Recovery(restart=Fixed(10), swap=Fixed(0)))
    lost = TraceChange(110 * S, 0, FaultCause.HOST)
    trace = Trace(
        (TraceChange(50 * S, 0, None), lost, TraceChange(400 * S, 1, None)), ("a", "b"), False
    )
    _, account = run(scenario, Replayed(trace, scenario.fleet))
    kinds = seconds(account)
    assert (kinds["queued"], kinds["reschedule:queue"]) == (50.0, 290.0)
    assert "backoff" not in kinds
    scenario = small(recovery=Recovery(restart=Fixed(10), swap=Fixed(20)))
    trace = Trace((TraceChange(0, 0, None), TraceChange(0, 1, None), lost), ("a", "b"), False)
    for seed in range(4):
        _, account = run(scenario, Replayed(trace, scenario.fleet, seed))
        kinds = seconds(account)
        assert (kinds["queued"], kinds["reschedule:provision"]) == (20.0, 20.0)


def test_an_announcement_saves_what_would_be_lost() -> None:
    told = AnnouncedLoss(to_ns(105), 0, to_ns(110), comes_true=True)
    _, account = run(small(), Told((105, told), (110, FaultCause.HOST)))
    assert seconds(account)["lost"] <= 4.0


def test_it_is_saved_as_late_as_is_safe() -> None:
    """Two seconds, and one and a half times what a save takes, before the host goes."""
    told = AnnouncedLoss(to_ns(300), 0, to_ns(900), comes_true=True)
    world, account = run(small(), Told((300, told), (900, FaultCause.HOST)))
    assert 0 < seconds(account)["lost"] < 2 + 1.5 * (2 * 1 + 2 + 3)
    assert [one.cause for one in account.disruptions] == ["host_lost"]
    notices = [fact for fact in world.story.facts if isinstance(fact, NoticeFact)]
    assert [(one.at_ns, one.deadline_ns) for one in notices] == [(300 * S, 900 * S)]


def test_a_run_that_leaves_when_a_host_goes() -> None:
    """If that is what its user wants: it is saved, ends, and somebody starts it again."""
    told = AnnouncedLoss(to_ns(300), 0, to_ns(400), comes_true=False)
    policy = replace(policy_of(small(), AT_ONCE), notice=NoticePolicy(OnNotice.LEAVE))
    world, account = run(small(), Told((300, told)), policy)
    assert [one.cause for one in account.disruptions] == ["preempted"]
    assert "lost" not in seconds(account)
    assert world.stops == []


def test_what_is_announced_is_forgotten_when_it_has_come() -> None:
    told = [AnnouncedLoss(to_ns(100 * n), 0, to_ns(100 * n + 50), n % 2 > 0) for n in range(1, 8)]
    lost = [(one.deadline_ns / S, FaultCause.HOST) for one in told if one.comes_true]
    events = sorted([*((one.at_ns / S, one) for one in told), *lost], key=lambda one: one[0])
    world, _ = run(small(), Told(*events))
    assert world.controller.machine.notices.announcements == ()


def test_one_that_does_not_come_true_costs_a_save() -> None:
    told = AnnouncedLoss(to_ns(105), 0, to_ns(110), comes_true=False)
    _, account = run(small(), Told((105, told)))
    assert account.disruptions == ()
    assert "lost" not in seconds(account)


def test_one_before_the_first_step_has_it_saved_as_soon_as_there_is_one() -> None:
    """What the attempt resumed from is in memory alone, and the host takes that along."""
    told = AnnouncedLoss(to_ns(553), 0, to_ns(590), comes_true=True)
    scenario = small(IN_MEMORY)
    _, account = run(scenario, Told((550, FaultCause.PROCESS), (553, told), (590, FaultCause.HOST)))
    assert [one.lost_steps for one in account.disruptions] == [5, 31]
    _, account = run(scenario, Told((550, FaultCause.PROCESS), (590, FaultCause.HOST)))
    assert sum(one.lost_steps for one in account.disruptions) > 500


def test_a_supervisor_that_gives_up_is_counted_and_followed_by_another() -> None:
    scenario = small(SaveCosts(interval_s=1e6), duration_s=2000)
    faults = Told(*((100.0 * n, FaultCause.PROCESS) for n in range(1, 15)))
    world, account = run(scenario, faults, policy_of(scenario))
    assert len(world.stops) == 1
    assert "10 failures in a row without a new step" in world.stops[0]
    assert len(account.disruptions) == 11  # the others came while it waited to start again


# --- what it leaves ------------------------------------------------------------------------------


def test_its_history_read_again_gives_the_same_account() -> None:
    scenario = small(IN_MEMORY, failures=Failures(Exponential(900)), duration_s=DAY_S)
    world = World(scenario, Drawn(scenario, 5), policy_of(scenario), seed=5)
    story = world.run()
    end_ns = to_ns(scenario.duration_s)
    ledger = Ledger()
    ledger.add_history(parse_text("".join(f"{line}\n" for line in to_lines(story.history()))))
    assert ledger.account(end_ns) == story.account(end_ns)


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    scenario = small(failures=Failures(Exponential(900)), duration_s=DAY_S)
    assert outcome(scenario, 1) == outcome(scenario, 1) != outcome(scenario, 2)


def test_runs_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    scenario = small(failures=Failures(Exponential(900)), duration_s=DAY_S)
    told: list[tuple[int, int]] = []
    found = Runs("p", scenario).replicate(3, 1, lambda *done: told.append(done))
    assert found.outcomes == tuple(outcome(scenario, seed) for seed in (1, 2, 3))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert found.to_json()["goodput"]["mean"] == found.goodput.mean


def test_a_spread() -> None:
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 1.2, 4.8)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)


def test_a_policy_of_the_users_own() -> None:
    scenario = small(duration_s=200)
    policy = RunPolicy(ranks=1, save=EverySeconds(30), restart=AT_ONCE)
    _, account = run(scenario, Told(), policy)
    assert seconds(account)["save"] == pytest.approx(12.0, abs=2)


def test_until_there_are_standbys_a_restart_is_a_cold_one() -> None:
    """The first start, and the one after a kill at 40 s; all later ones find one, however soon."""
    recovery = Recovery(restart=Fixed(10), cold_s=60.0, standby_ready_s=100.0)
    killed = [(at_s, FaultCause.PROCESS) for at_s in (70, 400, 420, 440, 800)]
    _, account = run(small(recovery=recovery), Told(*killed))
    assert seconds(account)["startup"] == pytest.approx(60 + 60 + 4 * 10)
    _, account = run(small(recovery=replace(recovery, cold_s=None)), Told(*killed))
    assert seconds(account)["startup"] == pytest.approx(6 * 10)


@pytest.mark.parametrize("cold", [True, False])
def test_a_restart_without_a_standby_is_a_cold_one(cold: bool) -> None:
    recovery = Recovery(restart=Fixed(1), cold_s=5.0, standby_ready_s=20.0)
    assert recovery.start_factor(is_cold=cold) == (5.0 if cold else 1.0)
    assert Recovery(restart=Fixed(1), standby_ready_s=20.0).start_factor(is_cold=cold) == 1.0


@pytest.mark.parametrize(("age_s", "is_ready"), [(19, False), (20, True)])
def test_a_standby_is_ready_a_while_after_its_attempt_was_launched(
    age_s: int, is_ready: bool
) -> None:
    standbys = SimulatedStandbys(20 * SECOND)
    assert not standbys.is_ready(0)
    standbys.launched(0)
    assert standbys.is_ready(age_s * SECOND) is is_ready
