"""A plan is a prediction: the closed forms against simulated runs of the same parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.run.restart import AllOf
from holdfast.sim.clock import to_ns
from holdfast.sim.laws import Weibull
from holdfast.sim.plan import plan
from holdfast.sim.plan_input import parsed, question_of
from holdfast.sim.plan_model import as_run, outlook
from holdfast.sim.replicate import Runs, policy_of
from holdfast.sim.world import World

AT_ONCE = AllOf(())  # the plan knows no back-off
RUNS = 10
FAILING = {"mtbf": 5000, "restart": 300, "save-stall": 20, "hosts": 64, "days": 10}
LOSING = {**FAILING, "host-share": 0.5}
LONG = pytest.mark.real  # not of processes: of some ten seconds each
SHORT = {**LOSING, "days": 6}


@pytest.mark.parametrize(
    "given",
    [
        {**SHORT, "hang-share": 0.8, "hang-detect": "20min", "repair": "lognormal:20min:1"},
        {**SHORT, "hosts-per-rack": 8, "rack-mtbf": "2d", "repair": "1h", "spares": 8},
        {**SHORT, "mtbf": 20_000, "hosts": 128, "infant-share": 0.3, "infant-mean": "12h"},
    ],
    ids=lambda given: " ".join(given),
)
def test_a_plan_knows_every_kind_of_failure(given: dict[str, Any]) -> None:
    """Three runs; what makes the difference costs several points each."""
    question = question_of(parsed(given.items(), "--"))
    planned = plan(question)
    interval_s, copies_s = planned.interval_s, planned.memory_interval_s
    saves = replace(question.scenario.saves, interval_s=interval_s, memory_interval_s=copies_s)
    scenario = replace(question.scenario, saves=saves, step_s=(copies_s or interval_s) / 20)
    accounts = []
    for seed in range(3):
        faults = Runs("", scenario).faults(seed)
        world = World(scenario, faults, policy_of(scenario, AT_ONCE), seed=seed)
        accounts.append(world.run().account(to_ns(scenario.duration_s)))
    goodput = sum(account.goodput or 0.0 for account in accounts) / 3
    failures = sum(len(account.disruptions) for account in accounts) / 3
    assert planned.goodput == pytest.approx(goodput, abs=0.02)
    assert planned.disruptions.mean == pytest.approx(failures, rel=0.1)


@pytest.mark.parametrize(
    ("given", "within"),
    [
        (FAILING, 0.006),
        ({**LOSING, "save-write": 60}, 0.006),
        ({**LOSING, "reschedule": "20min"}, 0.01),
        ({**LOSING, "repair": "6h", "spares": 4}, 0.02),
        pytest.param({**LOSING, "repair": "6h", "reschedule": "10min"}, 0.01, marks=LONG),
        ({**LOSING, "repair": "lognormal:6h:1", "reschedule": "3h", "spares": 2}, 0.03),
        pytest.param({**LOSING, "reschedule": "1h", "spares": 60}, 0.02, marks=LONG),
        pytest.param({**LOSING, "memory-copy": 5, "peers": True}, 0.006, marks=LONG),
        pytest.param({**LOSING, "memory-copy": 5, "save-write": 100}, 0.006, marks=LONG),
        ({**LOSING, "notice-recall": 0.7, "notice-precision": 0.7, "notice-lead": 60}, 0.008),
        ({**FAILING, "weibull": 0.6}, 0.012),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_a_plan_is_what_runs_come_to(given: dict[str, Any], within: float) -> None:
    """The mean of ten runs of ten days, some 170 failures each, is known to about 0.2 points.

    Waits for hosts vary most, and so do clusters of failures. The intervals are those of the plan.
    """
    question = question_of(parsed(given.items(), "--"))
    planned = plan(question)
    interval_s, copies_s = planned.interval_s, planned.memory_interval_s
    scenario = question.scenario
    saves = replace(scenario.saves, interval_s=interval_s, memory_interval_s=copies_s)
    scenario = replace(scenario, saves=saves, step_s=(copies_s or interval_s) / 50)
    between = question.between if isinstance(question.between, Weibull) else None
    runs = Runs("", scenario, between=between)
    goodputs, disruptions = [], []
    for seed in range(RUNS):
        world = World(scenario, runs.faults(seed), policy_of(scenario, AT_ONCE), seed=seed)
        account = world.run().account(to_ns(scenario.duration_s))
        goodputs.append(account.goodput or 0.0)
        disruptions.append(len(account.disruptions))
    mean = sum(goodputs) / RUNS
    assert planned.goodput == pytest.approx(mean, abs=within)
    assert planned.disruptions.mean == pytest.approx(sum(disruptions) / RUNS, rel=0.07)
    inside = sum(planned.goodput_low <= one <= planned.goodput_high for one in goodputs)
    assert inside >= RUNS - 4  # of ten, fewer than six once in 600 times


@pytest.mark.parametrize("given", [FAILING, {**LOSING, "memory-copy": 0.5, "save-write": 60}])
def test_a_plan_knows_what_a_run_chooses(given: dict[str, Any]) -> None:
    """Runs that are told no interval find theirs, though they must learn how often they fail."""
    question = question_of(parsed({**given, "step": 10, "days": 5}.items(), "--"))
    scenario, accounts = question.scenario, []
    for seed in range(3):
        faults = Runs("", scenario).faults(seed)
        world = World(scenario, faults, policy_of(scenario, AT_ONCE), seed=seed)
        accounts.append(world.run().account(to_ns(scenario.duration_s)))
    goodput = sum(account.goodput or 0.0 for account in accounts) / 3
    saves = sum(account.kinds["save"] / account.paid for account in accounts) / 3
    planned = outlook(as_run(question))
    assert plan(question).run_goodput == planned.goodput == pytest.approx(goodput, abs=0.015)
    assert planned.shares.saves == pytest.approx(saves, abs=0.006)
