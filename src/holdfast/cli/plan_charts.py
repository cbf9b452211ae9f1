"""The charts of a plan: where the time goes, and goodput against interval, scale and spares.

The numbers are those of `sim.plan` and `sim.plan_curves`; here they get axes, colours and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.cli.plan_scale import cost, scale
from holdfast.cli.plan_ways import ways
from holdfast.report.chart_parts import (
    ChartLine,
    Step,
    hover,
    lines,
    marked,
    seconds_axis,
    share_axis,
    waterfall,
)
from holdfast.report.charts import Figure, Table, altair, spec_of, thinned
from holdfast.report.kinds import BLUE, GREEN, GREY, style_of
from holdfast.report.words import percent
from holdfast.sim.durations import in_words
from holdfast.sim.plan import Plan
from holdfast.sim.plan_curves import Curves, IntervalCurve, SparesPoint

HEIGHT = 260
# Where the time goes, in the order of the waterfall: the plan's name for it, the kind of the ledger
# whose colour it has, and its words.
LOSSES = (
    ("reschedule", "reschedule", "waiting for hosts"),
    ("save", "save", "blocked by saves"),
    ("lost", "lost", "lost steps"),
    ("restart", "startup", "restarts"),
    ("hang", "hang", "hangs"),
)
IDLE = ("other", "other", "data and the like")  # as much at any scale


def figures_of(plan: Plan, curves: Curves) -> list[Figure]:
    """All charts of a plan, in the order in which a page shows them."""
    losses = [(name, words, style_of(kind).colour) for name, kind, words in LOSSES]
    found = [where_it_goes(plan), *(interval(curve) for curve in curves.intervals)]
    found += [scale(plan, curves.scale, HEIGHT), cost(plan, curves.cost, losses, HEIGHT)]
    if curves.spares:
        found.append(spares(plan, curves.spares))
    return [*found, ways(plan.buying)] if plan.buying is not None else found


def where_it_goes(plan: Plan) -> Figure:
    """From all time, loss by loss, to goodput."""
    steps = [
        Step(words, share, style_of(kind).colour)
        for name, kind, words in (*LOSSES, IDLE)
        if (share := getattr(plan.badput, name)) > 0
    ]
    rest = Step("goodput", plan.goodput, GREEN)
    drawn = waterfall(steps, Step("all time", 1.0, GREY), rest)
    return Figure(
        "waterfall",
        "Where the time goes",
        "Of all time, each kind of loss takes its share; what is left is kept training.",
        spec_of(drawn),
        Table(("what", "share"), tuple((s.name, percent(s.share)) for s in (*steps, rest))),
    )


def interval(curve: IntervalCurve) -> Figure:
    """Goodput against the interval of one tier, exact and to the first order, the best marked."""
    best, planned, is_durable = curve.best, curve.planned, curve.tier == "durable"
    rows = [
        {
            "x": point.interval_s,
            "exact": point.goodput,
            "first": point.first_order,
            "interval": in_words(point.interval_s),
            "exactly": percent(point.goodput),
            "formula": percent(point.first_order),
        }
        for point in curve.points
    ]
    low_s, high_s = curve.points[0].interval_s, curve.points[-1].interval_s
    x = seconds_axis(f"training between two {curve.tier} saves", low_s, high_s)
    series = [
        ChartLine("first", "first-order formula", GREY, dashed=True),
        ChartLine("exact", "exact", GREEN),
    ]
    drawn = lines(rows, x, share_axis(), series)
    tips = [("interval", "interval"), ("exactly", "exact"), ("formula", "first order")]
    drawn += hover(rows, x, tips)
    at_edge = best.interval_s < 4 * low_s  # where words above it would lie on the axis
    words = f"best: {in_words(best.interval_s)}"
    drawn += marked((best.interval_s, best.goodput), words, x, side="right" if at_edge else "above")
    said = (
        f"{'Saves' if is_durable else 'Copies'} too close together block training, too far apart "
        f"they lose it: every {in_words(best.interval_s)} keeps most, {percent(best.goodput)}."
    )
    if planned.interval_s != best.interval_s:
        words = f"planned: {in_words(planned.interval_s)}"
        drawn += marked((planned.interval_s, planned.goodput), words, x, side="right")
        said += f" The plan's {in_words(planned.interval_s)} keep {percent(planned.goodput)}."
    numbers = [(row["interval"], row["exactly"], row["formula"]) for row in thinned(rows)]
    return Figure(
        f"interval-{curve.tier}",
        "How often to save" if is_durable else "How often to copy to memory",
        said,
        spec_of(drawn.properties(width="container", height=HEIGHT)),
        Table(("interval", "exact", "first order"), tuple(numbers)),
    )


def spares(plan: Plan, points: Sequence[SparesPoint]) -> Figure:
    """Goodput against spares, and what is kept for each host paid for."""
    rows: list[dict[str, Any]] = [
        {
            "x": point.spares,
            "goodput": point.goodput,
            "paid": point.per_host_paid_for,
            "spares": f"{point.spares:,}",
            "kept": percent(point.goodput),
            "each": percent(point.per_host_paid_for),
        }
        for point in points
    ]
    x = altair().X("x:Q", title="spare hosts").axis(grid=False, tickMinStep=1)
    least = min(point.per_host_paid_for for point in points)
    most = max(point.goodput for point in points)
    room = max(0.002, (most - least) * 0.15)
    y = share_axis(domain=(max(0.0, least - room), min(1.0, most + room)))
    paid = ChartLine("paid", "for each host paid for", BLUE, dashed=True)
    drawn = lines(rows, x, y, [paid, ChartLine("goodput", "goodput", GREEN)])
    tips = [("spares", "spares"), ("kept", "goodput"), ("each", "for each host paid for")]
    drawn += hover(rows, x, tips)
    best = next(point for point in points if point.spares == plan.best_spares)
    at = (best.spares, best.per_host_paid_for)
    drawn += marked(at, f"best: {best.spares:,}", x, side="below right")
    return Figure(
        "spares",
        "How many spares",
        f"Without spares {percent(points[0].goodput)} are kept, with {best.spares:,} of them "
        f"{percent(best.goodput)}. An idle host is paid for too: {best.spares:,} keep most for "
        "each host paid for.",
        spec_of(drawn.properties(width="container", height=HEIGHT)),
        Table(
            ("spares", "goodput", "for each host paid for"),
            tuple((row["spares"], row["kept"], row["each"]) for row in thinned(rows)),
        ),
    )
