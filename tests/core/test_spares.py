"""Spares and replica groups: against scipy's Poisson law, drawn losses, and a public run."""

from __future__ import annotations

from random import Random

import pytest
from scipy.stats import poisson

from holdfast.core.plan import spares
from holdfast.core.plan.groups import groups_present, step_efficiency


@pytest.mark.parametrize("load", [0.0, 0.1, 3.0, 40.0, 5e5])
@pytest.mark.parametrize("count", [0, 1, 5, 50, 499_000, 501_000])
def test_enough_is_poissons(count, load):
    """Takács 1962: the number away in M/G/∞ is Poisson with mean λρ."""
    assert spares.enough(count, load) == pytest.approx(poisson.cdf(count, load))


@pytest.mark.parametrize("count", [0, 2, 7])
@pytest.mark.parametrize("losses", [0.5, 4.0, 20.0])
def test_losses_beyond_a_stock(count, losses):
    wanted = sum((n - count) * poisson.pmf(n, losses) for n in range(count + 1, 200))
    assert spares.beyond(count, losses) == pytest.approx(wanted)


@pytest.mark.parametrize("repair", ["fixed", "exponential", "lognormal"])
@pytest.mark.parametrize(("count", "load"), [(0, 0.5), (2, 1.5), (5, 4.0)])
def test_waiting_for_repairs(count, load, repair):
    """Whatever the law of the repair, as Takács has it. 60,000 losses, ± 1.5 points."""
    rng, repair_s = Random(3), 1000.0
    rate = load / repair_s
    draw = {
        "fixed": lambda: repair_s,
        "exponential": lambda: rng.expovariate(1 / repair_s),
        "lognormal": lambda: rng.lognormvariate(-0.5, 1.0) * repair_s,
    }[repair]
    events: list[tuple[float, int]] = []
    now_s = 0.0
    for _ in range(60_000):
        now_s += rng.expovariate(rate)
        events += [(now_s, 1), (now_s + draw(), -1)]
    away = 0
    waited_s = last_s = 0.0
    for at_s, change in sorted(events):
        if away > count:
            waited_s += at_s - last_s
        away, last_s = away + change, at_s
    assert 1 - spares.enough(count, load) == pytest.approx(waited_s / now_s, abs=0.015)


@pytest.mark.parametrize("groups", [1, 4, 30])
def test_the_published_run_of_replica_groups(groups):
    """torchft's public run: 30 replica groups, a failure each 60 s, 11 s steps, 82.3 % ± 2 points.

    "Fault Tolerant Llama: training with 2000 synthetic failures every ~15 seconds and no
    checkpoints on Crusoe L40S", PyTorch blog, June 2025.
    """
    assert step_efficiency(11, 60) == pytest.approx(0.823, abs=0.02)
    assert groups_present(groups, 60, 0) == 1


def test_groups_that_are_away():
    assert groups_present(30, 60, 90) == pytest.approx(30 * 60 / (30 * 60 + 90))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: spares.enough(-1, 1), "-1 spares"),
        (lambda: spares.enough(1, float("nan")), "nan is no load"),
        (lambda: step_efficiency(-1, 1), "a step of -1 s"),
        (lambda: groups_present(0, 1, 1), "0 groups"),
        (lambda: groups_present(1, 0, 1), "a time between failures of 0"),
    ],
)
def test_the_impossible_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
