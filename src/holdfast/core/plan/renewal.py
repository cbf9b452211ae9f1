"""How often to save when failures are not memoryless: the renewal formula, for any hazard law.

An attempt begins at a failure, with its age at 0, and ends at the next one; the law of the time
between failures is known by its survival function S(t) and its mean M. Within an attempt, the
i-th save counts if the attempt outlives it, so that an attempt keeps τ·Σ S(age of the i-th save)
of progress on average; attempts are alike, and by the renewal-reward theorem (S. M. Ross,
"Stochastic Processes", 2nd ed., 1996, theorem 3.6.1) the share of time that becomes kept progress
is that sum over the mean time from one failure to the next.

The assumptions: the law is that of the whole run; each failure makes the run as good as new, and
times between failures are independent; restarts, saves and intervals always last as long. With an
exponential law all of this is exact for any number of machines. With another, "as good as new" is
true of one machine, and a model of many: a fleet of machines that age each for themselves, in
their steady state, fails nearly like an exponential law (Palm and Khintchine).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, isfinite, log, sqrt

Survival = Callable[[float], float]

TERMS_ONE_BY_ONE = 512
NEGLIGIBLE = 1e-13  # of the sum: terms below it end it
WIDEST = 1.25  # a block of terms that is summed at once ends at so many times its beginning
TOLERANCE = 1e-6  # of the interval found; the optimum is flat
_GOLDEN = (sqrt(5) - 1) / 2
# Gauss and Legendre's rule with six points, on −1 … 1: half of its points, and their weights.
_NODES = (0.2386191860831969, 0.6612093864662645, 0.9324695142031521)
_WEIGHTS = (0.4679139345726910, 0.3607615730481386, 0.1713244923791704)


def renewal_efficiency(
    interval_s: float,
    save_s: float,
    restart_s: float,
    survival: Survival,
    mean_s: float,
    *,
    durable_s: float = 0.0,
) -> float:
    """The share of time that becomes kept progress, for a law with that survival and mean.

    `durable_s` after its save has blocked training, a set can be restored; what fails before falls
    back to the one before it. Failures strike restarts too, which are the first R seconds of an
    attempt: τ·Σ S(R + d + i(τ+δ)) / M, i = 1, 2, …; for an exponential law this is Daly's
    equation 20 (`optimum.efficiency`).
    """
    if not (interval_s > 0 and isfinite(interval_s)):
        raise ValueError(f"an interval of {interval_s} s is not a positive, finite time")
    for what, value in (("a save", save_s), ("a restart", restart_s), ("a write", durable_s)):
        if not (value >= 0 and isfinite(value)):
            raise ValueError(f"{what} of {value} s is not a finite time")
    if not (mean_s > 0 and isfinite(mean_s)):
        raise ValueError(f"a time between failures of {mean_s} s is not positive and finite")
    saves = sum_of_survivals(survival, durable_s + restart_s, interval_s + save_s)
    return interval_s * saves / mean_s


def sum_of_survivals(survival: Survival, before_s: float, period_s: float) -> float:
    """Σ S(before + i·period) for i = 1, 2, …: how many saves an attempt lives to see.

    A law with a long tail has millions of terms. After the first ones, blocks of neighbours are
    summed as integrals (the midpoint rule, read backwards): Σ f(i) for a ≤ i < b is nearly
    ∫ f(x) dx from a − ½ to b − ½, by Gauss and Legendre.
    """
    total = 0.0
    for i in range(1, TERMS_ONE_BY_ONE):
        term = survival(before_s + i * period_s)
        total += term
        if term <= total * NEGLIGIBLE:
            return total
    begin = float(TERMS_ONE_BY_ONE)
    while True:
        end = float(int(begin * WIDEST))
        middle_s = before_s + (begin + end - 1) / 2 * period_s
        block = (end - begin) * _mean_of(survival, middle_s, (end - begin) / 2 * period_s)
        total += block
        if block <= total * NEGLIGIBLE:
            return total
        begin = end


def mean_until_s(survival: Survival, until_s: float) -> float:
    """E[min(X, t)] = ∫ S from 0 to t: of an attempt, the time before that age.

    By panels that halve towards 0, where laws with infant mortality are steep.
    """
    total, end = 0.0, until_s
    for _ in range(40):
        total += end / 2 * _mean_of(survival, end * 3 / 4, end / 4)
        end /= 2
    return total + end * survival(end)


def _mean_of(survival: Survival, middle: float, half: float) -> float:
    """The mean of a function around a point, by Gauss and Legendre."""
    return sum(
        weight * (survival(middle - half * node) + survival(middle + half * node)) / 2
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )


def renewal_interval_s(
    save_s: float,
    restart_s: float,
    survival: Survival,
    mean_s: float,
    *,
    durable_s: float = 0.0,
    least_s: float = 0.0,
) -> float:
    """The interval, `least_s` or more, that maximises `renewal_efficiency`."""
    low = max(least_s, min(save_s, mean_s) / 1e3, mean_s * 1e-6)
    return maximum_at(
        lambda interval_s: renewal_efficiency(
            interval_s, save_s, restart_s, survival, mean_s, durable_s=durable_s
        ),
        low,
        max(low * 10, mean_s * 10, save_s * 10),
    )


def maximum_at(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of positive numbers that rises and then falls is largest: golden section.

    On the logarithm, since intervals span magnitudes. Where it is level the search goes down:
    an efficiency beyond its maximum falls below the least float, and is 0 from there on.
    """
    if not 0 < low <= high:
        raise ValueError(f"no maximum is sought from {low} to {high}")
    a, b = log(low), log(high)
    left, right = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_left, at_right = value(exp(left)), value(exp(right))
    while b - a > TOLERANCE:
        if at_left >= at_right:
            b, right, at_right = right, left, at_left
            left = b - _GOLDEN * (b - a)
            at_left = value(exp(left))
        else:
            a, left, at_left = left, right, at_right
            right = a + _GOLDEN * (b - a)
            at_right = value(exp(right))
    # Where it only falls, the very least is meant, and not a little more.
    return low if value(low) >= value(exp((a + b) / 2)) else exp((a + b) / 2)
