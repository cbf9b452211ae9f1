"""How much of a run's slices train when it goes on without those that are not whole.

A slice is whole while none of its hosts is away. Losses come at random to slices at random, so that
of n slices a binomial number is whole where each loss takes a wait of its own (every slice is a
queue M/G/∞ that is empty with probability e^(−λw/n), whatever the law of the wait; L. Takács,
"Introduction to the Theory of Queues", 1962, chapter 3). Where m hosts are away of all, without
regard to whose they are, a slice has none of them with probability (1 − 1/n)^m.
"""

from __future__ import annotations

from math import exp, isfinite, lgamma, log, log1p

NEGLIGIBLE = 1e-12  # of a sum of probabilities


def share_training(slices: int, least: int, whole: float) -> float:
    """E[K; K ≥ least] / n, K binomial: chips that train, as a share of all the run's chip time.

    `whole`: the probability that a slice is whole. With fewer than `least` none trains.
    """
    if not 1 <= least <= slices:
        raise ValueError(f"at least {least} of {slices} slices: give 1 to {slices}")
    if not 0 <= whole <= 1:
        raise ValueError(f"{whole} is no probability")
    # K·P(K = k) / n is p times the binomial of n − 1 slices at k − 1: the others' number counts.
    return whole * at_least(slices - 1, least - 1, whole)


def share_training_beyond(slices: int, least: int, spares: int, load: float) -> float:
    """The same where hosts beyond the first `spares` that are away leave a place empty each.

    `load`: the mean number of hosts that are away, which is Poisson.
    """
    if not (load >= 0 and isfinite(load)):
        raise ValueError(f"{load} is no load: it must be finite, zero or more")
    total, most, away = 0.0, 1.0, 0
    term = exp(-load)
    if load > 600:  # where e^−load is no number: begin where the sum does
        away = int(load - 10 * load**0.5)
        term = exp(away * log(load) - load - lgamma(away + 1))
        most = 1.0
    while most > NEGLIGIBLE:
        beyond = max(0, away - spares)
        whole = exp(beyond * log1p(-1 / slices)) if slices > 1 else float(beyond == 0)
        total += term * (share_training(slices, least, whole) if beyond else 1.0)
        most = 1.0 if away < load else term * away
        away += 1
        term *= load / away
    return min(1.0, total)


def at_least(count: int, least: int, chance: float) -> float:
    """P(K ≥ least), K binomial of `count`; 1 or 0 far from the mean (Hoeffding's inequality)."""
    if least <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    apart = chance - least / count
    if 2 * count * apart * apart > 30:
        return 1.0 if apart > 0 else 0.0
    tail = 0.0
    for k in range(least, count + 1):
        ways = lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1)
        tail += exp(ways + k * log(chance) + (count - k) * log1p(-chance))
    return min(1.0, tail)
