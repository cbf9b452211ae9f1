"""MTBF, MTTR, ETTR and the published estimates, on cases worked out by hand."""

from __future__ import annotations

import pytest
from plain_ledger import account

from holdfast.core.ledger import metrics
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.facts import AttemptFact, RestoreFact, RunFact, StepsFact, WaitFact

S = 10**9


def two_failures() -> Account:
    """100 s asked for; 10 queued; two attempts that fail, and a third that is still starting."""
    return account([
        RunFact("r", 0, None, 4),
        AttemptFact(0, 10 * S, 40 * S, "failed"),
        StepsFact(0, 1, 30, 10 * S, 40 * S),
        WaitFact("backoff", 40 * S, 42 * S),
        AttemptFact(1, 45 * S, 80 * S, "host_lost"),
        RestoreFact(1, 45 * S, 50 * S, 20),
        StepsFact(1, 21, 50, 50 * S, 80 * S),
        AttemptFact(2, 85 * S, None, None),
    ], now_ns=100 * S)  # fmt: skip


def test_costs_of_a_disruption() -> None:
    first, second = two_failures().disruptions
    cost = metrics.cost_of(first)
    assert cost == metrics.Cost(tch_ns=10 * S, trm_ns=(2 + 5) * S, tre_ns=3 * S)
    assert first.downtime_ns == cost.trm_ns + cost.tre_ns
    assert metrics.cost_of(second) is None


def test_mean_times() -> None:
    result = two_failures()
    assert metrics.mtbf_s(result) == (100 - 10 - 3 - 5) / 2
    assert metrics.mttr_s(result) == 10.0  # the second has not been recovered from
    assert metrics.ettr(result) == (20 + 30) / 100


def test_nothing_to_average() -> None:
    quiet = account([RunFact("r", 0, 5, 1)])
    assert metrics.mtbf_s(quiet) is None
    assert metrics.mttr_s(quiet) is None
    assert metrics.estimated_runtime_goodput([], [], [5.0], 5.0) is None
    assert metrics.estimated_scheduling_goodput([], 0.0) is None


def test_the_estimates_meet_the_account_where_there_is_nothing_else_to_know() -> None:
    """Without first start-up, compile, stalls and saves the estimate is the measurement."""
    result = account([
        RunFact("r", 0, 100 * S, 4),
        AttemptFact(0, 0, 40 * S, "failed"),
        StepsFact(0, 1, 40, 0, 40 * S),
        AttemptFact(1, 50 * S, 100 * S, "done"),
        RestoreFact(1, 50 * S, 55 * S, 30),
        StepsFact(1, 31, 75, 55 * S, 100 * S),
    ])  # fmt: skip
    costs = [metrics.cost_of(d) for d in result.disruptions]
    tch, trm, tre = (
        [getattr(c, name) / S for c in costs] for name in ("tch_ns", "trm_ns", "tre_ns")
    )
    estimate = metrics.estimated_runtime_goodput(tch, trm, tre, result.elapsed_ns / S)
    assert estimate == pytest.approx(result.runtime_goodput)
    scheduling = metrics.estimated_scheduling_goodput(tre, result.elapsed_ns / S)
    assert scheduling == pytest.approx(result.scheduling_goodput)
