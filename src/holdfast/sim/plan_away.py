"""How many hosts are away, where racks and slices are lost whole, and what spares are then worth.

Losses come at constant rates, each of so many hosts at once. The number that is away is compound
Poisson; its distribution comes from its generating function on the unit circle, by one Fourier
transform:

- with repairs, in the steady state: exp ∫ Σ λ·[(1 − S(t) + S(t)·z)^s − 1] dt, S the survival of
  the law of repairs, each host repaired by itself (D. N. Shanbhag, "On infinite server queues with
  batch arrivals", Journal of Applied Probability 3, 1966);
- without, spares are a stock: of the number lost by a time that is uniform on [0, T],
  (e^(Tψ) − 1) / (Tψ) with ψ = Σ λ·(z^s − 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.sim.laws import Fixed, Law

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Waves = NDArray[np.complex128]

MOST_HOSTS = 1 << 20  # away at once
LEVELS = 24  # of survival, between which a law of repairs is integrated
TAIL = 1e-12  # what of it is left out


@dataclass(frozen=True, slots=True)
class HostLoss:
    """Of `hosts` at once, at that rate; without spares, the last of others comes `wait_s` later."""

    per_s: float
    hosts: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fleetwide:
    """By the number of spares, from none up to more than can be of use.

    `there`: scheduling goodput, `chance`: that a loss finds too few spares, `enough`: the
    probability that no more hosts are away than there are spares.
    """

    there: Array
    chance: Array
    enough: Array


@lru_cache(maxsize=256)
def fleetwide(losses: tuple[HostLoss, ...], repair: Law | None, duration_s: float) -> Fleetwide:
    """What spares are worth where others come a while after a loss that finds too few.

    While so many are away that losses would find too few spares, at a rate λ each, and be waited
    for w, the run has its hosts for e^(−Σλw) of the time, as with losses of single hosts
    (`plan_model.waiting`).
    """
    import numpy as np

    enough = np.minimum(1.0, np.cumsum(distribution(losses, repair, duration_s)))
    every = sum(loss.per_s for loss in losses)
    there, waits, load = np.zeros(len(enough)), np.zeros(len(enough)), 0.0
    before = np.zeros(len(enough))  # the probability that fewer are away than what follows is of
    for loss in sorted(losses, key=lambda loss: -loss.hosts):
        # P(N ≤ n − s): a loss of s finds spares.
        finds = np.concatenate([np.zeros(loss.hosts), enough])[: len(enough)]
        there += np.exp(-load) * (finds - before)
        waits += loss.per_s * (1 - finds)
        before, load = finds, load + loss.per_s * loss.wait_s
    there += np.exp(-load) * (1 - before)
    return Fleetwide(there, waits / every, enough)


@lru_cache(maxsize=32)
def distribution(losses: tuple[HostLoss, ...], repair: Law | None, duration_s: float) -> Array:
    """P(N = n) for n = 0, 1, … up to beyond what counts."""
    import numpy as np

    over_s = duration_s if repair is None else repair.mean_s
    mean = sum(loss.per_s * loss.hosts for loss in losses) * over_s
    variance = sum(loss.per_s * loss.hosts**2 for loss in losses) * over_s
    most = mean + 12 * variance**0.5 + 30 * max(loss.hosts for loss in losses)
    length = 64
    while length < min(most, MOST_HOSTS):
        length *= 2
    # Real probabilities: half of the circle is enough.
    z = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
    if repair is None:
        exponent = duration_s * sum(loss.per_s * (z**loss.hosts - 1) for loss in losses)
        small = np.abs(exponent) < 1e-9
        safe = np.where(small, 1.0, exponent)
        transformed = np.where(small, 1.0, np.expm1(safe) / safe)
    else:
        transformed = np.exp(_steady(losses, repair, z))
    found: Array = np.clip(np.fft.irfft(transformed, length), 0.0, None)
    found.flags.writeable = False
    return found


def _steady(losses: tuple[HostLoss, ...], repair: Law, z: Waves) -> Waves:
    """∫ Σ λ·[(1 − S + S·z)^s − 1] dt over the time since a loss."""
    import numpy as np

    total: Waves = np.zeros(len(z), np.complex128)
    for loss in losses:
        if isinstance(repair, Fixed) or loss.hosts == 1:  # all are there again at once; linear
            total += loss.per_s * repair.mean_s * (z**loss.hosts - 1)
            continue
        for weight_s, survival in _nodes(repair):
            total += loss.per_s * weight_s * ((1 + survival * (z - 1)) ** loss.hosts - 1)
    return total


def _nodes(law: Law) -> list[tuple[float, float]]:
    """Weights and survivals: Gauss and Legendre between levels of survival, tenfold apart at last.

    The weights are scaled to the law's mean, which is the integral of survival.
    """
    import numpy as np

    points, weights = np.polynomial.legendre.leggauss(6)
    levels = [1 - n / LEVELS for n in range(LEVELS)]
    while levels[-1] > TAIL:
        levels.append(levels[-1] / 4)
    ages = [law.age_at_s(level) for level in levels]
    found = [
        (weight * (end - begin) / 2, law.survival((begin + end) / 2 + point * (end - begin) / 2))
        for begin, end in pairwise(ages)
        for point, weight in zip(points.tolist(), weights.tolist(), strict=True)
        if end > begin
    ]
    scale = law.mean_s / sum(weight * survival for weight, survival in found)
    return [(weight * scale, survival) for weight, survival in found]
