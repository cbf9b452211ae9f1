"""Hosts that are ordered, and those that are repaired meanwhile: the formula beside a walk."""

from __future__ import annotations

from math import exp
from random import Random

import pytest

from holdfast.core.plan.replaced import whole
from holdfast.core.plan.spares import enough


def walked(spares: int, rate: float, repair_s: float, order_s: float, until_s: float) -> float:
    """The same by playing it: an order stands from a loss on, until the loss is undone."""
    rng, at_s, whole_s = Random(7), 0.0, 0.0
    losses: list[float] = []  # of hosts that are away: when; a repair undoes the latest
    while at_s < until_s:
        next_s = at_s + rng.expovariate(rate + len(losses) / repair_s)
        if len(losses) <= spares:
            whole_s += next_s - at_s
        else:
            whole_s += max(0.0, next_s - max(at_s, losses[-1] + order_s))
        if rng.random() * (rate + len(losses) / repair_s) < rate:
            losses.append(next_s)
        else:
            losses.pop()
        at_s = next_s
    return whole_s / at_s


@pytest.mark.parametrize(
    ("spares", "rate", "repair_s", "order_s"),
    [(0, 1.0, 2.0, 1.0), (2, 1.0, 2.2, 1.1), (2, 1.0, 2.0, 0.1), (5, 1.0, 8.0, 4.0)],
)
def test_as_a_walk_has_it(spares: int, rate: float, repair_s: float, order_s: float) -> None:
    found = walked(spares, rate, repair_s, order_s, 20_000)
    assert whole(spares, rate, repair_s, (order_s,)) == pytest.approx(found, abs=0.012)


def test_at_the_ends() -> None:
    """Orders that never come leave the repairs alone; of those that come at once few are undone."""
    assert whole(3, 1.0, 4.0, (1e6,)) == pytest.approx(enough(3, 4.0), abs=1e-4)
    assert whole(0, 1.0, 500.0, (0.01,)) == pytest.approx(exp(-0.01), abs=2e-4)
    assert whole(0, 1.0, 4.0, (0.0,)) == pytest.approx(1.0)
    assert whole(0, 0.0, 4.0, (1.0,)) == 1.0


def test_orders_may_take_now_longer_now_shorter() -> None:
    both = whole(1, 1.0, 3.0, (0.5, 2.0))
    one, other = whole(1, 1.0, 3.0, (0.5,)), whole(1, 1.0, 3.0, (2.0,))
    assert both == pytest.approx((one + other) / 2)
    assert other < both < one


def test_more_spares_are_better() -> None:
    found = [whole(spares, 1.0, 6.0, (2.0,)) for spares in range(12)]
    assert found == sorted(found)


@pytest.mark.parametrize("given", [(-1, 1.0, 1.0, (1.0,)), (0, 1.0, float("inf"), (1.0,))])
def test_what_makes_no_sense(given: tuple[int, float, float, tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="is no count, rate or time"):
        whole(*given)
