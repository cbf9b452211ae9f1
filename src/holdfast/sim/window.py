"""What a run keeps of a window of time: machines that are there from its begin to its end.

It begins with a restart and ends with a planned save, so that nothing is lost with it. In between
failures come at a constant rate Λ, and each begins an attempt anew: R until it trains, then τ of
training and δ of saving in turn; a save is durable w after it. At time t an attempt is older than
a < t with the probability e^(−Λa). An attempt that a failure ends has kept τ for each save that was
durable, at the ages a_i = R + w + i(τ + δ); the one that the planned save ends keeps all of its
training. So a window that is over for training at T keeps, on average and exactly,

    Λτ·Σ e^(−Λ·a_i)·(T − a_i)  +  ∫ e^(−Λa) da,

the sum over a_i < T, the integral over those ages up to T at which an attempt trains. For long
windows it is T times Daly's efficiency, and a constant.
"""

from __future__ import annotations

from math import exp, expm1

NEGLIGIBLE = 1e-12


def kept_s(
    window_s: float,
    *,
    interval_s: float,
    save_s: float,
    restart_s: float,
    write_s: float,
    failures_per_s: float,
) -> float:
    """Training that is kept of it, in seconds; 0 where it is too short to save anything."""
    until_s = window_s - save_s - write_s  # then the planned save
    rate, period_s = failures_per_s, interval_s + save_s
    kept, begin_s = 0.0, restart_s
    while begin_s < until_s:
        end_s = min(begin_s + interval_s, until_s)
        kept += _lived(rate, begin_s, end_s)
        begin_s += period_s
        durable_s = begin_s + write_s
        if durable_s < until_s:
            kept += rate * interval_s * exp(-rate * durable_s) * (until_s - durable_s)
        if rate * begin_s > 40 and exp(-rate * begin_s) < NEGLIGIBLE:
            break
    return kept


def _lived(rate: float, begin_s: float, end_s: float) -> float:
    """∫ e^(−Λa) da between two ages."""
    if rate * (end_s - begin_s) == 0:
        return end_s - begin_s
    return exp(-rate * begin_s) * -expm1(-rate * (end_s - begin_s)) / rate
