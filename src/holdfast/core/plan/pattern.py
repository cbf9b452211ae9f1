"""Exactly what a pattern of saves is worth: two tiers, notices, failures at any moment.

A pattern is K intervals of training τ. Each ends with a copy to memory that costs c, but the last:
it ends with a durable save that costs δ. Failures are exponential, of three kinds:

- of a process (rate p): the memory stays, and the run resumes from the last copy or save;
- the loss of a host (rate h): it resumes from the last durable save;
- the loss of a host that is announced in time (rate a): the run saves on demand, and loses only
  what it trains from then until the host goes.

An announcement that does not come true (rate f) costs a save, which is as good as a periodic one.
Failures strike saves and restarts like everything else; a restart that is struck begins anew, and
from the durable save if a host is lost. Between announcement and loss nothing else strikes, so that
a save on demand is never struck.

Let V_k be the mean time from the begin of interval k (0 … K−1) to the next moment at which all
progress is durable, and G_k the progress kept by then. Each obeys a linear equation in itself, the
next one, and V_0 or G_0 (after the loss of a host); the coefficients of V_0 in V_k are those of
G_0 in G_k, and cancel in the quotient G_0 / V_0, which is the efficiency, by the renewal-reward
theorem: at those moments the run begins anew. With K = 1 and a = f = 0 it is Daly's equation 20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import exp, expm1, isfinite

from holdfast.core.plan.optimum import young_interval_s
from holdfast.core.plan.renewal import maximum_at

MOST_COPIES = 1000  # for one durable save; more of them gain nothing that could be told


@dataclass(frozen=True, slots=True)
class Rates:
    """Failures per second of time in which the run has its hosts: by what they take along."""

    process: float = 0.0
    host: float = 0.0
    announced: float = 0.0
    false: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.process, self.host, self.announced, self.false):
            if not (value >= 0 and isfinite(value)):
                raise ValueError(f"a rate of {value} per second is impossible")

    @property
    def failures(self) -> float:
        """All that end an attempt."""
        return self.process + self.host + self.announced


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that saving and coming back take from the training.

    `copy_s`: to memory; None: there is no such tier. `write_s` after it a save is durable; a host
    lost before costs one interval more, which is the same as a restart that is longer by it.
    `notice_save_s`: a save on demand; `notice_lead_s`: from an announcement to the loss, in which
    that save becomes durable, and periodic ones go on after it.
    """

    save_s: float = 0.0
    restart_s: float = 0.0
    copy_s: float | None = None
    restart_from_memory_s: float = 0.0
    notice_save_s: float = 0.0
    notice_lead_s: float = 0.0
    write_s: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.save_s, self.restart_s, self.copy_s or 0.0, self.restart_from_memory_s,
                      self.notice_save_s, self.notice_lead_s, self.write_s):  # fmt: skip
            if not (value >= 0 and isfinite(value)):
                raise ValueError(f"a cost of {value} s is not a finite time")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The training between two saves of any kind, and how many make up one durable save."""

    interval_s: float
    copies: int = 1

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and isfinite(self.interval_s)):
            raise ValueError(f"an interval of {self.interval_s} s is not a positive, finite time")
        if self.copies < 1:
            raise ValueError(f"a pattern of {self.copies} intervals is none")

    @property
    def durable_interval_s(self) -> float:
        """The training between two durable saves."""
        return self.interval_s * self.copies


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the time goes, as shares of the time in which the run has its hosts; their sum is 1.

    `kept`: the efficiency. `saves`: blocked by those that kept progress rests on. `restarts`:
    coming back, also in vain. `lost`: training, and saves, that failures destroyed.
    """

    kept: float
    saves: float
    restarts: float
    lost: float


