"""Waits for other hosts that end early, because lost ones are repaired meanwhile.

Hosts are lost at rate λ and repaired in r on average, N of them at a time: a Poisson number
(`core.plan.spares`). A loss that finds n spares away orders another host, which comes w later; a
repair that ends first takes its place, and the order that would have been the last to come is not
needed. So each order stands until N is back where it was before that loss, or until it is filled.
What is waited for at some moment t are the rises of N within the last w that have not been undone:
the run has all its hosts if N(t) ≤ n, or if N was nowhere lower in the last w than it is now.

Backwards in time the queue M/M/∞ behaves as it does forwards (F. P. Kelly, "Reversibility and
Stochastic Networks", 1979, section 1.3), so that the latter is the probability that N, from k on,
takes longer than w to fall below k. With T that time and φ its transform,

    φ_k(s) = (k/r) / (s + λ + k/r − λ·φ_{k+1}(s)),

for the first thing that happens is a repair, or a loss, of which N must first come back. P(T > w)
is found from (1 − φ(s))/s by J. Abate's and W. Whitt's Euler method ("A Unified Framework for
Numerically Inverting Laplace Transforms", INFORMS Journal on Computing 18, 2006).

Exact where repairs are exponential and all orders take w; the number away is Poisson for any law.
Where orders take now longer, now shorter, the last one that was not undone is looked at alone:
those before it are older, and most likely filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, exp, isfinite, lgamma, log, pi, sqrt

TERMS = 8  # of Euler's sum, for five digits
WIDTH = 8  # standard deviations; beyond, and 30 more, the number away never is


def whole(spares: int, loss_per_s: float, repair_s: float, orders_s: Sequence[float]) -> float:
    """The share of the time in which the run has all its hosts.

    `orders_s`: how long another host takes that is ordered where a loss finds no spare, as times
    that are equally likely. Raises ValueError for what is negative or not finite.
    """
    for value in (spares, loss_per_s, repair_s, *orders_s):
        if not (value >= 0 and isfinite(value)):
            raise ValueError(f"{value} is no count, rate or time: it must be finite, zero or more")
    load = loss_per_s * repair_s
    if not load:
        return 1.0
    total = 0.0
    for order_s in orders_s:
        lowest, stays = _stays(load, order_s / repair_s)
        for k, is_whole in enumerate(stays, start=lowest):
            chance = exp(k * log(load) - load - lgamma(k + 1))
            total += chance * (is_whole if k > spares else 1.0)
    return min(1.0, total / len(orders_s))


@lru_cache(maxsize=512)
def _stays(load: float, wait: float) -> tuple[int, tuple[float, ...]]:
    """For each k that counts, the lowest first: P(from k on, N is not below k for so long).

    Times are in units of a repair.
    """
    lowest = max(0, int(load - WIDTH * sqrt(load) - 30))
    highest = int(load + WIDTH * sqrt(load) + 30)
    if not wait:
        return lowest, (1.0,) * (highest - lowest + 1)
    nodes = [complex(TERMS * log(10) / 3, pi * i) / wait for i in range(2 * TERMS + 1)]
    found = []
    falls = [highest / (s + highest) for s in nodes]  # of the level above
    for k in range(highest, lowest - 1, -1):
        falls = [k / (s + load + k - load * above) for s, above in zip(nodes, falls, strict=True)]
        survival = [((1 - fall) / s).real for s, fall in zip(nodes, falls, strict=True)]
        value = sum(weight * term for weight, term in zip(WEIGHTS, survival, strict=True)) / wait
        found.append(max(0.0, min(1.0, value)))
    return lowest, tuple(reversed(found))


def _weights() -> tuple[float, ...]:
    """The weights of Euler's sum: alternating, and fading out binomially."""
    tails = [sum(comb(TERMS, j) for j in range(TERMS - i + 1)) / 2**TERMS for i in range(TERMS + 1)]
    fading = [0.5, *[1.0] * (TERMS - 1), *tails]
    scale: float = 10 ** (TERMS / 3)
    return tuple(scale * (-1) ** i * weight for i, weight in enumerate(fading))


WEIGHTS = _weights()
