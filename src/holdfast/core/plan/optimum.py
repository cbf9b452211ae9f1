"""How often to save: closed forms for the checkpoint interval, and what they are worth.

A save costs δ seconds of training, a failure strikes on average every M seconds (exponentially
distributed), and coming back from it costs R. All functions take and return seconds; the interval
τ is the training between the end of one save and the start of the next, so a period is τ + δ.

- J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
- J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
  Future Generation Computer Systems 22(3), 2006: equation 20 (the exact model).
"""

from __future__ import annotations

from math import exp, expm1, inf, isfinite, log1p, sqrt


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Young's √(2δM): right when a save is short against the time between failures."""
    _check(save_s, mtbf_s)
    return sqrt(2 * save_s * mtbf_s)


def exact_interval_s(save_s: float, mtbf_s: float) -> float:
    """The τ that maximises `efficiency`: M·[1 + W₀(−e^(−δ/M−1))], W₀ Lambert's principal branch.

    It does not depend on R: a longer restart makes every failure dearer, however often one saves.
    """
    _check(save_s, mtbf_s)
    return mtbf_s * one_plus_lambert_w(save_s / mtbf_s)


def efficiency(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """The share of time that becomes kept training: τ / [M·e^(R/M)·(e^((τ+δ)/M) − 1)].

    Daly's equation 20: failures strike during saves and restarts too, each period is repeated
    until it passes. 0 where the denominator is beyond a float.
    """
    _check(save_s, mtbf_s)
    if not (interval_s > 0 and isfinite(interval_s)):
        raise ValueError(f"an interval of {interval_s} s is not a positive, finite time")
    if not (restart_s >= 0 and isfinite(restart_s)):
        raise ValueError(f"a restart of {restart_s} s is not a finite time")
    try:
        retries = exp(restart_s / mtbf_s) * expm1((interval_s + save_s) / mtbf_s)
    except OverflowError:
        return 0.0
    return interval_s / (mtbf_s * retries)


def one_plus_lambert_w(epsilon: float) -> float:
    """Lambert's 1 + W₀(−e^(−1−ε)) for ε ≥ 0: 0 at the branch point ε = 0, towards 1 for large ε.

    Asking for W₀ of a float would lose half of the digits here: near −1/e it behaves like a square
    root, and its argument is already rounded. So ε itself is the argument, and y the unknown:
    W·e^W = −e^(−1−ε) with W = y − 1 is y + ln(1−y) + ε = 0. The left side falls and is concave in
    y, so Newton's method from above the root comes down on it without overshooting.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is {epsilon}; it must be zero or more")
    if epsilon == 0:
        return 0.0
    if epsilon > 30:  # W₀(x) is x to 13 digits, and y would round to 1 and its rest to 0
        return -expm1(-1 - epsilon)
    # Both are above the root: y²/2 ≤ −y − ln(1−y), and 1 − y = e^(−ε−y) ≥ e^(−ε−1).
    y = min(sqrt(2 * epsilon), -expm1(-1 - epsilon))
    previous = inf
    while y < previous:
        previous = y
        y += (_y_plus_log_of_rest(y) + epsilon) * (1 - y) / y
    return previous


def _y_plus_log_of_rest(y: float) -> float:
    """The sum y + ln(1−y), by its series −(y²/2 + y³/3 + …) where it would cancel."""
    if y > 0.25:
        return y + log1p(-y)
    total, power, n = 0.0, y * y, 2
    while power / n > total * 1e-17:
        total += power / n
        power *= y
        n += 1
    return -total


def _check(save_s: float, mtbf_s: float) -> None:
    if not (save_s >= 0 and isfinite(save_s)):
        raise ValueError(f"a save of {save_s} s is not a finite time")
    if not (mtbf_s > 0 and isfinite(mtbf_s)):
        raise ValueError(f"a time between failures of {mtbf_s} s is not positive and finite")
