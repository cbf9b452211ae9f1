"""Laws of chance: each face of a law says the same as the others."""

from __future__ import annotations

from itertools import pairwise
from math import exp, gamma, inf, isinf, log, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import expon, kstest, lognorm, weibull_min

from holdfast.sim.laws import NEVER_S, Early, Exponential, Fixed, Law, LogNormal, Weibull

SMOOTH = [
    Exponential(11_124.0),
    Weibull(1000.0, 0.5),
    Weibull(1000.0, 0.9),
    Weibull(1000.0, 1.0),
    Weibull(1000.0, 1.5),
    Weibull(1000.0, 10.0),
    LogNormal(600.0, 0.3),
    LogNormal(600.0, 1.2),
]
SCIPY = [
    (Exponential(50.0), expon(scale=50.0)),
    (Weibull(50.0, 0.7), weibull_min(0.7, scale=50.0 / gamma(1 + 1 / 0.7))),
    (Weibull(50.0, 2.0), weibull_min(2.0, scale=50.0 / gamma(1.5))),
    (LogNormal(50.0, 0.8), lognorm(0.8, scale=50.0)),
]


@pytest.mark.parametrize("law", SMOOTH, ids=repr)
def test_the_mean_is_the_area_under_survival(law: Law) -> None:
    ages = [0.0, *(law.age_at_s(10.0**-n) for n in range(1, 15))]
    area = sum(quad(law.survival, a, b, epsrel=1e-10)[0] for a, b in pairwise(ages))
    assert area == pytest.approx(law.mean_s, rel=1e-6)


@pytest.mark.parametrize("law", SMOOTH, ids=repr)
@given(survival=st.floats(1e-12, 1 - 1e-9))
def test_survival_and_age_are_inverse(law: Law, survival: float) -> None:
    assert law.survival(law.age_at_s(survival)) == pytest.approx(survival, rel=1e-6)


@pytest.mark.parametrize("law", SMOOTH, ids=repr)
@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_survival_falls_from_1(law: Law, a: float, b: float) -> None:
    younger, older = sorted([a, b])
    assert 1 >= law.survival(younger) >= law.survival(older) >= 0
    assert law.survival(0.0) == law.survival(-1.0) == 1.0
    assert law.age_at_s(1.0) == 0.0


@pytest.mark.parametrize("law", SMOOTH, ids=repr)
def test_what_is_drawn_survives_as_said(law: Law) -> None:
    rng = Random(42)
    drawn = [law.sample_s(rng) for _ in range(5000)]
    assert min(drawn) >= 0
    lasted = [1 - law.survival(age_s) for age_s in drawn]
    assert kstest(lasted, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("law", "same"), SCIPY, ids=lambda x: repr(x)[:20])
def test_survival_is_that_of_the_textbook(law: Law, same) -> None:
    assert law.mean_s == pytest.approx(same.mean())
    for age_s in (0.1, 1.0, 20.0, 50.0, 333.0):
        assert law.survival(age_s) == pytest.approx(same.sf(age_s), rel=1e-9)


@pytest.mark.parametrize("law", [*SMOOTH, Fixed(3.0)], ids=repr)
def test_the_callers_chance_decides(law: Law) -> None:
    assert [law.sample_s(Random(5)) for _ in range(3)] == [law.sample_s(Random(5))] * 3


def test_a_weibull_of_shape_1_is_exponential() -> None:
    for age_s in (0.0, 1.0, 700.0):
        assert Weibull(300.0, 1.0).survival(age_s) == pytest.approx(
            Exponential(300.0).survival(age_s)
        )


def test_a_shape_below_1_fails_early_and_above_1_late() -> None:
    """Of the same mean: the share that fails in the first hundredth of it."""
    early = [1 - Weibull(1.0, shape).survival(0.01) for shape in (0.5, 1.0, 1.5)]
    assert early == pytest.approx([1 - exp(-((0.02) ** 0.5)), 1 - exp(-0.01), 0.000857], rel=1e-2)


