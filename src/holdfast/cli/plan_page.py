"""A plan as one HTML page: the answers first, then the curves, then what was assumed.

And the curves alone, as a picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import __version__
from holdfast.cli.plan_charts import figures_of
from holdfast.cli.plan_screen import UNSAID, interval_rows
from holdfast.report.kinds import style_of
from holdfast.report.page import page
from holdfast.report.sheet import sheet
from holdfast.report.words import counted, percent
from holdfast.sim.durations import in_words
from holdfast.sim.laws import LogNormal
from holdfast.sim.plan import Plan
from holdfast.sim.plan_curves import curves
from holdfast.sim.plan_input import PARAMETERS, Question

TIMES = ("TIME", "DAYS")
RANDOM = "Failures come at random and can strike at any moment: in a step, in a save, in a restart."
OF_CHANCE = (
    "The interval shows how much runs of that length differ by chance, and says nothing of how "
    "well the parameters are known."
)
OF_LITTLE_KNOWN = (
    "The interval shows how much runs of that length differ by chance, and how little the recorded "
    "run tells."
)


def page_of(plan: Plan, question: Question, values: Mapping[str, Any]) -> str:
    """The page; `values` are the parameters that were given, by name.

    Raises ConfigurationError where the extra `dashboard` is not installed.
    """
    return page(
        "plan.html",
        figures_of(plan, curves(question)),
        title=_title(plan),
        facts=_failures(plan),
        goodput=percent(plan.goodput),
        judgement=_judgement(plan),
        spread=_spread(plan),
        product=_product(plan),
        target=percent(plan.target),
        bar=_bar(plan),
        colour=style_of("step").colour,
        notes=plan.notes,
        cards=_cards(plan),
        changes=_changes(plan),
        intervals=list(interval_rows(plan, "—")),
        estimates=_estimates(plan),
        spares=_spares(plan),
        best_spares=next(
            (i for i, row in enumerate(plan.spares) if row.spares == plan.best_spares), None
        ),
        given=_given(values),
        fitted=[(one.name, one.words) for one in plan.fitted if one.name not in UNSAID],
        assumed=_assumed(plan, question, values),
        assumptions=[*plan.assumed, RANDOM, OF_LITTLE_KNOWN if plan.fitted else OF_CHANCE],
        made_by=f"Made by holdfast plan, version {__version__}. This file is whole: it loads "
        "nothing, and sends nothing.",
    )


def picture_of(plan: Plan, question: Question) -> str:
    """The charts side by side, as SVG; raises ConfigurationError as `page_of` does."""
    title = f"{_title(plan)}: goodput {percent(plan.goodput)}"
    return sheet(figures_of(plan, curves(question)), title)


def _title(plan: Plan) -> str:
    facts = [counted(plan.hosts, "host")] if plan.hosts > 1 else []
    if plan.chips > 1:
        facts.append(counted(plan.chips, "chip"))
    facts.append(in_words(plan.duration_s))
    return f"Plan: {', '.join(facts)}"


def _failures(plan: Plan) -> str:
    found = plan.disruptions
    return (
        f"{found.mean:,.0f} ± {2 * found.sd:,.0f} failures, one every {in_words(plan.mtbf_s)}; "
        f"a restart takes {in_words(plan.restart_s)}, a save blocks for {in_words(plan.save_s)}"
    )


def _judgement(plan: Plan) -> str:
    """The class of the headline: its colour says whether the target is reached."""
    if not plan.can_progress:
        return "bad"
    return "good" if plan.goodput >= plan.target else ""


def _spread(plan: Plan) -> str:
    low, high = percent(plan.goodput_low), percent(plan.goodput_high)
    return f"{low} to {high} in nine runs of ten."


def _product(plan: Plan) -> str:
    there = "the time, all hosts are there" if plan.elastic is None else (
        "the chip time, its slice is there"
    )  # fmt: skip
    return (
        f"= {percent(plan.scheduling_goodput)} scheduling (of {there}) "
        f"× {percent(plan.runtime_goodput)} runtime (of that time is kept training)"
    )


def _bar(plan: Plan) -> dict[str, str]:
    """The bar under the headline, as percentages of its width."""
    shares = {
        "goodput": plan.goodput,
        "low": plan.goodput_low,
        "width": max(0.004, plan.goodput_high - plan.goodput_low),
        "target": plan.target,
    }
    places = {name: f"{share * 100:.2f}" for name, share in shares.items()}
    return {**places, "colour": style_of("step").colour}


def _cards(plan: Plan) -> list[dict[str, str]]:
    """The answers that people come for, each with a number."""
    cards = [_card("save every", plan.best_interval_s, plan.interval_s)]
    if plan.memory_interval_s is not None and plan.best_memory_interval_s is not None:
        cards.append(
            _card("copy to memory every", plan.best_memory_interval_s, plan.memory_interval_s)
        )
    if plan.best_spares is not None:
        words = "keep most for each host paid for"
        cards.append({"name": "keep", "value": counted(plan.best_spares, "spare"), "words": words})
    if plan.elastic is not None:
        value = f"{plan.elastic.gain * 100:+.1f} points"
        words = f"by going on; waiting for all slices keeps {percent(plan.elastic.goodput_waiting)}"
        cards.append({"name": "elastic", "value": value, "words": words})
    if plan.what_ifs:
        first = plan.what_ifs[0]
        value = f"+{first.gain * 100:.1f} points"
        cards.append({"name": "the largest gain", "value": value, "words": first.change})
    if plan.faster is not None:
        name = f"MFU {plan.faster.gain:.0%} higher saves".replace("%", " %")
        words = f"chip-hours of {in_words(plan.duration_s)}, for the same work"
        value = f"{plan.faster.saved_chip_hours:,.0f}"
        cards.append({"name": name, "value": value, "words": words})
    lost, unit = (1 - plan.goodput) * plan.chips * 24, "chip-hours" if plan.chips > 1 else "hours"
    value = f"{lost:,.0f}" if lost >= 100 else f"{lost:.1f}"
    words = f"{unit}: {percent(1 - plan.goodput)} of all time"
    cards.append({"name": "lost in a day", "value": value, "words": words})
    return cards


def _card(name: str, best_s: float, planned_s: float) -> dict[str, str]:
    words = "the best interval, planned for"
    if abs(planned_s - best_s) > 0.01 * best_s:
        words = f"the best interval; the plan has {in_words(planned_s)}"
    return {"name": name, "value": in_words(best_s), "words": words}


def _changes(plan: Plan) -> list[dict[str, Any]]:
    most = plan.what_ifs[0].gain if plan.what_ifs else 1.0
    return [
        {
            "change": one.change,
            "gain": f"+{one.gain * 100:.1f} points",
            "goodput": percent(one.goodput),
            "share": one.gain / most,
        }
        for one in plan.what_ifs
    ]


def _estimates(plan: Plan) -> str:
    return (
        "Runtime goodput by the published estimate from tch, trm and tre: "
        f"{percent(plan.published_runtime_goodput)}, exact: {percent(plan.runtime_goodput)}; "
        f"goodput by the linear formula: {percent(plan.linear_goodput)}."
    )


def _spares(plan: Plan) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.spares:,}",
            percent(row.enough),
            in_words(row.wait_s),
            percent(row.goodput),
            f"{row.gain_of_one_more * 100:+.2f} points",
        )
        for row in plan.spares
    ]


def _given(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked, by the names of the flags, in their order."""
    return [
        (one.name, _in_words(one.metavar, values[one.name]))
        for one in PARAMETERS
        if values.get(one.name) not in (None, False)
    ]


def _in_words(metavar: str | None, value: Any) -> str:
    if metavar is None:
        return "yes"
    if metavar in TIMES:
        return in_words(value)
    if metavar == "SHARE":
        return percent(value)
    if isinstance(value, LogNormal):
        return f"log-normal, median {in_words(value.median_s)}, sigma {value.sigma:g}"
    if metavar == "TIME|LAW":
        return in_words(value.mean_s)
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _assumed(plan: Plan, question: Question, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands for the parameters that matter and were not given."""
    scenario = question.scenario
    taken = {
        "chips-per-host": f"{scenario.fleet.chips_per_host}",
        "host-share": percent(scenario.failures.host_share),
        "save-stall": in_words(scenario.saves.stall_s),
        "save-write": in_words(scenario.saves.write_s),
        "restart": in_words(scenario.recovery.restart.mean_s),
        "reschedule": in_words(scenario.recovery.replace.mean_s),
        "spares": f"{scenario.fleet.spares:,}",
        "days": in_words(scenario.duration_s),
        "target": percent(question.target),
    }
    known = [*values, *(one.name for one in plan.fitted)]
    return [(name, value) for name, value in taken.items() if name not in known]
