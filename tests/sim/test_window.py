"""A window of time: the exact mean of what is kept of it, against windows that are played."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.plan.optimum import efficiency
from holdfast.sim.window import kept_s

COSTS = {"interval_s": 500.0, "save_s": 20.0, "restart_s": 200.0, "write_s": 60.0}


def played(window_s: float, rate: float, rng: Random) -> float:
    """The oracle: one window, failure by failure."""
    until_s, kept, begin_s = window_s - 80.0, 0.0, 0.0
    while True:
        lived_s = min(rng.expovariate(rate), until_s - begin_s)
        is_last = begin_s + lived_s >= until_s
        trains_s = max(0.0, lived_s - 200.0)
        if is_last:
            whole, rest_s = divmod(trains_s, 520.0)
            return kept + whole * 500.0 + min(rest_s, 500.0)
        kept += 500.0 * max(0.0, (lived_s - 260.0) // 520.0)
        begin_s += lived_s


@pytest.mark.parametrize(("window_s", "mtbf_s"), [(20_000.0, 3000.0), (2000.0, 900.0)])
def test_what_a_window_keeps(window_s: float, mtbf_s: float) -> None:
    rng = Random(3)
    drawn = [played(window_s, 1 / mtbf_s, rng) for _ in range(6000)]
    mean = sum(drawn) / len(drawn)
    error = (sum((one - mean) ** 2 for one in drawn) / len(drawn) ** 2) ** 0.5
    exact = kept_s(window_s, failures_per_s=1 / mtbf_s, **COSTS)
    assert exact == pytest.approx(mean, abs=4 * error)


def test_long_windows_and_short_ones() -> None:
    """Daly's efficiency of what is longer; nothing of what ends before it has begun."""
    costs = {**COSTS, "write_s": 0.0}
    one, two = (kept_s(days * 86_400.0, failures_per_s=1e-4, **costs) for days in (10, 20))
    assert (two - one) / 864_000 == pytest.approx(efficiency(500, 20, 200, 1e4), rel=1e-6)
    assert kept_s(270.0, failures_per_s=1e-4, **COSTS) == 0
    assert kept_s(1000.0, failures_per_s=0.0, **COSTS) == 1000 - 80 - 200 - 20
