"""Hosts that are lost together: against drawn losses, and against single ones."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.plan import spares
from holdfast.sim.laws import Exponential, Fixed, Law, LogNormal
from holdfast.sim.plan_away import HostLoss, distribution, fleetwide

RACKS = (HostLoss(0.002, 4, 10.0), HostLoss(0.01, 1, 10.0))


def drawn_away(repair: Law, rng: Random) -> int:
    """How many are away long after the beginning: each loss by itself, each repair by itself."""
    away, now_s = 0, 4000.0
    for loss in RACKS:
        at_s = rng.expovariate(loss.per_s)
        while at_s < now_s:
            away += sum(at_s + repair.sample_s(rng) > now_s for _ in range(loss.hosts))
            at_s += rng.expovariate(loss.per_s)
    return away


@pytest.mark.parametrize("repair", [Fixed(100.0), LogNormal(60.0, 1.0), Exponential(100.0)])
def test_how_many_are_away(repair: Law) -> None:
    found, rng = distribution(RACKS, repair, 1e9), Random(1)
    drawn = [drawn_away(repair, rng) for _ in range(4000)]
    assert found.sum() == pytest.approx(1)
    mean = 0.018 * repair.mean_s
    assert sum(n * p for n, p in enumerate(found)) == pytest.approx(mean, rel=1e-6)
    for n in range(8):
        assert found[n] == pytest.approx(drawn.count(n) / 4000, abs=0.03)


def test_a_stock_is_used_up() -> None:
    """Of the hosts that were lost by some moment of the run."""
    found, rng = distribution(RACKS, None, 500.0), Random(2)
    lost = []
    for _ in range(6000):
        until_s, count = rng.random() * 500, 0
        for loss in RACKS:
            at_s = rng.expovariate(loss.per_s)
            while at_s < until_s:
                count += loss.hosts
                at_s += rng.expovariate(loss.per_s)
        lost.append(count)
    for n in range(8):
        assert found[n] == pytest.approx(lost.count(n) / 6000, abs=0.025)


def test_racks_of_one_host_are_hosts() -> None:
    one = (HostLoss(0.01, 1, 20.0), HostLoss(0.02, 1, 20.0))
    repaired, stock = fleetwide(one, Fixed(100.0), 1e9), fleetwide(one, None, 200.0)
    for n in range(9):
        assert repaired.enough[n] == pytest.approx(spares.enough(n, 3.0))
        assert stock.chance[n] == pytest.approx(spares.beyond(n, 6.0) / 6.0)
    chance = 1 - spares.enough(4, 3.0)
    assert repaired.there[5] == pytest.approx(1 - chance + chance * 2.718281828**-0.6)
