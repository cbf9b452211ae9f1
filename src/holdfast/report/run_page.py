"""A run's page: its sections as HTML, each by itself, and the whole file.

A live page sends the same sections again when they change, and the same data for the time line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from holdfast.core.visible import clean
from holdfast.report.charts import Figure
from holdfast.report.curve_charts import curve_figure, number
from holdfast.report.findings import Checkpoint
from holdfast.report.overview import Overview
from holdfast.report.page import environment, script, still_page
from holdfast.report.profile_charts import Roof, devices, operations, roofline, step_parts
from holdfast.report.run_charts import lost_time, step_times, time_line
from holdfast.report.run_data import course_data
from holdfast.report.run_tables import first_start, host, incident, members, outliers, tiers
from holdfast.report.run_top import broke, cards, gains, goodput, head
from holdfast.report.still import HALF_PX, NARROW_PX, WIDE_PX, drawn
from holdfast.report.stories import by_interest
from holdfast.report.words import SHARED_DOWNTIME, counted, duration, moment

SECTIONS = ("head", "notes", "now", "goodput", "members", "badput", "gains", "incidents", "pace",
            "profile", "metrics", "tiers", "hosts")  # fmt: skip
CHARTS = ("badput", "pace", "profile", "metrics")
NOTES, MOST_NOTES = 4, 100  # in view, and in the page
STILL_PIECES = 120  # of the time line for those who have no script
ROWS = 600  # disruptions in the page
NEWEST = 20  # disruptions that are in view; the others open
DRAWN_CURVES = 8  # of the script's own numbers; the others are a table


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
    parts = environment().get_template("run_parts.html").module
    return {
        name: str(getattr(parts, name)(**_VALUES[name](view))).strip()
        for name in SECTIONS
        if name not in without
    }


def timeline_of(view: Overview) -> dict[str, Any]:
    """The time line as it is drawn for those who have no script, with its words and numbers."""
    return _still(time_line(view.course, view.account, STILL_PIECES, dated=view.unix_clock))


def _incidents(view: Overview) -> dict[str, Any]:
    shown = sorted(by_interest(view.incidents, ROWS), reverse=True)
    left = len(view.incidents) - len(shown)
    return {
        "rows": [incident(view, view.incidents[place]) for place in shown],
        "left": f"{counted(left, 'other disruption')}, cheaper and older" if left else "",
        "priced": view.price_per_chip_hour is not None,
        "newest": NEWEST,
        "shared": SHARED_DOWNTIME if view.account.has_shared_downtime else "",
        "start": first_start(view),
        "plain": [*view.requeues, *view.rollbacks],
    }


def _pace(view: Overview) -> dict[str, Any]:
    figure = None
    if view.steps.bins:
        figure = _still(step_times(view.course, view.steps, dated=view.unix_clock))
    return {"figure": figure, "outliers": outliers(view)}


def _profile(view: Overview) -> dict[str, Any]:
    found, roof = view.profile, Roof.of(view.basis)
    if found is None:
        return {"steps": None, "each": None, "roof": None, "rows": None, "words": ""}
    under = roofline(found, roof)
    return {
        "steps": _still(step_parts(found)),
        "each": devices(found),
        "roof": None if under is None else _still(under),
        "rows": operations(found, roof),
        "words": roof.words,
    }


def _metrics(view: Overview) -> dict[str, Any]:
    """Those that were told first are drawn."""
    shown, listed = view.curves[:DRAWN_CURVES], view.curves[DRAWN_CURVES:]
    figures = [_still(curve_figure(one, n), HALF_PX) for n, one in enumerate(shown)]
    rows = [
        (clean(one.name), f"{one.kept.step[-1]:,}", number(float(one.kept.value[-1])))
        for one in listed
        if len(one.kept)
    ]
    return {"figures": figures, "rows": rows}


_VALUES: Mapping[str, Callable[[Overview], dict[str, Any]]] = {
    "head": head,
    "notes": lambda view: {"shown": view.notes[:NOTES], "more": view.notes[NOTES:MOST_NOTES]},
    "now": lambda view: {
        "advice": view.advice,
        "cards": list(cards(view)),
        "broke": broke(view),
    },
    "goodput": goodput,
    "members": lambda view: members(view.members),
    "badput": lambda view: {"figure": _still(lost_time(view.account), HALF_PX)},
    "gains": lambda view: {"gains": view.gains, "rows": gains(view)},
    "incidents": _incidents,
    "pace": _pace,
    "profile": _profile,
    "metrics": _metrics,
    "tiers": lambda view: {
        "rows": tiers(view),
        "saving": view.saving,
        "compiled": view.compilations,
    },
    "hosts": lambda view: {"rows": [host(row) for row in view.hosts]},
}


def figures_of(view: Overview) -> list[Figure]:
    """All charts, for a picture."""
    found = [time_line(view.course, view.account, dated=view.unix_clock), lost_time(view.account)]
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


def _when(view: Overview, at_ns: int) -> str:
    if view.unix_clock:
        return moment(at_ns)
    return f"{duration(max(0, at_ns - view.origin_ns))} after the request"
