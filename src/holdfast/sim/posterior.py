"""What few observations leave open: draws of a rate, a share, a mean, and the interval of a rate.

Each is a posterior with a prior that says little. `DRAWS` of each are drawn with a generator that
the caller gives, so that a seed decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import TYPE_CHECKING

from holdfast.core.plan.spares import enough

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Generator = np.random.Generator

DRAWS = 1000
SHARE = 0.9  # an interval holds the truth so often
SPREAD = 0.5  # of a duration's logarithm, before any was seen: a factor of 1.6 up or down
SPREAD_COUNTS = 2.0  # and that counts as so many observations
WIDEST = 1.5
MANY = 20  # of so many the mean is normal, whatever the law


def rate_interval(count: int, time_s: float) -> tuple[float, float]:
    """Between which rates a Poisson process most likely is, of which `count` were seen: exact.

    The interval of F. Garwood, Fiducial limits for the Poisson distribution, Biometrika 28, 1936:
    with the lower rate as many or more are seen once in twenty times, with the upper one as many
    or fewer. Of none seen there is an upper bound alone, ln 20 / time: the lower one is 0.
    """
    tail = (1 - SHARE) / 2
    low = _mean_where(lambda mean: 1 - enough(count - 1, mean) < tail, count) if count else 0.0
    high = _mean_where(lambda mean: enough(count, mean) > tail, count)
    return low / time_s, high / time_s


def rate_draws(rng: Generator, count: int, time_s: float) -> Array:
    """Of a Poisson process's rate: Gamma(count + ½, time), from Jeffreys' prior."""
    drawn: Array = rng.gamma(count + 0.5, 1 / time_s, DRAWS)
    return drawn.clip(1e-4 / time_s)  # what would be rarer, nobody lives to see


def share_draws(rng: Generator, count: int, of: int) -> Array:
    """Of a probability: Beta(count + ½, of − count + ½), from Jeffreys' prior."""
    drawn: Array = rng.beta(count + 0.5, of - count + 0.5, DRAWS)
    return drawn


def spread_of(durations_s: Sequence[float]) -> float:
    """The standard deviation of their logarithms, with the prior's."""
    squares, count = _squares([log(max(one, 1e-9)) for one in durations_s])
    return min(WIDEST, sqrt((squares + SPREAD_COUNTS * SPREAD**2) / (SPREAD_COUNTS + count - 1)))


def mean_draws(rng: Generator, durations_s: Sequence[float]) -> Array:
    """Of the mean of a duration of which some were seen.

    Of few: log-normal, the spread scaled inverse chi-squared with a prior (a single one seen says
    nothing of it), the location normal. Of many: normal around their mean.
    """
    import numpy as np

    seen = np.asarray(durations_s, float)
    count = len(seen)
    if count >= MANY:
        drawn: Array = seen.mean() + seen.std(ddof=1) / sqrt(count) * rng.standard_normal(DRAWS)
        return drawn.clip(0.0)
    logs = np.log(seen.clip(1e-9))
    squares, _ = _squares(logs.tolist())
    freedom = SPREAD_COUNTS + count - 1
    variance = (squares + SPREAD_COUNTS * SPREAD**2) / rng.chisquare(freedom, DRAWS)
    variance = variance.clip(None, WIDEST**2)
    middle = logs.mean() + np.sqrt(variance / count) * rng.standard_normal(DRAWS)
    few: Array = np.exp(middle + variance / 2)
    return few


def interval_of(drawn: Array) -> tuple[float, float]:
    """The quantiles between which nine of ten draws lie."""
    import numpy as np

    low, high = np.quantile(drawn, ((1 - SHARE) / 2, (1 + SHARE) / 2))
    return float(low), float(high)


def _squares(logs: Sequence[float]) -> tuple[float, int]:
    """The sum of the squared distances from their mean, and how many there are."""
    mean = sum(logs) / len(logs)
    return sum((one - mean) ** 2 for one in logs), len(logs)


def _mean_where(is_below: Callable[[float], bool], count: int) -> float:
    """Where a question about a Poisson mean turns from yes to no, by halving."""
    low, high = 0.0, 10.0 + 4.0 * count
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