def shares(pattern: Pattern, costs: Costs, rates: Rates) -> Shares:
    """Where the time goes with that pattern; all of it in `lost` where nothing is ever kept.

    Raises ValueError for a pattern of several intervals where there is no memory tier.
    """
    if costs.copy_s is None:
        if pattern.copies != 1:
            raise ValueError(f"{pattern.copies} intervals for one save: there is no memory tier")
        rates = replace(rates, host=rates.host + rates.process, process=0.0)
    try:
        kept_s, time_s, restarts_s, saves_s = _walk(pattern, costs, rates)
        kept, saves = kept_s / time_s, saves_s / time_s
    except (OverflowError, ZeroDivisionError):
        return Shares(0.0, 0.0, 0.0, 1.0)
    restarts = min(restarts_s / time_s, 1 - kept - saves)
    return Shares(kept, saves, restarts, max(0.0, 1 - kept - saves - restarts))


def best_pattern(
    costs: Costs,
    rates: Rates,
    *,
    least_s: float,
    least_copy_s: float,
    durable_interval_s: float | None = None,
    memory_interval_s: float | None = None,
) -> Pattern:
    """The pattern that keeps most, where nothing is fixed, or one of the two intervals, or both.

    Intervals that are looked for are `least_s` and `least_copy_s` or longer. The optimum is flat,
    and the search takes turns: τ for some K, K for that τ, τ again.
    """
    if costs.copy_s is None:
        if durable_interval_s is None:
            durable_interval_s = _best_interval_s(1, costs, rates, least_s)
        return Pattern(durable_interval_s)
    if durable_interval_s is not None:
        whole_s = durable_interval_s
        if memory_interval_s is not None:
            copies = max(1, round(whole_s / memory_interval_s))
        else:
            most = max(1, int(whole_s / least_copy_s))
            copies = _best_copies(lambda k: Pattern(whole_s / k, k), costs, rates, 1, most)
        return Pattern(whole_s / copies, copies)
    if memory_interval_s is not None:
        copy_s = memory_interval_s
        least = max(1, round(least_s / copy_s))
        return Pattern(copy_s, _best_copies(lambda k: Pattern(copy_s, k), costs, rates, least))
    tau_s = max(least_copy_s, young_interval_s(costs.copy_s, 1 / (rates.process or rates.failures)))
    for _ in range(2):
        copies = _best_copies(partial(_at_least, tau_s, least_s), costs, rates, 1)
        tau_s = _best_interval_s(copies, costs, rates, max(least_copy_s, least_s / copies))
    return Pattern(tau_s, copies)


def _at_least(tau_s: float, least_s: float, copies: int) -> Pattern:
    """The pattern with that τ, or one as much longer as keeps durable saves apart."""
    return Pattern(max(tau_s, least_s / copies), copies)


def _walk(pattern: Pattern, costs: Costs, rates: Rates) -> tuple[float, float, float, float]:
    """Up to one common factor: progress kept, time, restarting and saving in a cycle, in seconds.

    Raises OverflowError where a restart is never got through.
    """
    tau_s, copies, copy_s = pattern.interval_s, pattern.copies, costs.copy_s or 0.0
    p, h, a, f = rates.process, rates.host, rates.announced, rates.false
    back = _Restarts(costs, rates)
    kept_s = copies * tau_s
    time_s = restarts_s = 0.0
    saves_s = (copies - 1) * copy_s + costs.save_s
    for k in reversed(range(copies)):
        period_s = tau_s + (costs.save_s if k == copies - 1 else copy_s)
        survive, spent_s = _until(rates.failures + f, period_s)
        alike = 1 - spent_s * p * back.resumes  # without the walks that come back to this interval
        whole_s = spent_s * (a + f)  # × what is kept of the intervals before this one
        kept_s = survive * kept_s + whole_s * k * tau_s + (a + f) * _kept_s(rates, tau_s, period_s)
        in_restarts_s = spent_s * (p * back.memory_s + h * back.durable_s + a * back.announced_s)
        on_demand_s = spent_s * (a * costs.notice_save_s + f * costs.save_s)
        in_vain_s = spent_s * a * in_vain(pattern, costs)
        time_s = survive * time_s + spent_s + in_restarts_s + on_demand_s + in_vain_s
        restarts_s = survive * restarts_s + in_restarts_s - spent_s * back.lost_s(rates)
        saves_s = survive * saves_s + on_demand_s + whole_s * k * copy_s
        kept_s, time_s = kept_s / alike, time_s / alike
        restarts_s, saves_s = restarts_s / alike, saves_s / alike
    return kept_s, time_s, restarts_s, saves_s


