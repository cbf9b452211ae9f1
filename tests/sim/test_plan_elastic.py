"""Plans of elastic fleets: held to simulated runs, and to what waiting comes to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.core.run.restart import AllOf
from holdfast.errors import ConfigurationError
from holdfast.sim.clock import to_ns
from holdfast.sim.plan import Plan, plan
from holdfast.sim.plan_curves import at_scale
from holdfast.sim.plan_input import parsed, question_of, scenario_of
from holdfast.sim.replicate import Runs, policy_of
from holdfast.sim.world import World

RUNS = 4
LOSING = {
    "mtbf": 5000, "restart": 300, "save-stall": 20, "hosts": 64, "host-share": 0.5, "days": 4,
    "hosts-per-slice": 4, "elastic": True,
}  # fmt: skip


def planned(**given: Any) -> Plan:
    values = {**LOSING, **{name.replace("_", "-"): value for name, value in given.items()}}
    return plan(question_of(parsed(values.items(), "--")))


@pytest.mark.parametrize(
    ("given", "within", "disruptions"),
    [
        ({"reschedule": "6h", "restart": 60}, 0.01, 0.1),  # each slice is taken in
        ({"reschedule": "3h", "restart": 900}, 0.015, 0.1),  # the next failure takes them in
        ({"reschedule": "3h", "hosts-per-slice": 32}, 0.02, 0.15),  # two slices
    ],
)
def test_a_plan_is_what_runs_come_to(
    given: dict[str, Any], within: float, disruptions: float
) -> None:
    """The mean of four runs of four days, some 60 failures each, is known to about 0.6 points."""
    question = question_of(parsed({**LOSING, **given}.items(), "--"))
    found = plan(question)
    saves = replace(question.scenario.saves, interval_s=found.interval_s)
    scenario = replace(question.scenario, saves=saves, step_s=found.interval_s / 50)
    runs, accounts = Runs("", scenario), []
    for seed in range(RUNS):
        world = World(scenario, runs.faults(seed), policy_of(scenario, AllOf(())), seed=seed)
        accounts.append(world.run().account(to_ns(scenario.duration_s)))
    goodputs = [account.goodput or 0.0 for account in accounts]
    assert found.goodput == pytest.approx(sum(goodputs) / RUNS, abs=within)
    count = sum(len(account.disruptions) for account in accounts) / RUNS
    assert found.disruptions.mean == pytest.approx(count, rel=disruptions)
    assert sum(found.goodput_low <= one <= found.goodput_high for one in goodputs) >= 2


def test_what_it_gains_is_what_waiting_loses() -> None:
    found, waits = planned(reschedule="3h"), planned(reschedule="3h", elastic=False)
    assert waits.elastic is None
    assert found.elastic is not None
    assert found.elastic.goodput_waiting == waits.goodput
    assert found.elastic.gain == found.goodput - waits.goodput > 0.4
    assert found.badput.reschedule < waits.badput.reschedule
    shares = found.badput
    assert found.goodput + shares.reschedule + shares.restart + shares.lost + shares.save == (
        pytest.approx(1.0)
    )
    change = "go on without the slices that are not whole"
    assert {one.change: one.goodput for one in waits.what_ifs}[change] == found.goodput
    assert change not in {one.change for one in found.what_ifs}


@pytest.mark.parametrize(
    "given", [{"reschedule": 60}, {"reschedule": "3h", "least_slices": 16}, {"host_share": 0.0}]
)
def test_where_going_on_does_not_pay_it_waits(given: dict[str, Any]) -> None:
    found = planned(**given)
    assert found.elastic is not None
    assert (found.elastic.gain, found.elastic.restarts) == (0.0, 0.0)


def test_more_slices_lose_less() -> None:
    """A lost host takes less along; of slices of one host, no more than itself."""
    found = [planned(reschedule="6h", hosts_per_slice=size, restart=60) for size in (32, 16, 4, 1)]
    sgs = [one.scheduling_goodput for one in found]
    assert sgs == sorted(sgs)


def test_at_another_scale_there_are_more_slices_and_not_larger_ones() -> None:
    given = {**LOSING, "reschedule": "6h", "restart": 60}
    question = question_of(parsed(given.items(), "--"))
    there = [at_scale(question, factor).waiting.scheduling_goodput for factor in (0.5, 1, 4)]
    assert there == pytest.approx([there[1]] * 3, abs=0.01)
    assert at_scale(question, 1).goodput == plan(question).goodput
    assert at_scale(question, 1 / 16).waiting.present == 1  # one slice, which is waited for


def test_restarts_that_cost_nothing_lose_nothing_against_waiting() -> None:
    for wait in (1, 600, "3h", "2d"):
        found = planned(restart=0, save_stall=0, interval=60, reschedule=wait)
        assert found.elastic is not None
        assert found.elastic.gain > 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hosts-per-slice": 5}, "64 hosts are not a whole number of slices of 5"),
        ({"hosts-per-slice": 64}, "needs two slices"),
        ({"least-slices": 17}, "at least 17 of 16 slices"),
        ({"weibull": 0.7}, "--weibull is of the whole run"),
        ({"elastic": "perhaps"}, "neither true nor false"),
    ],
)
def test_what_contradicts_itself_is_said(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        scenario_of(parsed({**LOSING, **wrong}.items(), "--"))


def test_flags_that_say_nothing_alone() -> None:
    for name, value, other in (
        ("elastic", True, "hosts-per-slice"),
        ("least-slices", 2, "elastic"),
    ):
        with pytest.raises(ConfigurationError, match=f"without --{other}"):
            scenario_of(parsed({"mtbf": 5000, name: value}.items(), "--"))
    assert parsed([("elastic", "true")], "--") == {"elastic": True}


@settings(max_examples=12, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "mtbf": st.floats(60, 1e7),
            "save-stall": st.floats(0, 600),
            "host-share": st.floats(0, 1),
            "hosts-per-slice": st.integers(1, 100),
        },
        optional={
            "restart": st.floats(0, 3600),
            "reschedule": st.floats(0, 1e6),
            "repair": st.floats(60, 1e6),
            "spares": st.integers(0, 40),
            "memory-copy": st.floats(0, 60),
            "notice-recall": st.floats(0, 1),
            "days": st.floats(0.1, 400),
        },
    ),
    st.integers(2, 200),
    st.data(),
)
def test_whatever_is_asked_the_answer_adds_up(
    given: dict[str, Any], slices: int, data: st.DataObject
) -> None:
    assume(given["save-stall"] < given["mtbf"])  # else it hardly trains at all
    least = data.draw(st.integers(1, slices))
    hosts = slices * given["hosts-per-slice"]
    found = plan(question_of({**given, "hosts": hosts, "elastic": True, "least-slices": least}))
    assert found.elastic is not None
    assert 0 <= found.goodput_low <= found.goodput <= found.goodput_high <= 1
    # The policy looks at one state, the average one; of a run that hardly trains, that says little.
    assert found.elastic.gain > -1e-3 or found.elastic.goodput_waiting < 0.01
    assert 0 <= found.elastic.slices_training <= slices
    rest = found.badput.reschedule + found.badput.restart + found.badput.lost + found.badput.save
    assert found.goodput + rest == pytest.approx(1, abs=1e-6)
    json.dumps(found.to_json(), allow_nan=False)
