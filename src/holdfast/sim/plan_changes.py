"""A question with something changed: what a what-if asks."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from holdfast.sim.laws import Exponential, Fixed, Law, LogNormal, Weibull
from holdfast.sim.model import Notices
from holdfast.sim.plan_input import Question


def with_spares(question: Question, count: int) -> Question:
    """The same with another number of spares."""
    scenario = question.scenario
    fleet = replace(scenario.fleet, spares=count)
    return replace(question, scenario=replace(scenario, fleet=fleet))


def with_elastic(question: Question, *, elastic: bool) -> Question:
    """The same where the run goes on without the slices that are not whole, or waits for them."""
    scenario = question.scenario
    fleet = replace(scenario.fleet, elastic=elastic)
    return replace(question, scenario=replace(scenario, fleet=fleet))


def with_slices(question: Question, factor: float) -> Question:
    """The same job on that many times the slices, in whole ones; a single one is waited for."""
    scenario = question.scenario
    fleet = scenario.fleet
    count = max(1, round(fleet.slices * factor))
    least = min(count, max(1, round(fleet.least_slices * factor)))
    fleet = replace(
        fleet, hosts=count * fleet.hosts_per_slice, elastic=count > 1, least_slices=least
    )
    scenario = replace(scenario, fleet=fleet)
    return replace(question, scenario=scenario, between=scaled(question.between, 1 / factor))


def with_stall(question: Question, stall_s: float) -> Question:
    """The same with saves that block for that long."""
    return with_saves(question, stall_s=stall_s)


def with_idle(question: Question, share: float) -> Question:
    """The same where that share of the training is no step."""
    return replace(question, scenario=replace(question.scenario, idle=share))


def with_restart(question: Question, restart_s: float) -> Question:
    """The same with restarts of that length."""
    return with_recovery(question, restart=Fixed(restart_s))


def with_replace(question: Question, replace_s: float) -> Question:
    """The same where another host is there after that long."""
    return with_recovery(question, replace=Fixed(replace_s))


def with_failures(question: Question, factor: float) -> Question:
    """The same with failures of every kind that many times as far apart."""
    failures = question.scenario.failures
    between, rack, slices = (
        None if law is None else scaled(law, factor)
        for law in (failures.between, failures.rack_between, failures.slice_between)
    )
    early = failures.early
    if early is not None:
        early = replace(early, share=min(1.0, early.share / factor))
    changed = replace(
        failures, between=between, rack_between=rack, slice_between=slices, early=early
    )
    scenario = replace(question.scenario, failures=changed)
    longer = (scenario.mtbf_s or inf) / (question.scenario.mtbf_s or inf)
    return replace(question, scenario=scenario, between=scaled(question.between, longer))


def scaled(law: Law, factor: float) -> Law:
    """The law of a time that is so many times as long."""
    if isinstance(law, LogNormal):
        return LogNormal(law.median_s * factor, law.sigma)
    if isinstance(law, Weibull):
        return Weibull(law.mean_s * factor, law.shape)
    return (Fixed if isinstance(law, Fixed) else Exponential)(law.mean_s * factor)


def min_mean(one: Law, other: Law) -> Law:
    """The one that is shorter on average."""
    return one if one.mean_s <= other.mean_s else other


def with_saves(question: Question, **changes: Any) -> Question:
    """The same with other saves."""
    scenario = question.scenario
    return replace(question, scenario=replace(scenario, saves=replace(scenario.saves, **changes)))


def with_recovery(question: Question, **changes: Any) -> Question:
    """The same with another way back."""
    scenario = question.scenario
    recovery = replace(scenario.recovery, **changes)
    return replace(question, scenario=replace(scenario, recovery=recovery))


def with_notices(question: Question, notices: Notices) -> Question:
    """The same with other notices."""
    failures = replace(question.scenario.failures, notices=notices)
    return replace(question, scenario=replace(question.scenario, failures=failures))
