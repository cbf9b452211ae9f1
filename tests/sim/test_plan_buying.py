"""Ways to buy: goodput against simulated runs, one way each, and money by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.core.run.restart import AllOf
from holdfast.sim.buying import ways_of_flags
from holdfast.sim.clock import to_ns
from holdfast.sim.faults import AnnouncedLoss, Arrival, Fault, FaultCause, FaultStream
from holdfast.sim.model import Scenario
from holdfast.sim.plan import plan
from holdfast.sim.plan_buying import Bought, Buying, question_of_way
from holdfast.sim.plan_input import Question, parsed, question_of
from holdfast.sim.replicate import Runs, policy_of
from holdfast.sim.world import World

RUN = {"mtbf": 40_000, "hosts": 64, "chips-per-host": 4, "restart": 300, "save-stall": 20,
       "interval": 1500, "days": 10}  # fmt: skip


def asked(*ways: str, **more: Any) -> Question:
    given = RUN | {name.replace("_", "-"): value for name, value in more.items()}
    return question_of(parsed([*given.items()], "--") | {"buy": ways_of_flags(ways)})


def weighed(*ways: str, **more: Any) -> Buying:
    found = plan(asked(*ways, **more)).buying
    assert found is not None
    return found


def only(way: str, **more: Any) -> Bought:
    return weighed(way, **more).ways[0]


def simulated(scenario: Scenario, faults: FaultStream, seed: int) -> tuple[float, float]:
    world = World(scenario, faults, policy_of(scenario, AllOf(())), seed=seed)
    account = world.run().account(to_ns(scenario.duration_s))
    return account.goodput or 0.0, account.scheduling_goodput or 0.0


# --- goodput -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "more"),
    [
        ("on-demand:price=4,provision=20min", {"host_share": 0.7}),
        ("spot:price=1,interruptions=150,provision=lognormal:10min:1,notice=60", {}),
        ("reserved:price=1,provision=2h,term=30d", {"spares": 2, "mtbf": 9000}),
    ],
    ids=["on-demand", "spot", "reserved"],
)
def test_a_way_is_what_its_runs_come_to(way: str, more: dict[str, Any]) -> None:
    question = asked(way, **more)
    scenario = replace(question_of_way(question, question.ways[0]).scenario, step_s=20.0)
    found = only(way, **more)
    runs = [simulated(scenario, Runs("", scenario).faults(seed), seed) for seed in range(3)]
    scheduling = sum(one for _, one in runs) / 3
    assert found.runtime_goodput == pytest.approx(
        sum(one for one, _ in runs) / 3 / scheduling, abs=0.02
    )
    start_s = question.ways[0].provision.mean_s if question.ways[0].provision else 0.0
    there = found.scheduling_goodput * (found.wall_s or 0.0) / ((found.wall_s or 0.0) - start_s)
    assert there == pytest.approx(scheduling, abs=0.02)


class Windows:
    """One host for six hours, and then none for three; its processes fail."""

    hosts_at_start = 1
    tells_arrivals = True

    def __init__(self, seed: int, mtbf_s: float, days: float, lead_s: float) -> None:
        rng, at_s = Random(seed), 0.0
        events: list[Fault | AnnouncedLoss | Arrival] = []
        while (at_s := at_s + rng.expovariate(1 / mtbf_s)) < days * 86_400:
            events.append(Fault(to_ns(at_s), FaultCause.PROCESS, (0,)))
        for number in range(int(days * 86_400 / 32_400) + 1):
            begin_s, end_s = number * 32_400, number * 32_400 + 21_600
            events.append(AnnouncedLoss(to_ns(end_s - lead_s), 0, to_ns(end_s), comes_true=True))
            events.append(Fault(to_ns(end_s), FaultCause.SLICE, (0,)))
            events.append(Arrival(to_ns(begin_s + 32_400), 0))
        self._events = sorted(events, key=lambda event: event.at_ns)

    def next_ns(self) -> int | None:
        return self._events[0].at_ns if self._events else None

    def pop(self) -> Fault | AnnouncedLoss | Arrival:
        return self._events.pop(0)

    def renewed(self, host: int, at_ns: int) -> None:
        """It comes when a window says so."""


def test_a_calendar_is_what_its_runs_come_to() -> None:
    way, more = "calendar:price=1,window=6h,gap=3h", {"mtbf": 9000, "hosts": 1, "host_share": 0}
    found, question = only(way, **more), asked(way, **more)
    scenario = replace(question.scenario, duration_s=30 * 32_400.0, step_s=25.0)
    runs = [simulated(scenario, Windows(n, 9000, 11.25, 45.0), n)[0] for n in range(3)]
    assert found.goodput == pytest.approx(sum(runs) / 3, abs=0.012)
    assert found.scheduling_goodput == pytest.approx(2 / 3, abs=0.01)


# --- money ---------------------------------------------------------------------------------------


def test_the_run_as_planned_is_what_it_is() -> None:
    """Nothing interrupted, nothing waited for: ten days of 256 chips."""
    found = weighed("plain:price=2", "twice:price=4")
    planned, plain, twice = plan(asked()), *found.ways
    assert plain.wall_s == pytest.approx(10 * 86_400)
    assert plain.goodput == pytest.approx(planned.goodput)
    assert plain.money == pytest.approx(2 * 256 * 240)
    assert plain.money_per_useful_chip_hour == pytest.approx(2 / planned.goodput)
    assert found.useful_chip_hours == pytest.approx(256 * 240 * planned.goodput)
    assert twice.money == pytest.approx(2 * plain.money)
    assert found.why[0] == (
        "plain is cheapest, 50 % below twice: its price is 50 % lower, and it pays for as many "
        "chip-hours."
    )
    assert found.why[1] == "plain and twice are equally fast."


def test_what_is_paid_for() -> None:
    """Held machines, or a term, or all the time; a window whole."""
    wait = "price=1,interruptions=600,provision=1h"
    held, always = only(f"a:{wait}", host_share=0), only(f"a:{wait},pays=always", host_share=0)
    assert held.wall_s == always.wall_s
    assert held.wall_s is not None
    assert always.money == pytest.approx(256 * held.wall_s / 3600)
    away = 64 * 600 / 1000 / 24  # hosts, by Little's law
    assert held.money == pytest.approx(4 * (64 - away) * (held.wall_s / 3600 - 1))
    assert only("a:price=1,term=4d").money == pytest.approx(256 * 24 * 12)
    calendar = only("a:price=1,window=3d,gap=1d")
    assert calendar.money == pytest.approx(256 * 24 * 12)  # four windows
    assert calendar.wall_s == pytest.approx(13 * 86_400, rel=0.01)
    assert only("a:price=1", spares=64).money == pytest.approx(2 * 256 * 240)


def test_what_never_gets_done() -> None:
    """A window shorter than a restart, and interruptions faster than one."""
    found = weighed("short:price=1,window=5min,gap=1h", "often:price=1,interruptions=1e8")
    assert [way.wall_s for way in found.ways] == [None, None]
    assert (found.cheapest, found.fastest) == (None, None)
    assert found.why == ("No way to buy gets the work done.",)


def test_what_is_cheap_and_what_is_fast() -> None:
    found = weighed(
        "safe:price=3", "spot:price=1,interruptions=100,provision=20min", "calendar:price=2,"
        "window=2d,gap=2d"
    )  # fmt: skip
    by_money = min(found.ways, key=lambda way: way.money or 1e99)
    by_time = min(found.ways, key=lambda way: way.wall_s or 1e99)
    assert (found.cheapest, found.fastest) == (by_money.name, by_time.name) == ("spot", "safe")
    assert "pays for" in found.why[0]
    assert "safe is fastest" in found.why[1]
    assert "all hosts are there for" in found.why[1]


def test_notices_of_the_seller_and_of_others() -> None:
    """Those that come too late for a save count for nothing."""
    way = "spot:price=1,interruptions=100,notice={}"
    late, soon, none = only(way.format(10)), only(way.format(60)), only(way[:31].strip(","))
    assert late.goodput == none.goodput < soon.goodput - 0.01
    own = {"notice_recall": 0.5, "notice_precision": 0.5, "notice_lead": 60}
    question = asked(way.format(60), **own)
    notices = question_of_way(question, question.ways[0]).scenario.failures.notices
    lost, taken = 1 / (40_000 * 64), 100 / 86_400 / 1000
    assert notices.recall == pytest.approx((0.5 * lost + taken) / (lost + taken))
    assert notices.precision == pytest.approx((0.5 * lost + taken) / (lost + taken))
