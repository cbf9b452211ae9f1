"""Time in which a person kept a run stopped: a kind of its own, and out of goodput on request."""

from __future__ import annotations

import pytest
from plain_ledger import account as plain_account

from holdfast.core.ledger.facts import AttemptFact, CapacityFact, RunFact, StepsFact, WaitFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.summary import spent_of

FACTS = [
    RunFact("r", 0, 100, 2),
    AttemptFact(0, 0, 20, "stopped"),
    StepsFact(0, 1, 10, 0, 20),
    WaitFact("stopped", 20, None),
    AttemptFact(1, 70, 80, "failed"),
    StepsFact(1, 11, 15, 70, 80),
    AttemptFact(2, 90, 100, "done"),
    StepsFact(2, 16, 20, 90, 100),
]


def test_it_lasts_until_the_next_attempt_begins_and_no_longer():
    ledger = Ledger()
    ledger.add(FACTS)
    account = ledger.account()
    assert account.kinds == plain_account(FACTS).kinds
    assert account.kinds == {"step": 80, "stopped": 100, "reschedule": 20}


def test_without_it_goodput_is_a_share_of_the_rest():
    ledger = Ledger()
    ledger.add(FACTS)
    account = ledger.account()
    assert (account.goodput, account.scheduling_goodput) == (0.4, 0.4)
    rest = account.without_stopped()
    assert (rest.goodput, rest.runtime_goodput) == (0.8, 1.0)
    assert rest.to_json()["elapsed_s"] == pytest.approx(50e-9)
    assert "stopped" not in rest.to_json()["badput_s"]
    spent = spent_of(account)
    assert spent.without_stopped().goodput == 0.8
    (stop, _), (told, _) = account.disruptions, rest.disruptions
    assert (stop.downtime_ns, told.downtime_ns) == (50, 0)
    assert "stopped" not in told.waterfall_ns
    assert [one.chip_ns for one in spent.losses] == [100, 20]
    assert [one.chip_ns for one in spent.without_stopped().losses] == [0, 20]


def test_all_chips_are_stopped_where_fewer_trained():
    facts = [
        RunFact("r", 0, 100, 4),
        AttemptFact(0, 0, 10, "stopped"),
        CapacityFact(0, 3),
        StepsFact(0, 1, 10, 0, 10),
        WaitFact("stopped", 10, None),
        AttemptFact(1, 90, 100, "done"),
        StepsFact(1, 11, 20, 90, 100),
    ]
    ledger = Ledger()
    ledger.add(facts)
    account = ledger.account()
    assert account.kinds == plain_account(facts).kinds
    assert account.kinds == {"step": 60, "stopped": 4 * 80, "reschedule": 20}
    assert account.without_stopped().goodput == 0.75