def in_vain(pattern: Pattern, costs: Costs) -> float:
    """How long is trained from the last save before an announced loss until it comes.

    Intervals that fit in between are done and saved, and count as others.
    """
    rest_s = max(0.0, costs.notice_lead_s - costs.notice_save_s)
    return rest_s % (pattern.interval_s + (costs.save_s if costs.copy_s is None else costs.copy_s))


class _Restarts:
    """Mean times from a failure to the first training, through all the failures that strike them.

    A restart from memory turns into one from the durable save when a host is lost meanwhile:
    `resumes` is the probability that it does not.
    """

    def __init__(self, costs: Costs, rates: Rates) -> None:
        every = rates.failures
        self.announced_s = _through(every, costs.restart_s)
        # The wait for durability that a set did not live through is training, lost; see `Costs`.
        self.durable_s = _through(every, costs.restart_s + costs.write_s)
        self.unwritten_s = self.durable_s - _restarting(every, costs)
        survive, spent_s = _until(every, costs.restart_from_memory_s)
        again = spent_s * rates.process
        self.resumes = survive / (1 - again)
        self.memory_s = spent_s / (1 - again) + (1 - self.resumes) * self.durable_s

    def lost_s(self, rates: Rates) -> float:
        """What of them is not a restart, per unit of time in which failures strike."""
        return (rates.host + rates.process * (1 - self.resumes)) * self.unwritten_s


def _until(rate: float, period_s: float) -> tuple[float, float]:
    """The probability that nothing strikes a period, and its mean length until something does."""
    if rate * period_s == 0:
        return 1.0, period_s
    return exp(-rate * period_s), -expm1(-rate * period_s) / rate


def _through(rate: float, period_s: float) -> float:
    """The mean time until a whole period has passed without a strike: (e^(λR) − 1) / λ."""
    return expm1(rate * period_s) / rate if rate * period_s else period_s


def _restarting(rate: float, costs: Costs) -> float:
    """The part of `_through` that is spent in the restart: those ages come first."""
    _, spent_s = _until(rate, costs.restart_s)
    return spent_s * exp(rate * (costs.restart_s + costs.write_s))


def _kept_s(rates: Rates, tau_s: float, period_s: float) -> float:
    """∫ e^(−Λx)·min(x, τ) dx over a period: what a save on demand finds of its interval.

    It is ∫ e^(−Λx) dx over every rest of the interval: ((1−e^(−Λτ))/Λ − τ·e^(−ΛP)) / Λ.
    """
    every = rates.failures + rates.false
    if every * period_s < 1e-6:  # where the difference would cancel
        return tau_s * tau_s / 2 + tau_s * (period_s - tau_s)
    survive, _ = _until(every, period_s)
    _, spent_s = _until(every, tau_s)
    return (spent_s - tau_s * survive) / every


def _best_interval_s(copies: int, costs: Costs, rates: Rates, least_s: float) -> float:
    """τ for a given K, by golden section."""
    most_s = max(10 * least_s, 10 / rates.failures, 10 * costs.save_s)
    return maximum_at(
        lambda tau_s: shares(Pattern(tau_s, copies), costs, rates).kept, least_s, most_s
    )


def _best_copies(
    pattern_of: Callable[[int], Pattern],
    costs: Costs,
    rates: Rates,
    least: int,
    most: int = MOST_COPIES,
) -> int:
    """K: in steps of a quarter as long as that helps, then between the best one's neighbours."""
    most = max(least, min(most, MOST_COPIES))

    def kept(copies: int) -> float:
        return shares(pattern_of(copies), costs, rates).kept

    tried, keeps = [least], [kept(least)]
    while tried[-1] < most and keeps[-1] >= max(keeps[-3:]):
        tried.append(min(most, tried[-1] + max(1, tried[-1] // 4)))
        keeps.append(kept(tried[-1]))
    best = keeps.index(max(keeps))
    low, high = tried[max(0, best - 1)], tried[min(len(tried) - 1, best + 1)]
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if kept(left) >= kept(right) else (left, high)
    return max(range(low, high + 1), key=kept)
