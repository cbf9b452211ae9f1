"""A run's page: its sections as HTML, each by itself, and the whole file.

A live page sends the same sections again when they change, and the same data for the time line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from holdfast.report.charts import Figure, Table
from holdfast.report.findings import Checkpoint
from holdfast.report.hosts import HostRow
from holdfast.report.kinds import style_of, words_of
from holdfast.report.overview import Factor, Incident, Overview
from holdfast.report.page import environment, script, still_page
from holdfast.report.run_charts import lost_time, step_times, time_line
from holdfast.report.run_data import course_data
from holdfast.report.still import HALF_PX, NARROW_PX, WIDE_PX, drawn
from holdfast.report.words import (
    MISSING,
    chip_hours,
    clean,
    counted,
    duration,
    moment,
    money,
    percent,
    size,
)

SECTIONS = ("head", "now", "goodput", "badput", "gains", "incidents", "pace", "hosts", "tiers",
            "notes")  # fmt: skip
CHARTS = ("badput", "pace")
STATE_TONES = {"running": "good", "done": "good", "failed": "bad", "interrupted": "bad",
               "silent": "bad"}  # fmt: skip
NEWEST = 20  # disruptions that are in view; the others open
_NS_PER_CHIP_HOUR = 3_600_000_000_000


def run_page(view: Overview, checkpoints: Sequence[Checkpoint], version: str) -> str:
    """The whole file; raises ConfigurationError where the extra `dashboard` is not installed."""
    return still_page(
        "run.html",
        [script("course.js")],
        {"course": course_data(view, saves_of(checkpoints))},
        ["run.css"],
        title=f"{view.name}: {view.state}",
        sections=sections(view),
        timeline=timeline_of(view),
        made_by=f"Made by holdfast report, version {version}, {_when(view, view.now_ns)}. "
        "This file is whole: it loads nothing, and sends nothing.",
    )


def saves_of(checkpoints: Sequence[Checkpoint]) -> tuple[tuple[int, int], ...]:
    """When sets were complete, and their steps."""
    known = ((one.at_ns, one.step) for one in checkpoints if one.at_ns is not None)
    return tuple(sorted(known))


def sections(view: Overview, without: Collection[str] = ()) -> dict[str, str]:
    """The HTML of each section by its id; an empty text where there is nothing to show.

    `without`: sections that are left out. Of all others together, those of CHARTS take the longest.
    """
    values = {
        "head": _head(view),
        "now": {"advice": view.advice, "cards": list(_cards(view)), "broke": _broke(view)},
        "goodput": _goodput(view),
        "badput": {} if "badput" in without else {"figure": _badput(view)},
        "gains": {"gains": view.gains, "rows": _gains(view)},
        "incidents": {"rows": [_incident(view, one) for one in reversed(view.incidents)],
                      "priced": view.price_per_chip_hour is not None, "newest": NEWEST},
        "pace": {} if "pace" in without else {"figure": _pace(view), "outliers": _outliers(view)},
        "hosts": {"rows": [_host(row) for row in view.hosts]},
        "tiers": {"rows": _tiers(view), "saving": view.saving, "compiled": view.compilations},
        "notes": {"notes": view.notes, "rollbacks": view.rollbacks},
    }  # fmt: skip
    parts = environment().get_template("run_parts.html").module
    wanted = [name for name in SECTIONS if name not in without]
    return {name: str(getattr(parts, name)(**values[name])).strip() for name in wanted}


def timeline_of(view: Overview) -> dict[str, Any]:
    """The time line as it is drawn for those who have no script, with its words and numbers."""
    return _still(_timeline(view))


def _badput(view: Overview) -> dict[str, Any]:
    return _still(lost_time(view.account), HALF_PX)


def _timeline(view: Overview) -> Figure:
    return time_line(view.course, dated=view.unix_clock)


def figures_of(view: Overview) -> list[Figure]:
    """All charts, for a picture."""
    found = [_timeline(view), lost_time(view.account)]
    if view.steps.bins:
        found.append(step_times(view.course, view.steps, dated=view.unix_clock))
    return found


def _still(figure: Figure, wide_px: int = WIDE_PX) -> dict[str, Any]:
    return {
        "name": figure.name,
        "title": figure.title,
        "words": figure.words,
        "numbers": figure.numbers,
        "wide": drawn(figure, wide_px),
        "narrow": drawn(figure, NARROW_PX),
    }


# --- The head, and what somebody needs at night ---------------------------------------------------


def _head(view: Overview) -> dict[str, Any]:
    facts = [counted(view.attempts, "attempt"), counted(view.account.chips, "chip")]
    facts.append(f"{duration(view.account.elapsed_ns)} since it was requested")
    if view.unix_clock:
        facts.append(f"seen {moment(view.now_ns)}")
    return {
        "name": view.name,
        "state": view.state,
        "tone": STATE_TONES.get(view.state, ""),
        "why": view.why,
        "facts": " · ".join(facts),
        "command": " ".join(view.command),
    }


def _card(name: str, value: str, words: str, tone: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "words": words, "tone": tone}


def _cards(view: Overview) -> Iterator[dict[str, str]]:
    """The answers, each with a number, the most urgent first."""
    yield from _notice_cards(view)
    yield from _last_step_card(view)
    if view.phase is not None:
        phase = view.phase
        usual = "it never was in this before"
        tone = ""
        if phase.usual_ns is not None:
            usual = f"usually {duration(phase.usual_ns)}, of {counted(phase.times, 'time')}"
            tone = "bad" if phase.lasts_ns > 3 * phase.usual_ns else ""
        yield _card(f"in {clean(phase.kind)}", duration(phase.lasts_ns), usual, tone)
    yield from _pace_card(view)
    for tier in view.tiers:
        yield _card(
            f"at risk from {tier.name}",
            duration(tier.at_risk_ns),
            f"{counted(tier.at_risk_steps, 'step')} since step {tier.last_step or 0:,}, "
            f"if {tier.survives} is lost",
        )
    newest = view.newest
    if newest is not None:
        ago = duration(max(0, view.now_ns - newest.at_ns))
        over = "not over" if newest.down_ns is None else f"over after {duration(newest.down_ns)}"
        value = f"{ago} ago" if view.is_live else counted(len(view.incidents), "disruption")
        words = f"{newest.cause}; {over}" if view.is_live else f"the last: {newest.cause}"
        yield _card("last disruption" if view.is_live else "disruptions", value, words,
                    "bad" if newest.down_ns is None and view.is_live else "")  # fmt: skip


def _notice_cards(view: Overview) -> Iterator[dict[str, str]]:
    for one in view.announced:
        words = clean(one.words)
        takes = "no save was measured yet"
        if view.save_ns is not None:
            takes = f"a save takes {duration(view.save_ns)}"
        if one.deadline_ns is None:
            yield _card("notice", "no time said", f"{words}; {takes}", "bad")
            continue
        left_ns = one.deadline_ns - view.now_ns
        value = f"in {duration(left_ns)}" if left_ns > 0 else "its time has come"
        short = view.save_ns is None or left_ns < view.save_ns * 3 // 2
        yield _card("notice", value, f"{words}; {takes}", "bad" if short else "")


def _last_step_card(view: Overview) -> Iterator[dict[str, str]]:
    if view.last_step_age_ns is None:
        yield _card("last step", MISSING, "no step was completed yet")
        return
    step, age = view.steps.last_step, duration(view.last_step_age_ns)
    if not view.is_live:
        yield _card("last step", f"{step:,}", f"completed {age} ago")
        return
    late = view.steps.usual_ns and view.last_step_age_ns > 10 * view.steps.usual_ns
    where = ", complete on the device" if view.is_on_device else ""
    tone = "bad" if late else "good"
    yield _card("last step", f"{age} ago", f"step {step:,}{where}", tone)


def _pace_card(view: Overview) -> Iterator[dict[str, str]]:
    steps = view.steps
    if not steps.usual_ns:
        return
    times = steps.recent_ns / steps.usual_ns
    usual = f"usually {duration(steps.usual_ns)}"
    tone = "bad" if times > 1.5 else "good" if view.is_live else ""
    yield _card(
        "a step takes", duration(steps.recent_ns), f"{times:.2f} × its normal; {usual}", tone
    )


def _broke(view: Overview) -> dict[str, Any] | None:
    """The first rank that failed, while that matters: it is not over, or the run gave up."""
    newest = view.newest
    if newest is None or not (newest.lines or newest.traceback):
        return None
    if newest.down_ns is not None and view.state != "failed":
        return None
    who = "The output" if newest.rank is None else f"Rank {newest.rank} broke first: its output"
    return {"title": f"{who} in attempt {newest.attempt} ended with",
            "lines": "\n".join(newest.traceback or newest.lines)}  # fmt: skip


# --- Goodput --------------------------------------------------------------------------------------


def _goodput(view: Overview) -> dict[str, Any]:
    account = view.account
    lost = account.elapsed - account.productive
    return {
        "goodput": percent(account.goodput),
        "kept": f"{duration(account.productive // account.chips)} kept of "
        f"{duration(account.elapsed_ns)} paid for",
        "lost": _lost(view, lost),
        "factors": [_factor(view, one) for one in view.factors],
        "share": f"{(account.goodput or 0) * 100:.2f}",
        "colour": style_of("step").colour,
        "steps": f"{counted(account.steps_kept, 'step')} kept, {account.lost_steps:,} lost.",
    }


def _factor(view: Overview, one: Factor) -> dict[str, str]:
    lost = "" if one.lost_chip_ns is None else f"lost {_lost(view, one.lost_chip_ns)}"
    return {"name": one.name, "share": percent(one.share), "of": one.of, "lost": lost}


def _lost(view: Overview, chip_ns: int) -> str:
    """Chip-hours, and money where a price was given."""
    told = f"{chip_hours(chip_ns)} chip-hours"
    if view.price_per_chip_hour is not None:
        cost = chip_ns / _NS_PER_CHIP_HOUR * view.price_per_chip_hour
        told += f", {money(cost)} in money"
    return told


def _gains(view: Overview) -> list[dict[str, Any]]:
    if view.gains is None or not view.gains.changes:
        return []
    most = view.gains.changes[0].gain or 1.0
    return [
        {
            "change": one.change,
            "gain": f"+{one.gain * 100:.1f} points",
            "goodput": percent(one.goodput),
            "share": max(0.0, one.gain / most),
            "colour": style_of("step").colour,
        }
        for one in view.gains.changes
    ]


# --- Tables ---------------------------------------------------------------------------------------


def _incident(view: Overview, one: Incident) -> dict[str, Any]:
    total = sum(ns for _, ns in one.phases) or 1
    at, bars = 0, []
    for kind, ns in one.phases:
        bars.append({"x": f"{at * 100 / total:.2f}", "width": f"{ns * 100 / total:.2f}",
                     "colour": style_of(kind).colour})  # fmt: skip
        at += ns
    return {
        "attempt": one.attempt,
        "when": duration(max(0, one.at_ns - view.origin_ns)),
        "date": moment(one.at_ns) if view.unix_clock else "",
        "at_us": (one.at_ns - view.course.start_ns) // 1000,
        "cause": one.cause,
        "lost": counted(one.lost_steps, "step") if one.lost_steps else MISSING,
        "down": "not over" if one.down_ns is None else duration(one.down_ns),
        "price": f"{one.chip_hours:,.2f}" if one.chip_hours >= 0.01 else f"{one.chip_hours:.2g}",
        "money": MISSING if one.money is None else money(one.money),
        "bars": bars,
        "phases": [
            (_phase_name(kind), _phase_words(kind), duration(ns)) for kind, ns in one.phases
        ],
        "exits": _exits(one),
        "resumed": one.resumed,
        "restart": one.restart,
        "last": "\n".join(one.traceback or one.lines),
        "rank": one.rank,
        "stacks": one.stacks,
        "is_whole": one.is_whole,
    }


def _phase_name(kind: str) -> str:
    """The step within a disruption is the one that ended it."""
    return "first step" if kind == "step" else clean(kind)


def _phase_words(kind: str) -> str:
    return "the first one that was completed again" if kind == "step" else clean(words_of(kind))


def _exits(one: Incident) -> str:
    """What the processes ended with, those that are alike together."""
    groups: dict[str, list[int]] = {}
    for rank, code in enumerate(one.exits):
        words = "was not seen to end" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            words = f"signal {-code}"
        groups.setdefault(words, []).append(rank)
    told = []
    for words, ranks in groups.items():
        who = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
        told.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {who}: {words}")
    return "; ".join(told)


def _pace(view: Overview) -> dict[str, Any] | None:
    if not view.steps.bins:
        return None
    return _still(step_times(view.course, view.steps, dated=view.unix_clock))


def _outliers(view: Overview) -> Table | None:
    steps = view.steps
    if not steps.outliers:
        return None
    rows = [
        (
            f"{one.step:,}",
            str(one.attempt),
            duration(max(0, one.end_ns - view.origin_ns)),
            duration(one.took_ns),
            f"{one.took_ns / max(1, steps.usual_ns):.1f} ×",
        )
        for one in steps.outliers
    ]
    return Table(("step", "attempt", "after", "took", "of the normal"), tuple(rows))


def _host(row: HostRow) -> dict[str, Any]:
    moved = MISSING if row.step_ago_ns is None else f"{duration(row.step_ago_ns)} ago"
    ahead = "the others wait for it" if row.is_straggler else duration(row.ahead_ns)
    return {
        "cells": (
            f"{row.host}, rank {row.rank}",
            row.phase,
            f"{row.step:,}",
            f"{row.behind:,}" if row.behind else MISSING,
            ahead,
            moved,
            f"{duration(row.alive_ago_ns)} ago",
        ),
        "straggler": row.is_straggler,
    }


def _tiers(view: Overview) -> list[tuple[str, ...]]:
    return [
        (
            tier.name,
            f"{tier.saves:,}" if tier.saves else MISSING,
            _or_none(tier.blocked_ns),
            _or_none(tier.took_ns),
            size(tier.nbytes) if tier.nbytes else MISSING,
            MISSING if tier.last_step is None else f"step {tier.last_step:,}",
            MISSING if tier.age_ns is None else f"{duration(tier.age_ns)} ago",
            f"{counted(tier.at_risk_steps, 'step')}, {duration(tier.at_risk_ns)}",
        )
        for tier in view.tiers
    ]


def _or_none(ns: int | None) -> str:
    return MISSING if ns is None else duration(ns)


def _when(view: Overview, at_ns: int) -> str:
    if view.unix_clock:
        return moment(at_ns)
    return f"{duration(max(0, at_ns - view.origin_ns))} after the request"
