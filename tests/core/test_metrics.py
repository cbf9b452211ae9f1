"""The published estimate of runtime goodput, beside the account of a case worked out by hand."""

from __future__ import annotations

import pytest
from plain_ledger import account

from holdfast.core.ledger.facts import AttemptFact, RestoreFact, RunFact, StepsFact
from holdfast.core.ledger.kinds import Level, level_of
from holdfast.sim.plan_published import estimated_runtime_goodput

S = 10**9


def test_nothing_to_average() -> None:
    assert estimated_runtime_goodput([], [], [5.0], 5.0) is None


def test_the_estimate_meets_the_account_where_there_is_nothing_else_to_know() -> None:
    """Without first start-up, compile, stalls and saves the estimate is the measurement."""
    result = account([
        RunFact("r", 0, 100 * S, 4),
        AttemptFact(0, 0, 40 * S, "failed"),
        StepsFact(0, 1, 40, 0, 40 * S),
        AttemptFact(1, 50 * S, 100 * S, "done"),
        RestoreFact(1, 50 * S, 55 * S, 30),
        StepsFact(1, 31, 75, 55 * S, 100 * S),
    ])  # fmt: skip
    (lost,) = result.disruptions
    waited = [t for kind, t in lost.waterfall_ns.items() if level_of(kind) is Level.SCHEDULING]
    assert lost.downtime_ns is not None
    tch, tre = lost.lost_ns / S, sum(waited) / S
    trm = lost.downtime_ns / S - tre
    estimate = estimated_runtime_goodput([tch], [trm], [tre], result.elapsed_ns / S)
    assert estimate == pytest.approx(result.runtime_goodput)
