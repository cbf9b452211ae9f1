"""Checkpoint intervals: against scipy's Lambert W, brute force, and each other."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import exp, inf, nan, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from holdfast.core.plan.optimum import (
    efficiency,
    exact_interval_s,
    one_plus_lambert_w,
    young_interval_s,
)

saves_s = st.floats(1e-4, 3600)
mtbfs_s = st.floats(60, 1e8)


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Daly's estimate, his equation 37: √(2δM)·[1 + ⅓√(δ/2M) + ⅑(δ/2M)] − δ for δ < 2M, else M."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return sqrt(2 * save_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s


@given(st.floats(1e-3, 600))
def test_agrees_with_scipy_away_from_the_branch_point(epsilon):
    assert one_plus_lambert_w(epsilon) == pytest.approx(1 + lambertw(-exp(-1 - epsilon)).real)


def in_decimal(epsilon: float) -> float:
    """Bisection of y + ln(1−y) + ε = 0 with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        low, high = Decimal(0), Decimal(1) - Decimal(10) ** -50
        for _ in range(200):
            middle = (low + high) / 2
            if middle + (1 - middle).ln() + Decimal(epsilon) > 0:
                low = middle
            else:
                high = middle
        return float(low)


@pytest.mark.parametrize(
    "epsilon", [1e-17, 1e-12, 3e-9, 1e-6, 1e-3, 0.03, 0.2, 0.3, 0.7, 1, 3, 12, 29.9, 30.1, 45]
)
def test_keeps_its_digits_near_the_branch_point_and_far_from_it(epsilon):
    """Where scipy gives 1 + W(−e^(−1−1e-12)) with four digits and nan below."""
    assert one_plus_lambert_w(epsilon) == pytest.approx(in_decimal(epsilon), rel=2e-13)


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_is_monotonic_between_0_and_1(a, b):
    low, high = sorted([a, b])
    assert 0 <= one_plus_lambert_w(low) <= one_plus_lambert_w(high) + 1e-15 <= 1 + 1e-15


def test_tiny_costs_do_not_break_down():
    assert one_plus_lambert_w(0) == 0
    for epsilon in (5e-324, 1e-300, 1e-200, 1e-20):
        assert one_plus_lambert_w(epsilon) == pytest.approx((2 * epsilon) ** 0.5, rel=1e-8)


@given(saves_s, mtbfs_s, st.floats(0, 600))
def test_no_other_interval_is_more_efficient(save_s, mtbf_s, restart_s):
    best_s = exact_interval_s(save_s, mtbf_s)
    best = efficiency(best_s, save_s, restart_s, mtbf_s)
    for factor in (0.2, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 5):
        assert efficiency(best_s * factor, save_s, restart_s, mtbf_s) <= best * (1 + 1e-12)


@pytest.mark.parametrize(("save_s", "mtbf_s"), [(0.01, 1e5), (5, 3600), (300, 7200), (900, 600)])
def test_brute_force_finds_the_same_interval(save_s, mtbf_s):
    found = minimize_scalar(
        lambda t: -efficiency(t, save_s, 30, mtbf_s),
        bounds=(1e-3, 5 * mtbf_s),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert exact_interval_s(save_s, mtbf_s) == pytest.approx(found.x, rel=1e-4)


@given(saves_s, mtbfs_s)
def test_the_three_agree_when_a_save_is_cheap(save_s, mtbf_s):
    mtbf_s *= 1e4 * max(1, save_s)
    exact_s = exact_interval_s(save_s, mtbf_s)
    assert young_interval_s(save_s, mtbf_s) == pytest.approx(exact_s, rel=1e-2)
    assert daly_interval_s(save_s, mtbf_s) == pytest.approx(exact_s, rel=1e-6)


def test_textbook_numbers():
    """5 minutes a dump, a day between failures: Young 2 h, Daly's estimate within a second."""
    assert young_interval_s(300, 86400) == pytest.approx(7200)
    assert daly_interval_s(300, 86400) == pytest.approx(exact_interval_s(300, 86400), abs=1)
    assert exact_interval_s(300, 86400) < 7200
    assert daly_interval_s(5000, 2000) == 2000


def test_daly_is_close_even_when_a_save_is_dear():
    for ratio in (0.1, 0.5, 1.0, 1.9):
        daly = efficiency(daly_interval_s(ratio, 1), ratio, 0, 1)
        assert daly == pytest.approx(efficiency(exact_interval_s(ratio, 1), ratio, 0, 1), rel=0.01)


def test_hopeless_cases_are_zero_not_an_overflow():
    assert efficiency(1e6, 1, 1, 1) == 0
    assert efficiency(1, 1, 1e6, 1) == 0


@pytest.mark.parametrize("mtbf_s", [0, -1, inf, nan])
@pytest.mark.parametrize("of", [young_interval_s, exact_interval_s])
def test_an_impossible_failure_time_is_named(of, mtbf_s):
    with pytest.raises(ValueError, match="time between failures of"):
        of(1, mtbf_s)


@pytest.mark.parametrize("save_s", [-1, inf, nan])
@pytest.mark.parametrize("of", [young_interval_s, exact_interval_s])
def test_an_impossible_cost_is_named(of, save_s):
    with pytest.raises(ValueError, match="a save of"):
        of(save_s, 1)


def test_other_impossible_values_are_named():
    with pytest.raises(ValueError, match="an interval of 0 s"):
        efficiency(0, 1, 1, 1)
    with pytest.raises(ValueError, match="a restart of -1 s"):
        efficiency(1, 1, -1, 1)
    with pytest.raises(ValueError, match="epsilon is nan"):
        one_plus_lambert_w(nan)
