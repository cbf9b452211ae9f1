"""A plan's curves: goodput against the interval of saves, against scale, and against spares.

Plain numbers from the closed forms, thin enough to be drawn as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil, floor, inf, log2

from holdfast.sim.plan_changes import with_failures, with_saves, with_slices, with_spares
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import Outlook, least_interval_s, outlook, waiting
from holdfast.sim.plan_published import linear_goodput
from holdfast.sim.plan_spares import best_spares, scheduling_goodput

OCTAVES = 5  # of an interval or a scale, to both sides
PER_OCTAVE, SCALES_PER_OCTAVE = 6, 4
MOST_SPARES_DRAWN = 48
COST_STEPS, MOST_TIMES = 8, 3  # of the cost: so many steps for each time of the plan's scale
HOURS_A_DAY = 24.0


@dataclass(frozen=True, slots=True)
class IntervalPoint:
    """Goodput with saves that far apart: exactly, and by the first-order form."""

    interval_s: float
    goodput: float
    first_order: float


@dataclass(frozen=True, slots=True)
class IntervalCurve:
    """Of one tier, the other as planned; `best` and `planned` are among the points.

    They are the same point where the best interval is what is planned for.
    """

    tier: str
    best: IntervalPoint
    planned: IntervalPoint
    points: tuple[IntervalPoint, ...]


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """The same job on `factor` times the hosts: each of them fails as often, all else is alike.

    `goodput`: with the best intervals at that scale; `goodput_as_planned`: with the plan's.
    """

    factor: float
    hosts: float
    goodput: float
    goodput_as_planned: float


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Chip-hours lost in a day at `factor` times the scale, with the plan's intervals, by kind.

    While failures are rare, `lost`, `restart`, `reschedule` and `hang` grow with the square of the
    scale, since so many more failures stop so many more chips; `save` grows with the scale.
    """

    factor: float
    hosts: float
    reschedule: float
    restart: float
    lost: float
    save: float
    hang: float

    @property
    def by_failures(self) -> float:
        """All but what saves block."""
        return self.reschedule + self.restart + self.lost + self.hang


@dataclass(frozen=True, slots=True)
class SparesPoint:
    """With so many spares: goodput, and kept training over all hosts paid for, spares too."""

    spares: int
    goodput: float
    per_host_paid_for: float


@dataclass(frozen=True, slots=True)
class Curves:
    """All of them; `spares` is empty where spares change nothing."""

    intervals: tuple[IntervalCurve, ...]
    scale: tuple[ScalePoint, ...]
    cost: tuple[CostPoint, ...]
    spares: tuple[SparesPoint, ...]


def curves(question: Question) -> Curves:
    """The curves of a question."""
    view = outlook(question)
    intervals = [_interval_curve(question, view, "durable")]
    if question.scenario.saves.memory:
        intervals.append(_interval_curve(question, view, "memory"))
    return Curves(
        intervals=tuple(intervals),
        scale=tuple(_scale(question, view)),
        cost=tuple(_cost(question, view)),
        spares=tuple(_spares(question, view)),
    )


def at_scale(question: Question, factor: float, *, best: bool = False) -> Outlook:
    """The same job on that many times the hosts, with as many times the spares.

    Half a spare is worth half of what a whole one is: the spares of a smaller job are no whole
    number, and without that its curve would jump at each of them.
    """
    spares = question.scenario.fleet.spares * factor
    is_elastic = question.scenario.fleet.elastic
    scaled = with_slices(question, factor) if is_elastic else with_failures(question, 1 / factor)
    found = outlook(with_spares(scaled, floor(spares)), best=best)
    part = spares - floor(spares)
    if not part:
        return found
    fewer, more = (waiting(with_spares(scaled, count)) for count in (floor(spares), ceil(spares)))
    there = (1 - part) * fewer.scheduling_goodput + part * more.scheduling_goodput
    return replace(found, waiting=replace(found.waiting, scheduling_goodput=there))


