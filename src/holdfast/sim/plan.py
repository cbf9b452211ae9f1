"""A plan: what goodput to expect of a run, how often to save, and what would raise it most.

`plan` answers a `Question` from the closed forms. The result is plain data and knows nothing of
how it is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import expm1, gamma, sqrt
from typing import Any

from holdfast.sim.fitted import Fitted
from holdfast.sim.laws import Fixed, Law, LogNormal, Weibull
from holdfast.sim.plan_advice import WhatIf, can_progress, notes, what_ifs
from holdfast.sim.plan_buying import Buying, buying
from holdfast.sim.plan_changes import with_elastic
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import Outlook, as_run, costs_of, outlook
from holdfast.sim.plan_published import (
    first_order_intervals,
    linear_goodput,
    published_runtime_goodput,
)
from holdfast.sim.plan_spares import SparesAnswer, best_spares, spares_table
from holdfast.sim.plan_spread import goodput_interval

MORE_MFU = 0.1
NORMAL_95 = 1.6448536269514722  # the standard normal law's 95th percentile


@dataclass(frozen=True, slots=True)
class Disruptions:
    """How many failures the run will see: the mean, its standard deviation, nine runs in ten."""

    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Badput:
    """Where the rest of the time goes, as shares of all time; with goodput their sum is 1."""

    reschedule: float
    restart: float
    lost: float
    save: float
    other: float
    hang: float = 0.0


@dataclass(frozen=True, slots=True)
class Elastic:
    """Of a run that goes on without the slices that are not whole.

    `slices`, and the `least_slices` on which it trains; `slices_training`: on how many it does on
    average, none included. `restarts`: those that only take slices in again. `goodput_waiting`:
    goodput if it waited for all of them instead, and `gain` what is more.
    """

    slices: int
    least_slices: int
    slices_training: float
    restarts: float
    goodput_waiting: float
    gain: float


@dataclass(frozen=True, slots=True)
class Faster:
    """Steps that reach `gain` more of the chips' peak (MFU): the same work is done sooner.

    Goodput stays: failures, restarts and saves are of the time, and not of the steps. `saved_s` of
    the run's time and `saved_chip_hours` are not needed. `as_goodput`: what goodput would have to
    be for as much work with the steps as they are; above 1 no goodput does that.
    """

    gain: float
    saved_s: float
    saved_chip_hours: float
    as_goodput: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. Shares are of all wall time unless they say otherwise; times are in seconds.

    `interval_s` is the training between durable saves that is planned for, `best_interval_s` the
    best one, and `best_goodput` what it comes to; `run_…`: those that `holdfast run` chooses;
    `…memory_interval_s` the same of copies to memory, None where there is no such tier. `goodput`
    is the long run's, `goodput_low` and `goodput_high` are the 5th and 95th percentiles of what one
    run of `duration_s` sees, and of the parameters where those were `fitted`. `runtime_goodput` is
    a share of the time in which all hosts are there. `published_runtime_goodput`: the estimate from
    tch, trm and tre; `linear_goodput` and `first_order_…`: by the published first-order forms.
    `buying`: what each way to buy the machines comes to; None where none was given.
    `best_spares`: those with the most goodput per host paid for; None where spares change nothing.
    `elastic`: None where the run waits for all of its slices. `faster`: what a tenth more MFU buys;
    None where nothing is kept.
    """

    hosts: int
    chips: int
    duration_s: float
    mtbf_s: float
    save_s: float
    restart_s: float
    interval_s: float
    best_interval_s: float
    memory_interval_s: float | None
    best_memory_interval_s: float | None
    run_interval_s: float
    run_memory_interval_s: float | None
    run_goodput: float
    goodput: float
    goodput_low: float
    goodput_high: float
    best_goodput: float
    scheduling_goodput: float
    runtime_goodput: float
    published_runtime_goodput: float | None
    linear_goodput: float
    first_order_interval_s: float | None
    first_order_memory_interval_s: float | None
    can_progress: bool
    target: float
    disruptions: Disruptions
    badput: Badput
    best_spares: int | None
    elastic: Elastic | None
    spares: tuple[SparesAnswer, ...]
    what_ifs: tuple[WhatIf, ...]
    notes: tuple[str, ...]
    fitted: tuple[Fitted, ...] = ()
    assumed: tuple[str, ...] = ()
    buying: Buying | None = None
    faster: Faster | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, by the same names."""
        return asdict(self)


def plan(
    question: Question,
    drawn: Sequence[Question] = (),
    fitted: Sequence[Fitted] = (),
    assumed: Sequence[str] = (),
) -> Plan:
    """Answer a question.

    `drawn`: the same one with parameters that may be the true ones; then the interval of goodput is
    that of a run whose parameters are as uncertain. `fitted`: what the parameters rest on,
    `assumed`: sentences on what nobody knows.
    """
    view, best, run = outlook(question), outlook(question, best=True), outlook(as_run(question))
    scenario = question.scenario
    memory = scenario.saves.memory
    low, high = goodput_interval(question, view, drawn)
    first_order_s, first_order_memory_s = first_order_intervals(question)
    sg = view.waiting.scheduling_goodput
    costs = costs_of(question)
    return Plan(
        hosts=scenario.fleet.hosts,
        chips=scenario.fleet.chips,
        duration_s=scenario.duration_s,
        mtbf_s=question.between.mean_s,
        save_s=costs.save_s,
        restart_s=costs.restart_s,
        interval_s=view.pattern.durable_interval_s,
        best_interval_s=best.pattern.durable_interval_s,
        memory_interval_s=view.pattern.interval_s if memory else None,
        best_memory_interval_s=best.pattern.interval_s if memory else None,
        run_interval_s=run.pattern.durable_interval_s,
        run_memory_interval_s=run.pattern.interval_s if memory else None,
        run_goodput=run.goodput,
        goodput=view.goodput,
        goodput_low=low,
        goodput_high=high,
        best_goodput=best.goodput,
        scheduling_goodput=sg,
        runtime_goodput=view.runtime_goodput,
        published_runtime_goodput=published_runtime_goodput(question, view),
        linear_goodput=linear_goodput(question, view),
        first_order_interval_s=first_order_s,
        first_order_memory_interval_s=first_order_memory_s,
        can_progress=can_progress(question, best),
        target=question.target,
        disruptions=_disruptions(question, view),
        badput=Badput(
            1 - sg,
            sg * view.shares.restarts,
            sg * view.shares.lost,
            sg * view.shares.saves,
            sg * view.shares.kept * view.idle,
            sg * view.hanging,
        ),
        best_spares=best_spares(question),
        elastic=_elastic(question, view),
        spares=spares_table(question, view),
        what_ifs=what_ifs(question, view),
        notes=notes(question, view, best),
        fitted=tuple(fitted),
        assumed=tuple(assumed),
        buying=buying(question, view),
        faster=_faster(question, view),
    )


def _faster(question: Question, view: Outlook) -> Faster | None:
    scenario = question.scenario
    if view.goodput <= 0:
        return None
    saved_s = scenario.duration_s * (1 - 1 / (1 + MORE_MFU))
    chip_hours = saved_s * scenario.fleet.chips / 3600
    return Faster(MORE_MFU, saved_s, chip_hours, view.goodput * (1 + MORE_MFU))


def _elastic(question: Question, view: Outlook) -> Elastic | None:
    fleet, waiting = question.scenario.fleet, view.waiting
    if not fleet.elastic:
        return None
    waits = outlook(with_elastic(question, elastic=False)).goodput
    return Elastic(
        slices=fleet.slices,
        least_slices=fleet.least_slices,
        slices_training=fleet.slices * waiting.scheduling_goodput,
        restarts=question.scenario.duration_s * waiting.taken_in_per_s,
        goodput_waiting=waits,
        gain=view.goodput - waits,
    )


def _disruptions(question: Question, view: Outlook) -> Disruptions:
    """Failures strike the hosts that are there; the variance of a renewal count is N·cv².

    What fails while the run hangs ends no attempt of its own.

    Restarts that take slices in again are disruptions too.
    """
    law, waiting = question.between, view.waiting
    running = waiting.scheduling_goodput * (1 - view.hanging)
    mean = running / law.mean_s + waiting.taken_in_per_s
    mean *= question.scenario.duration_s
    sd = sqrt(mean) * _variation(law)
    return Disruptions(mean, sd, max(0.0, mean - NORMAL_95 * sd), mean + NORMAL_95 * sd)


def _variation(law: Law) -> float:
    """A law's standard deviation over its mean."""
    if isinstance(law, Weibull):
        return sqrt(gamma(1 + 2 / law.shape) / gamma(1 + 1 / law.shape) ** 2 - 1)
    if isinstance(law, LogNormal):
        return sqrt(expm1(law.sigma**2))
    return 0.0 if isinstance(law, Fixed) else 1.0
