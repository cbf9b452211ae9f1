"""Infant mortality: the closed form of how many are young, against the equation step by step."""

from __future__ import annotations

import pytest

from holdfast.sim.infants import early_losses_per_s, young_share
from holdfast.sim.laws import Early


@pytest.mark.parametrize(
    ("early", "others_per_s", "duration_s"),
    [
        (Early(0.3, 50.0), 0.001, 400.0),
        (Early(0.3, 50.0), 0.0, 20.0),
        (Early(1.0, 50.0), 0.1, 30.0),
        (Early(0.05, 500.0), 0.01, 5000.0),
    ],
)
def test_the_share_of_young_hosts(early: Early, others_per_s: float, duration_s: float) -> None:
    young, area, dt = early.share, 0.0, duration_s / 20_000
    for _ in range(20_000):
        area += young * dt
        lost = others_per_s + young / early.life_s  # each of them comes back young, or not
        young += dt * (lost * early.share - young * (others_per_s + 1 / early.life_s))
    assert young_share(early, others_per_s, duration_s) == pytest.approx(
        area / duration_s, rel=2e-3
    )
    rate = early_losses_per_s(early, others_per_s, duration_s)
    assert rate == pytest.approx(area / duration_s / early.life_s, rel=2e-3)
