"""How many slices train: against sums over every number and every place of hosts that are away."""

from __future__ import annotations

from itertools import product
from math import comb, exp, factorial

import pytest

from holdfast.core.plan.slices_away import at_least, share_training, share_training_beyond


@pytest.mark.parametrize("least", [1, 3, 8])
@pytest.mark.parametrize("whole", [0.0, 0.3, 0.97, 1.0])
def test_a_binomial_number_is_whole(least: int, whole: float) -> None:
    by_hand = sum(k / 8 * comb(8, k) * whole**k * (1 - whole) ** (8 - k) for k in range(least, 9))
    assert share_training(8, least, whole) == pytest.approx(by_hand)


def test_of_many_slices_the_tail_is_all_or_nothing() -> None:
    assert share_training(10_000, 8_000, 0.9) == pytest.approx(0.9)
    assert share_training(10_000, 9_500, 0.9) == 0.0
    assert at_least(0, 0, 0.5) == 1.0


@pytest.mark.parametrize(("spares", "least"), [(0, 1), (2, 1), (1, 2)])
def test_hosts_that_are_away_lie_in_slices_at_random(spares: int, least: int) -> None:
    """Exact where any slice will do; else slices are taken to be independent of one another."""
    slices, load = 3, 1.2
    by_hand = 0.0
    for away in range(12):
        beyond = max(0, away - spares)
        places = list(product(range(slices), repeat=min(beyond, 8)))
        counts = [slices - len(set(place)) for place in places]
        share = sum(count for count in counts if count >= least) / slices / len(places)
        by_hand += exp(-load) * load**away / factorial(away) * share
    found = share_training_beyond(slices, least, spares, load)
    assert found == pytest.approx(by_hand, abs=1e-4 if least == 1 else 0.05)


def test_a_large_load_is_as_good_as_a_small_one() -> None:
    """Around 600 the sum begins elsewhere; without spares the mean is e^(−a/n)."""
    for load in (0.0, 599.0, 601.0, 5000.0):
        assert share_training_beyond(500, 1, 0, load) == pytest.approx(exp(-load / 500))
    assert share_training_beyond(1, 1, 0, 0.5) == pytest.approx(exp(-0.5))
    assert share_training_beyond(500, 1, 6000, 5000.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [((3, 4, 0.5), "at least 4 of 3"), ((3, 0, 0.5), "at least 0"), ((3, 1, 1.5), "probability")],
)
def test_what_cannot_be(wrong, why) -> None:
    with pytest.raises(ValueError, match=why):
        share_training(*wrong)
    with pytest.raises(ValueError, match="no load"):
        share_training_beyond(3, 1, 0, -1.0)
