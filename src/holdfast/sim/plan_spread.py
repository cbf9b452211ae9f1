"""What one run will see: its goodput's 5th and 95th percentiles, by drawing runs.

The closed forms give the mean of a run without end. A run of some weeks has a number of failures
of its own, at moments of their own. Two thousand runs are drawn, all at once and with a fixed
seed, from the very process that the closed forms describe. A run with more than a few hundred
failures is drawn shorter, and its spread around the mean taken to shrink with the square root of
its length (the central limit theorem of renewal-reward processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.core.plan.pattern import Costs, Pattern, Rates, in_vain
from holdfast.sim.laws import Exponential, Law, Weibull
from holdfast.sim.model import Recovery
from holdfast.sim.plan_changes import with_saves
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import (
    Outlook,
    costs_of,
    hang_s,
    losses_of,
    mean_hang_s,
    outlook,
    rates_of,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

RUNS = 2000
MOST_FAILURES = 400  # on average in a run that is drawn
MOST_FAILURES_OF_EACH = 50  # where parameters are drawn, too
WAITS = 2000
SEED = 1
LOW, HIGH = 0.05, 0.95


def goodput_interval(
    question: Question, view: Outlook, drawn: Sequence[Question] = ()
) -> tuple[float, float]:
    """The goodput between which nine of ten runs of that length end.

    `drawn`: the same question with parameters that may be the true ones, each as likely as any
    other. Of the runs each has as many; all save at the intervals of `view`.
    """
    import numpy as np

    if drawn:
        each, count = _with_intervals(drawn, view), max(1, RUNS // len(drawn))
        goodputs = np.concatenate(
            [
                _goodputs(one, outlook(one), count, MOST_FAILURES_OF_EACH, SEED + number)
                for number, one in enumerate(each)
            ]
        )
    else:
        goodputs = _goodputs(question, view, RUNS, MOST_FAILURES, SEED)
    low, high = (float(q) for q in np.quantile(goodputs, (LOW, HIGH)))
    return max(0.0, min(low, view.goodput)), min(1.0, max(high, view.goodput))


def _with_intervals(drawn: Sequence[Question], view: Outlook) -> Iterator[Question]:
    for one in drawn:
        copies_s = view.pattern.interval_s if one.scenario.saves.memory else None
        durable_s = view.pattern.durable_interval_s
        yield with_saves(one, interval_s=durable_s, memory_interval_s=copies_s)


def _goodputs(question: Question, view: Outlook, runs: int, most: int, seed: int) -> Array:
    """Of so many runs, each drawn with `most` failures at the most."""
    duration_s = question.scenario.duration_s
    drawn_s = min(duration_s, most * question.between.mean_s)
    fleet, recovery = question.scenario.fleet, question.scenario.recovery
    stock = None if recovery.repair else fleet.spares * drawn_s / duration_s
    goodputs = _Runs(question, view, stock, runs, seed).goodputs(drawn_s)
    if drawn_s < duration_s:
        closer = (drawn_s / duration_s) ** 0.5
        goodputs = view.goodput + (goodputs - goodputs.mean()) * closer
    return goodputs


class _Runs:
    """Many runs side by side, each at its own time: one round takes each to its next failure."""

    def __init__(
        self, question: Question, view: Outlook, stock: float | None, runs: int, seed: int
    ) -> None:
        """`stock`: so many spares are used up, one by one; None: some are there, or not."""
        import numpy as np

        self._np = np
        self._runs = runs
        self._rng = np.random.default_rng(seed)
        self._idle = view.idle
        self._costs: Costs = costs_of(question)
        self._rates: Rates = rates_of(question)
        self._law = question.between
        if question.scenario.fleet.elastic:  # fewer fail, and restarts for slices are among them
            self._law = Exponential(1 / self._rates.failures)
        self._pattern: Pattern = view.pattern
        self._waiting = view.waiting
        self._hang_s = hang_s(question)  # and how many of the failures are hangs
        self._hang = mean_hang_s(question) / self._hang_s if self._hang_s else 0.0
        self._losses = losses_of(question)
        self._wait_shares = self._shares_of_a_wait(question.scenario.recovery)
        self._left: Array | None = None if stock is None else np.full(runs, stock)
        self._notice_s = self._costs.notice_save_s + in_vain(view.pattern, self._costs)

    def goodputs(self, duration_s: float) -> Array:
        """The share of that time that each run keeps; it begins with a start, and ends saved."""
        np, costs = self._np, self._costs
        at_s, kept_s = np.zeros(self._runs), np.zeros(self._runs)
        back_s = np.full(self._runs, costs.restart_s)
        copies: Array = np.zeros(self._runs)
        while (left_s := duration_s - at_s).max() > 0:
            until_s = self._until_failure_s()
            over = until_s >= left_s
            run_s = np.maximum(0.0, np.minimum(until_s, left_s) - back_s)
            saved_s, copies, rest_s = self._trained(copies, run_s)
            resumes, announced = self._kinds()
            since_s = copies * self._pattern.interval_s + rest_s
            kept = saved_s + np.where(over | announced, since_s, 0.0)
            kept_s += np.where(left_s > 0, kept, 0.0)
            copies = np.where(resumes, copies, 0.0)
            struck = resumes & (run_s == 0)  # it comes back from where it was coming back
            unwritten_s = np.where(announced, 0.0, costs.write_s)
            back_s = np.where(struck, back_s, costs.restart_s + unwritten_s)
            back_s = np.where(resumes & ~struck, costs.restart_from_memory_s, back_s)
            on_demand_s = np.where(announced & (run_s > 0), self._notice_s, 0.0)
            at_s += until_s + on_demand_s + self._hangs_s() + self._waits_s()
        goodputs: Array = kept_s / duration_s * (1 - self._idle)
        return goodputs

    def _trained(self, copies: Array, run_s: Array) -> tuple[Array, Array, Array]:
        """Training in durable saves, the copies after the last of them, and training since.

        Announcements that do not come true slow it down by the saves that they cost.
        """
        np, tau_s, pattern = self._np, self._pattern.interval_s, self._pattern
        copy_s = self._costs.copy_s or 0.0
        whole_s = pattern.durable_interval_s + (pattern.copies - 1) * copy_s + self._costs.save_s
        slower = 1 + self._rates.false * self._costs.save_s
        into_s = copies * (tau_s + copy_s) + run_s / slower
        full = np.floor(into_s / whole_s)
        into_s = into_s - full * whole_s
        done = np.minimum(np.floor(into_s / (tau_s + copy_s)), pattern.copies - 1)
        rest_s = np.minimum(into_s - done * (tau_s + copy_s), tau_s)
        return full * pattern.durable_interval_s, done, rest_s

    def _kinds(self) -> tuple[Mask, Mask]:
        """Which of the next failures leave the memory alone, and which are announced."""
        rates, drawn = self._rates, self._rng.random(self._runs)
        in_memory = rates.process if self._costs.copy_s is not None else 0.0
        resumes = drawn < in_memory / rates.failures
        return resumes, drawn >= 1 - rates.announced / rates.failures

    def _until_failure_s(self) -> Array:
        """Draws of the time between failures."""
        return self._drawn(self._law, self._runs)

    def _drawn(self, law: Law, count: int) -> Array:
        if isinstance(law, Exponential):
            return self._rng.exponential(law.mean_s, count)
        drawn: Array
        if isinstance(law, Weibull):
            drawn = self._rng.weibull(law.shape, count) * law.scale_s
        else:
            drawn = self._np.array([law.age_at_s(1.0 - u) for u in self._rng.random(count)])
        return drawn

    def _shares_of_a_wait(self, recovery: Recovery) -> Array:
        """Waits that are equally likely, each as a share of their mean; the first host ends it."""
        waits_s = self._drawn(recovery.replace, WAITS)
        if recovery.repair not in (None, recovery.replace):
            waits_s = self._np.minimum(waits_s, self._drawn(recovery.repair, WAITS))
        mean_s = waits_s.mean()
        shares: Array = waits_s / mean_s if mean_s else self._np.ones(1)
        return shares

    def _hangs_s(self) -> Array:
        """Until hangs are noticed."""
        if not self._hang:
            return self._np.zeros(self._runs)
        hangs_s: Array = self._np.where(
            self._rng.random(self._runs) < self._hang, self._hang_s, 0.0
        )
        return hangs_s

    def _waits_s(self) -> Array:
        """For hosts: drawn apart from what is lost with them, which changes no mean."""
        np, waiting = self._np, self._waiting
        drawn = self._rng.random(self._runs)
        chance = waiting.chance or 1.0  # where spares are always there, each loss waits for one
        waits = drawn < waiting.lost * chance
        if self._left is not None:
            lost = drawn < waiting.lost
            self._left = self._left - np.where(lost, self._at_once(), 0)
            waits = lost & (self._left < 0)
        each_s = waiting.per_loss_s / chance * self._rng.choice(self._wait_shares, self._runs)
        waits_s: Array = np.where(waits, each_s, 0.0)
        return waits_s

    def _at_once(self) -> Array:
        """How many hosts each loss takes: racks and slices take theirs together."""
        np, losses = self._np, self._losses
        if not losses:
            alone: Array = np.ones(self._runs)
            return alone
        shares = np.array([loss.per_s for loss in losses])
        sizes = [float(loss.hosts) for loss in losses]
        drawn: Array = self._rng.choice(sizes, self._runs, p=shares / shares.sum())
        return drawn
