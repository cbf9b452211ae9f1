"""The truth check: kills that wait, and what a simulator whose parameters are known predicts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

RECOVERY = Path(__file__).parents[2] / "bench" / "recovery"
sys.path.append(str(RECOVERY))

from truth_model import Course, Parameters, apart, predicted  # noqa: E402

from holdfast.sim.fitted import Fit, Fitted  # noqa: E402

S = 1_000_000_000
KNOWN = {"step": 0.1, "memory-copy": 0.003, "save-write": 0.5, "restart": 0.5, "idle": 0.02}


def known(**more: float) -> Parameters:
    values = {**KNOWN, **more}
    return Parameters(
        Fit({name: Fitted(name, value, None, None, 1, "") for name, value in values.items()})
    )


def test_a_kill_waits_until_the_run_is_back():
    assert list(apart([50, 10, 12], lambda _: 5)) == [10, 15, 50]
    assert list(apart([1, 2, 3], lambda _: 5)) == [1, 6, 11]


def test_a_kill_waits_longer_where_no_standby_was_ready():
    ages: list[int] = []

    def back_ns(age_ns: int) -> int:
        ages.append(age_ns)
        return 5 if age_ns > 10 else 20

    assert list(apart([30, 40, 41], back_ns)) == [30, 40, 60]
    assert ages == [30, 10, 20]


def test_each_kill_costs_a_restart_and_some_steps():
    """Three in half a minute, of half a second each: 5 %, and some steps that were not copied."""
    course = Course([2 * S], [10 * S, 18 * S, 30 * S], 5 * S, 35 * S)
    calm = predicted(known(), Course([2 * S], [], 5 * S, 35 * S), 1)
    struck = predicted(known(), course, 1)
    assert 0.95 < calm.mean < 0.98
    assert 0.05 < calm.mean - struck.mean < 0.08
    longer = predicted(known(restart=2.5), course, 1)
    assert struck.mean - longer.mean == pytest.approx(3 * 2.0 / 30, abs=0.02)
    assert struck.low <= struck.mean <= struck.high
