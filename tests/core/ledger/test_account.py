"""The result type: its law, its ratios, its JSON."""

from __future__ import annotations

import json

import pytest

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.kinds import Level, level_of, waiting_kind

S = 10**9


def account(**changes: object) -> Account:
    fields = {
        "name": "r",
        "start_ns": 0,
        "end_ns": 10 * S,
        "chips": 2,
        "kinds": {"step": 10 * S, "queued:pull": 4 * S, "reschedule": S, "custom:eval": 5 * S},
        "steps_kept": 5,
        "lost_steps": 0,
        "disruptions": (),
        "paid": 20 * S,
    }
    return Account(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("step_ns", [10 * S - 1, 10 * S + 1])
def test_an_account_that_does_not_add_up_is_refused(step_ns: int) -> None:
    kinds = {"step": step_ns, "other": 10 * S}
    with pytest.raises(ValueError, match="bug in Holdfast's ledger"):
        account(kinds=kinds)


def test_negative_time_is_refused_even_if_it_adds_up() -> None:
    with pytest.raises(ValueError, match="bug"):
        account(kinds={"step": 21 * S, "other": -S})


def test_ratios() -> None:
    result = account()
    assert result.goodput == 0.5
    assert result.scheduling_goodput == 0.75
    assert result.runtime_goodput == pytest.approx(10 / 15)


def test_a_ratio_without_a_denominator_is_none() -> None:
    empty = account(end_ns=0, kinds={"step": 0}, paid=0)
    assert (empty.goodput, empty.scheduling_goodput, empty.runtime_goodput) == (None, None, None)
    waiting = account(kinds={"step": 0, "queued": 20 * S})
    assert (waiting.goodput, waiting.scheduling_goodput, waiting.runtime_goodput) == (0, 0, None)


def test_seconds_of_a_run_whose_chips_changed_add_up_to_the_wall_time() -> None:
    # 2 chips for 5 s, then 6 for 5 s, of which 2 were away
    changed = account(chips=6, paid=40 * S, kinds={"step": 30 * S, "reschedule": 10 * S})
    assert (changed.goodput, changed.in_seconds(changed.elapsed)) == (0.75, 10.0)
    assert (changed.seconds("step"), changed.seconds("reschedule")) == (7.5, 2.5)
    assert changed.wall_ns(30 * S) == 75 * S // 10


def test_time_of_kept_steps_is_that_of_the_chips_that_did_them() -> None:
    # 5 s of steps on 2 chips, then 5 s on 4
    changed = account(chips=4, paid=30 * S, kinds={"step": 30 * S}, kept_ns=10 * S)
    assert changed.kept_chip_ns(S) == 3 * S
    assert account().kept_chip_ns(S) == 2 * S


def test_json() -> None:
    disruption = Disruption(0, "hang", 2, S // 2, None, 3 * S, None, {"drain": S}, 2)
    result = json.loads(json.dumps(account(disruptions=(disruption,)).to_json()))
    assert result["badput_s"] == {"custom:eval": 2.5, "queued:pull": 2.0, "reschedule": 0.5}
    assert result["productive_s"] + sum(result["badput_s"].values()) == result["elapsed_s"] == 10.0
    assert result["program_goodput"] is None
    assert result["disruptions"] == [
        {
            "attempt": 0,
            "cause": "hang",
            "lost_steps": 2,
            "lost_s": 0.5,
            "downtime_s": None,
            "at_s": 3.0,
            "resumed_s": None,
            "waterfall_s": {"drain": 1.0},
        }
    ]


def test_levels() -> None:
    levels = {kind: level_of(kind) for kind in ("step", "queued:boot", "reschedule", "backoff",
                                                "custom:queued", "lost")}  # fmt: skip
    assert levels == {
        "step": Level.PRODUCTIVE,
        "queued:boot": Level.SCHEDULING,
        "reschedule": Level.SCHEDULING,
        "backoff": Level.RUNTIME,
        "custom:queued": Level.RUNTIME,
        "lost": Level.RUNTIME,
    }
    assert level_of(waiting_kind("boot", before_first=False, after_done=True)) is Level.SCHEDULING