def _interval_curve(question: Question, view: Outlook, tier: str) -> IntervalCurve:
    name = "interval_s" if tier == "durable" else "memory_interval_s"

    def point(interval_s: float) -> IntervalPoint:
        asked = with_saves(question, **{name: interval_s})
        found = outlook(asked)
        return IntervalPoint(interval_s, found.goodput, linear_goodput(asked, found))

    free = outlook(with_saves(question, **{name: None}))
    best, planned = point(_length_s(free, tier)), point(_length_s(view, tier))
    if planned.goodput > best.goodput:  # the optimum is flat, and only searched for
        best = planned
    least_s, most_s = _bounds(question, tier)
    low_s = max(least_s, min(best.interval_s, planned.interval_s) / 2**OCTAVES)
    high_s = max(best.interval_s, planned.interval_s) * 2**OCTAVES
    if best.interval_s <= least_s:  # nothing is blocked: the other end is what matters
        high_s = max(high_s, question.between.mean_s)
    at_s = {best.interval_s, planned.interval_s}
    at_s.update(_grid(low_s, min(high_s, most_s), PER_OCTAVE))
    return IntervalCurve(tier, best, planned, tuple(point(value_s) for value_s in sorted(at_s)))


def _length_s(view: Outlook, tier: str) -> float:
    pattern = view.pattern
    return pattern.durable_interval_s if tier == "durable" else pattern.interval_s


def _bounds(question: Question, tier: str) -> tuple[float, float]:
    """Between which a tier's interval can be without changing the other's, where that is given."""
    saves = question.scenario.saves
    if tier == "durable":
        return max(least_interval_s(question), saves.memory_interval_s or 0.0), inf
    return question.scenario.step_s, saves.interval_s or inf


def _scale(question: Question, view: Outlook) -> Iterator[ScalePoint]:
    hosts, planned = question.scenario.fleet.hosts, _as_planned(question, view)
    for factor in _factors(hosts):
        best = at_scale(question, factor, best=True).goodput
        same = at_scale(planned, factor).goodput
        yield ScalePoint(factor, hosts * factor, max(best, same), same)


def _cost(question: Question, view: Outlook) -> Iterator[CostPoint]:
    fleet, planned = question.scenario.fleet, _as_planned(question, view)
    yield CostPoint(*[0.0] * len(fields(CostPoint)))
    for step in range(1, COST_STEPS * MOST_TIMES + 1):
        factor = step / COST_STEPS
        found = at_scale(planned, factor)
        sg, shares = found.waiting.scheduling_goodput, found.shares
        hours = fleet.chips * factor * HOURS_A_DAY
        yield CostPoint(
            factor=factor,
            hosts=fleet.hosts * factor,
            reschedule=hours * (1 - sg),
            restart=hours * sg * shares.restarts,
            lost=hours * sg * shares.lost,
            save=hours * sg * shares.saves,
            hang=hours * sg * found.hanging,
        )


def _as_planned(question: Question, view: Outlook) -> Question:
    """The same with the plan's intervals, whatever would be best."""
    copy_s = view.pattern.interval_s if question.scenario.saves.memory else None
    return with_saves(
        question, interval_s=view.pattern.durable_interval_s, memory_interval_s=copy_s
    )


def _factors(hosts: int) -> list[float]:
    """Both sides of 1; whole hosts, where the plan says how many there are."""
    factors = _grid(2.0**-OCTAVES, 2.0**OCTAVES, SCALES_PER_OCTAVE)
    if hosts == 1:
        return factors
    counts = {round(hosts * factor) for factor in factors} - {0}
    return [count / hosts for count in sorted(counts)]


def _spares(question: Question, view: Outlook) -> Iterator[SparesPoint]:
    best = best_spares(question)
    if best is None:
        return
    fleet = question.scenario.fleet
    last = max(4, 2 * best, fleet.spares + 2)
    every = -(-last // MOST_SPARES_DRAWN)
    for count in sorted({*range(0, last + 1, every), best, fleet.spares}):
        goodput = scheduling_goodput(question, count) * view.runtime_goodput
        paid = fleet.hosts / (fleet.hosts + count)
        yield SparesPoint(count, goodput, goodput * paid)


def _grid(low: float, high: float, per_octave: int) -> list[float]:
    """Both ends, and between them powers of two and so many values from one to the next."""
    first, last = floor(log2(low) * per_octave) + 1, ceil(log2(high) * per_octave)
    between = (2.0 ** (step / per_octave) for step in range(first, last))
    return [low, *between, high]
