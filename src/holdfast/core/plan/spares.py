"""How many spare hosts are enough.

Hosts are lost at rate λ, whether the run trains or waits, and each is back after a repair of r on
average. The number that is away is that of the customers in a queue M/G/∞: Poisson, with mean
a = λr, the load; whatever the law of the repair, as long as losses are independent (L. Takács,
"Introduction to the Theory of Queues", 1962, chapter 3).
"""

from __future__ import annotations

from math import exp, isfinite, lgamma, log


def enough(spares: int, load: float) -> float:
    """P(N ≤ n), N Poisson with mean a: that no more hosts are away than there are spares.

    Where only repairs bring hosts back, this is scheduling goodput: the share of the time in which
    the run has all its hosts. Without spares e^(−a). The gain of one more is P(N = n + 1).
    """
    _check(spares, load)
    if spares < load:
        return _sum_from(spares, load, down=True)
    return 1.0 - _sum_from(spares + 1, load, down=False)


def beyond(spares: int, losses: float) -> float:
    """E[(N − n)⁺], N Poisson: how many of so many expected losses find a stock of n used up."""
    _check(spares, losses)
    # E[N; N > n] = a·P(N ≥ n), so that it is a·P(N ≥ n) − n·P(N > n).
    below = enough(spares - 1, losses) if spares else 0.0
    return max(0.0, losses * (1 - below) - spares * (1 - enough(spares, losses)))


def _sum_from(k: int, mean: float, *, down: bool) -> float:
    """P(N = k) and those beyond, away from the mean, as far as they count: √a terms or so."""
    total, term = 0.0, _poisson(k, mean)
    while k >= 0 and term > total * 1e-17:
        total += term
        if down:
            term *= k / mean
            k -= 1
        else:
            k += 1
            term *= mean / k
    return min(1.0, total)


def _poisson(k: int, mean: float) -> float:
    return exp(k * log(mean) - mean - lgamma(k + 1)) if mean else float(k == 0)


def _check(spares: int, load: float) -> None:
    if spares < 0:
        raise ValueError(f"{spares} spares: it must be zero or more")
    if not (load >= 0 and isfinite(load)):
        raise ValueError(f"{load} is no load: it must be finite, zero or more")
