"""The renewal formula: against Daly for an exponential law, and drawn Weibull failures."""

from __future__ import annotations

from math import exp, floor, gamma, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from holdfast.core.plan.optimum import efficiency, exact_interval_s
from holdfast.core.plan.renewal import (
    maximum_at,
    mean_until_s,
    renewal_efficiency,
    renewal_interval_s,
    sum_of_survivals,
)

M = 11_124.0


def weibull(shape: float, mean_s: float = M):
    scale_s = mean_s / gamma(1 + 1 / shape)
    return lambda age_s: exp(-((age_s / scale_s) ** shape))


@given(st.floats(10, 1e5), st.floats(0, 600), st.floats(0, 5000), st.floats(300, 1e6))
def test_without_memory_it_is_dalys_exact_form(tau_s, save_s, restart_s, mtbf_s):
    found = renewal_efficiency(tau_s, save_s, restart_s, weibull(1, mtbf_s), mtbf_s)
    assert found == pytest.approx(efficiency(tau_s, save_s, restart_s, mtbf_s), abs=1e-6)


@pytest.mark.parametrize(
    ("mtbf_s", "save_s", "restart_s", "best_s", "kept"),
    [
        (11_124, 60, 600, 1115.7, 0.85246),
        (11_124, 300, 600, 2387.5, 0.74414),
        (1080, 1, 600, 45.8, 0.5494),
    ],
)
def test_its_best_interval_is_the_exact_one(mtbf_s, save_s, restart_s, best_s, kept):
    found_s = renewal_interval_s(save_s, restart_s, weibull(1, mtbf_s), mtbf_s)
    assert found_s == pytest.approx(best_s, rel=1e-3)
    assert found_s == pytest.approx(exact_interval_s(save_s, mtbf_s), rel=1e-4)
    found = renewal_efficiency(found_s, save_s, restart_s, weibull(1, mtbf_s), mtbf_s)
    assert found == pytest.approx(kept, abs=1e-4)


@pytest.mark.parametrize("shape", [0.5, 0.7, 1.0, 1.5])
def test_drawn_weibull_failures_come_to_the_same(shape):
    """50,000 attempts that begin with age 0 at a failure."""
    tau_s, save_s, restart_s, durable_s = 1200.0, 60.0, 600.0, 100.0
    rng, scale_s = Random(5), M / gamma(1 + 1 / shape)
    kept_s = time_s = 0.0
    for _ in range(50_000):
        lives_s = rng.weibullvariate(scale_s, shape)
        time_s += lives_s
        trained_s = lives_s - durable_s - restart_s
        kept_s += tau_s * max(0, floor(trained_s / (tau_s + save_s)))
    found = renewal_efficiency(tau_s, save_s, restart_s, weibull(shape), M, durable_s=durable_s)
    assert found == pytest.approx(kept_s / time_s, abs=0.003)


@pytest.mark.parametrize("shape", [0.5, 0.8, 1.5])
@pytest.mark.parametrize("period_s", [5, 30, 3000])
def test_the_sum_is_that_of_its_terms(shape, period_s):
    survival = weibull(shape)
    terms = (survival(600 + i * period_s) for i in range(1, 3_000_000))
    total = 0.0
    for term in terms:
        total += term
        if term < 1e-14:
            break
    assert sum_of_survivals(survival, 600, period_s) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5])
def test_of_an_attempt_the_time_before_an_age(shape):
    survival = weibull(shape)
    assert mean_until_s(survival, 600) == pytest.approx(quad(survival, 0, 600)[0], rel=1e-6)


def test_infant_mortality_pays_for_longer_intervals():
    """After it has lived for a while such a run is safe; one that wears out is not."""
    kept = {}
    for shape in (0.5, 1.0, 1.5):
        best_s = renewal_interval_s(60, 600, weibull(shape), M)
        kept[shape] = best_s, renewal_efficiency(best_s, 60, 600, weibull(shape), M)
        for factor in (0.5, 0.9, 1.1, 2):
            other = renewal_efficiency(best_s * factor, 60, 600, weibull(shape), M)
            assert other <= kept[shape][1] + 1e-9
    assert kept[0.5] > kept[1.0] > kept[1.5]


def test_a_least_interval_is_kept():
    assert renewal_interval_s(0, 600, weibull(0.7), M, least_s=30) == 30


def test_maximum_of_a_function_that_only_falls_is_its_begin():
    assert maximum_at(lambda x: 1 / x, 2, 100) == 2
    assert maximum_at(lambda x: -((x - 7) ** 2), 1, 100) == pytest.approx(7, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1, 1), "an interval of 0 s"),
        ((1, -1, 1), "a save of -1 s"),
        ((1, 1, inf), "a restart of inf s"),
    ],
)
def test_the_impossible_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        renewal_efficiency(*arguments, weibull(1), M)
    with pytest.raises(ValueError, match="a time between failures of 0"):
        renewal_efficiency(1, 1, 1, weibull(1), 0)
    with pytest.raises(ValueError, match="no maximum"):
        maximum_at(float, 0, 1)
