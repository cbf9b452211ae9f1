"""How many spare hosts are enough.

Hosts are lost at rate λ per second of time in which the run has all its hosts, and each is back
after a repair of r on average. The offered load a = λr is the mean number that is away. What
follows holds for any law of the repair, not only for an exponential one (Sevastyanov 1957:
insensitivity), as long as losses are independent.

- A. K. Erlang, "Solution of some problems in the theory of probabilities of significance in
  automatic telephone exchanges", 1917: the loss formula.
- L. Takács, "Introduction to the Theory of Queues", 1962, chapter 3: M/G/∞.
"""

from __future__ import annotations

from math import exp, isfinite, lgamma, log


def enough(spares: int, load: float) -> float:
    """P(N ≤ n), N Poisson with mean a (M/G/∞): that no more hosts are away than there are spares.

    Losses go on while the run waits; so it is right where another host always comes soon.
    """
    _check(spares, load)
    return min(1.0, sum(_poisson(k, load) for k in range(spares + 1)))


def waiting_share(spares: int, load: float) -> float:
    """Erlang's B(n+1, a): the share of time in which the run waits for the first repair.

    While one host is missing the others idle, and nothing is lost: n + 1 are away at the most. That
    is a telephone exchange with n + 1 lines and callers who do not wait. 1 − B is scheduling
    goodput; without spares 1/(1+a).
    """
    _check(spares, load)
    blocked = 1.0
    for lines in range(1, spares + 2):
        blocked = load * blocked / (lines + load * blocked)
    return blocked


def mean_wait_s(spares: int, repair_s: float) -> float:
    """r/(n+1): from the loss that finds no spare to the first of the n + 1 repairs to end.

    The share of time in B over how often it begins, λ·P(n away).
    """
    _check(spares, repair_s)
    return repair_s / (spares + 1)


def beyond(spares: int, losses: float) -> float:
    """E[(N − n)⁺], N Poisson: how many of so many expected losses find a stock of n used up."""
    _check(spares, losses)
    # E[N; N > n] = a·P(N ≥ n), so that it is a·P(N ≥ n) − n·P(N > n).
    below = enough(spares - 1, losses) if spares else 0.0
    return max(0.0, losses * (1 - below) - spares * (1 - enough(spares, losses)))


def _poisson(k: int, mean: float) -> float:
    return exp(k * log(mean) - mean - lgamma(k + 1)) if mean else float(k == 0)


def _check(spares: int, load: float) -> None:
    if spares < 0:
        raise ValueError(f"{spares} spares: it must be zero or more")
    if not (load >= 0 and isfinite(load)):
        raise ValueError(f"{load} is no load: it must be finite, zero or more")
