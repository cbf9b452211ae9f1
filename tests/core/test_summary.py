"""Summaries add up: shares of a fleet are those of its chip-time, and nothing is counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    RestoreFact,
    RunFact,
    StepsFact,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.program import Basis, Declared
from holdfast.core.ledger.summary import (
    NOTHING,
    Loss,
    RunSummary,
    Spent,
    Window,
    added,
    fleet,
    spent_of,
)
from holdfast.report.fleet import FleetReport, notes

S = 1_000_000_000
KINDS = ("step", "queued", "reschedule:boot", "startup", "lost", "custom:eval")
SPENT = st.builds(
    Spent,
    kinds=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 10**20)),
    steps_kept=st.integers(0, 10**9),
    lost_steps=st.integers(0, 10**9),
    ideal=st.integers(0, 10**20),
    paced=st.integers(0, 10**20),
    losses=st.lists(
        st.builds(Loss, st.integers(0, 10**18), st.sampled_from(("killed", "hang")),
                  st.integers(0, 10**18), st.sampled_from(("", "E at a.py:1"))), max_size=4
    ).map(tuple),
)  # fmt: skip


@given(st.lists(SPENT, max_size=6))
def test_a_sum_is_the_sum(parts: list[Spent]) -> None:
    total = added(parts)
    for name in ("elapsed", "productive", "available", "steps_kept", "lost_steps"):
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    possible = [part for part in parts if part.ideal <= part.paced]
    assert total.ideal == sum(part.ideal for part in possible)
    assert total.program is None or total.program <= 1
    rows = total.causes()
    assert sum(count for _, count, _ in rows) == sum(len(part.losses) for part in parts)
    errors = total.errors()
    assert sum(one.chip_ns for one in errors) == sum(price for *_, price in rows)
    assert {one.cause for one in errors} == {cause for cause, *_ in rows}
    assert [price for *_, price in rows] == sorted((p for *_, p in rows), reverse=True)
    if total.elapsed and total.available:
        assert total.scheduling is not None
        assert total.runtime is not None
        product = total.scheduling * total.runtime
        assert abs(product - (total.goodput or 0)) < 1e-9


def test_an_account_becomes_a_summand() -> None:
    down = Disruption(0, "killed", 2, 20 * S, 15 * S, 100 * S, 115 * S, {"startup": 15 * S}, 4)
    kinds = {"step": 80 * S * 4, "lost": 20 * S * 4, "startup": 0}
    spent = spent_of(
        Account("r", 0, 100 * S, 4, kinds, 8, 2, (down,), 400 * S), Basis(Declared(9 * S))
    )
    assert spent.kinds == {"lost": 80 * S, "step": 320 * S}
    assert spent.losses == (Loss(100 * S, "killed", 35 * S * 4),)
    assert (spent.goodput, spent.scheduling, spent.runtime) == (0.8, 1.0, 0.8)
    assert spent.program == 0.9  # 8 steps of 9 s at best took 80 s
    assert spent_of(Account("r", 0, 100 * S, 4, kinds, 8, 2, (), 400 * S)).program is None


def test_a_run_whose_steps_took_less_than_they_can_is_left_out_and_named() -> None:
    right, wrong = (
        RunSummary(name, name, "done", within={"all": Spent({"step": 8 * S}, ideal=ideal, paced=8)})
        for name, ideal in (("right", 4), ("wrong", 8_000_000))
    )
    assert fleet([right, wrong], "all").program == 0.5
    told = FleetReport("store", 0, (right, wrong), (Window("all", None),), "all")
    assert "program goodput leaves out 1 run, 'wrong' first" in "".join(notes(told))


def test_a_run_outside_of_a_window_adds_nothing() -> None:
    run = RunSummary(
        "a",
        "1",
        "done",
        chips=2,
        within={"all": Spent({"step": 8 * S}, steps_kept=2, wall_ns=4 * S, kept_ns=4 * S)},
    )
    assert run.spent("1d") is NOTHING
    assert (run.step_s(), run.step_s("1d")) == (2.0, None)
    assert fleet([run, run], "all").productive == 16 * S
    assert fleet([], "all").goodput is None


CRASH_LOOP: list[Fact] = [
    RunFact("r", 0, None, 8),
    AttemptFact(0, 0, 100 * S, "host_lost"),
    StepsFact(0, 1, 10, 0, 100 * S),
    *(AttemptFact(n, (90 + 10 * n) * S, (100 + 10 * n) * S, "failed") for n in range(1, 61)),
    AttemptFact(61, 700 * S, None, None),
    RestoreFact(61, 700 * S, 701 * S, 10, 0),
]


@pytest.mark.parametrize("is_over", [True, False])
def test_starts_that_fail_one_after_another_cost_what_they_took(is_over: bool) -> None:
    ledger = Ledger()
    resumed = StepsFact(61, 11, 20, 701 * S, 801 * S)
    ledger.add([*CRASH_LOOP, *([resumed] if is_over else [])])
    account = ledger.account(801 * S)
    spent = spent_of(account)
    first, second, *_, last = account.disruptions
    latest_s = 701 if is_over else 801  # down up to there
    assert [one.down_ns // S for one in (first, second, last)] == [
        latest_s - 100, latest_s - 100, latest_s - 690
    ], "of each story all"  # fmt: skip
    assert spent.causes() == [
        ("failed", 60, (latest_s - 100) * 8 * S),
        ("host_lost", 1, 0),  # the first start began and failed as soon as the host was away
    ]
    assert sum(one.chip_ns for one in spent.errors()) == spent.elapsed - spent.productive


@pytest.mark.parametrize("queued_s", [0, 1000])
def test_a_step_takes_as_long_whatever_chips_do_it_and_however_long_a_run_waited(
    queued_s: int,
) -> None:
    """Ten steps of 2 s on 8 chips, ten on 32, and ten on 32 of which 16 are away."""
    facts: list[Fact] = [RunFact("r", 0, None, 8)]
    for n, (chips, of) in enumerate([(8, 8), (32, 32), (16, 32)]):
        at_ns = (queued_s + 20 * n) * S
        facts += [
            CapacityFact(at_ns, chips, of),
            AttemptFact(n, at_ns, at_ns + 20 * S, "preempted"),
            StepsFact(n, 10 * n + 1, 10 * n + 10, at_ns, at_ns + 20 * S),
        ]
    ledger = Ledger()
    ledger.add(facts)
    spent = spent_of(ledger.account(), Basis(Declared(ideal_step_ns=S)))
    run = RunSummary("r", "1", "done", chips=32, within={"all": spent})
    assert (run.step_s(), spent.program) == (2.0, 0.5)
