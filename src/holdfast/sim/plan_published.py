"""What the published first-order forms say of a question, beside the exact ones of `plan_model`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from holdfast.core.plan.first_order import (
    TwoIntervals,
    linear_efficiency,
    predicted_interval_s,
    predicted_waste,
    two_level_intervals,
    two_level_waste,
)
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import Outlook, costs_of, mean_hang_s, rates_of


def linear_goodput(question: Question, view: Outlook) -> float:
    """Goodput by the linear formula for that pattern of saves; 0 at the least."""
    return view.waiting.scheduling_goodput * (1 - view.idle) * _linear(question, view)


def published_runtime_goodput(question: Question, view: Outlook) -> float | None:
    """The estimate for the failures that are expected: each loses half an interval."""
    costs, rates, pattern = costs_of(question), rates_of(question), view.pattern
    waiting, every = view.waiting, rates.failures
    in_memory = rates.process / every if costs.copy_s is not None else 0.0
    saved = rates.announced / every
    rest = 1 - in_memory - saved
    tch_s = in_memory * pattern.interval_s / 2
    tch_s += rest * (pattern.durable_interval_s / 2 + costs.write_s)
    trm_s = in_memory * costs.restart_from_memory_s + (1 - in_memory) * costs.restart_s
    trm_s += mean_hang_s(question)
    tre_s = waiting.lost * waiting.per_loss_s
    duration_s = question.scenario.duration_s
    count = duration_s * waiting.scheduling_goodput * (1 - view.hanging) * every
    return estimated_runtime_goodput([count * tch_s], [count * trm_s], [count * tre_s], duration_s)


def _linear(question: Question, view: Outlook) -> float:
    """Runtime goodput by the first-order form that fits: two levels, predictions, or neither."""
    costs, rates, pattern = costs_of(question), rates_of(question), view.pattern
    mtbf_s, restart_s = 1 / rates.failures, costs.restart_s + mean_hang_s(question)
    if costs.copy_s is not None:
        intervals = TwoIntervals(pattern.interval_s, pattern.durable_interval_s)
        mtbfs_s = _mean_s(rates.process), _mean_s(rates.host + rates.announced)
        waste = two_level_waste(intervals, costs.copy_s, 0.0, restart_s, *mtbfs_s)
        return max(0.0, 1 - waste)
    if rates.announced:
        recall, precision = rates.announced / rates.failures, 1.0
        if rates.false:
            precision = rates.announced / (rates.announced + rates.false)
        waste = predicted_waste(pattern.interval_s, costs.save_s, costs.notice_save_s,
                                restart_s, mtbf_s, recall, precision)  # fmt: skip
        return max(0.0, 1 - waste)
    return linear_efficiency(pattern.interval_s, costs.save_s, restart_s, mtbf_s)


def first_order_intervals(question: Question) -> tuple[float | None, float | None]:
    """The durable interval, and that of copies, by the published forms; None: never, or no tier."""
    costs, rates = costs_of(question), rates_of(question)
    if costs.copy_s is not None:  # a durable save costs nothing that a copy does not
        both = two_level_intervals(costs.copy_s, 0.0, _mean_s(rates.process), _mean_s(rates.host))
        return None, _finite(both.memory_s)
    recall = rates.announced / rates.failures
    return _finite(predicted_interval_s(costs.save_s, 1 / rates.failures, recall)), None


def _mean_s(rate: float) -> float:
    return 1 / rate if rate else inf


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def estimated_runtime_goodput(
    tch_s: Sequence[float], trm_s: Sequence[float], tre_s: Sequence[float], elapsed_s: float
) -> float | None:
    """1 − Σ (tch + trm) / (elapsed − Σ tre): the share of the time that resources were there.

    The estimate by which ML Productivity Goodput is explained (Google Cloud, "Introducing ML
    Productivity Goodput", April 2024): each disruption costs the progress since its last checkpoint
    and the time to resume; time to reschedule belongs to scheduling goodput and leaves the
    denominator. It knows no first start-up, no compile, no input stall and no blocking save: where
    an account exists, its `runtime_goodput` is the measurement.
    """
    available_s = elapsed_s - sum(tre_s)
    return 1 - (sum(tch_s) + sum(trm_s)) / available_s if available_s > 0 else None