def test_half_outlive_the_median() -> None:
    assert LogNormal(600.0, 1.2).survival(600.0) == pytest.approx(0.5)
    assert Exponential(1.0).age_at_s(0.5) == pytest.approx(log(2))


@pytest.mark.parametrize("law", [Fixed(3.0), LogNormal(3.0, 0.0)], ids=repr)
def test_what_is_always_the_same(law: Law) -> None:
    assert law.mean_s == law.sample_s(Random(1)) == law.age_at_s(0.3) == 3.0
    assert (law.survival(0.0), law.survival(2.9), law.survival(3.0), law.survival(9.0)) == (
        1,
        1,
        0,
        0,
    )


@pytest.mark.parametrize("law", [Weibull(1.0, 300.0), Weibull(1.0, 0.05), LogNormal(1.0, 10.0)])
def test_the_far_ends_do_not_overflow(law: Law) -> None:
    for age_s in (5e-324, 1e-300, 1e300):
        assert 0 <= law.survival(age_s) <= 1
    for survival in (1e-300, 2.0**-53, 1 - 2.0**-53):
        assert 0 <= law.age_at_s(survival) < inf
    assert 0 < law.mean_s < inf


def test_never_is_no_time() -> None:
    assert isinf(NEVER_S)
    assert Fixed(0.0).mean_s == 0


@pytest.mark.parametrize("value", [-1.0, inf, nan, -inf])
def test_impossible_times_are_named(value: float) -> None:
    words = rf"of {value} is impossible: it must be finite and"
    with pytest.raises(ValueError, match=f"a time {words} zero or more"):
        Fixed(value)
    with pytest.raises(ValueError, match=f"a mean {words} more than zero"):
        Exponential(value)
    with pytest.raises(ValueError, match=f"a mean {words} more than zero"):
        Weibull(value, 1.0)
    with pytest.raises(ValueError, match=f"a Weibull's shape {words} more than zero"):
        Weibull(1.0, value)
    with pytest.raises(ValueError, match=f"a median {words} more than zero"):
        LogNormal(value, 1.0)
    with pytest.raises(ValueError, match=f"a sigma {words} zero or more"):
        LogNormal(1.0, value)


def test_other_impossible_values_are_named() -> None:
    for law in (Exponential, lambda mean_s: Weibull(mean_s, 1.0), lambda m: LogNormal(m, 1.0)):
        with pytest.raises(ValueError, match=r"of 0\.0 is impossible"):
            law(0.0)
    with pytest.raises(ValueError, match=r"a Weibull's shape of 0\.01 is too small"):
        Weibull(1.0, 0.01)
    with pytest.raises(ValueError, match=r"a sigma of 40\.0 is too large"):
        LogNormal(1.0, 40.0)


def test_an_early_end_and_what_lives_on() -> None:
    law, rng = Early(0.3, 50.0), Random(5)
    drawn = [law.sample_s(rng) for _ in range(4000)]
    ended = [age_s for age_s in drawn if age_s < NEVER_S]
    assert len(ended) / len(drawn) == pytest.approx(0.3, abs=0.03)
    assert kstest(ended, expon(scale=50.0).cdf).pvalue > 0.01
    assert (law.survival(0.0), law.survival(1e9), law.mean_s) == (1, pytest.approx(0.7), NEVER_S)
    for survival in (0.7000001, 0.8, 0.99, 1.0):
        assert law.survival(law.age_at_s(survival)) == pytest.approx(survival)
    assert law.age_at_s(0.7) == law.age_at_s(0.1) == NEVER_S
    everyone, same = Early(1.0, 50.0), Exponential(50.0)
    assert everyone.mean_s == same.mean_s
    for survival in (1e-300, 0.2, 1.0):
        assert everyone.age_at_s(survival) == pytest.approx(same.age_at_s(survival))
    for share in (0.0, 1.1, nan):
        with pytest.raises(ValueError, match="is not a share"):
            Early(share, 5.0)
    with pytest.raises(ValueError, match=r"an early life of -1\.0 is impossible"):
        Early(0.5, -1.0)
