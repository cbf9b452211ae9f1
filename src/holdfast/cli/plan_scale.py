"""The charts of a plan's scale: goodput on more hosts and fewer, and what failures cost there.

A plan that does not say how many hosts there are is drawn in multiples of its own job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.report.chart_parts import ChartLine, chart, hover, lines, marked, share_axis
from holdfast.report.charts import Figure, Table, altair, spec_of, thinned
from holdfast.report.kinds import GREEN, GREY
from holdfast.report.words import percent
from holdfast.sim.durations import in_words
from holdfast.sim.plan import Plan
from holdfast.sim.plan_curves import CostPoint, ScalePoint

QUADRATIC = 3.0  # times the cost at twice the scale: from there on it is nearly a square
_Point = TypeVar("_Point", ScalePoint, CostPoint)


def scale(plan: Plan, points: Sequence[ScalePoint], height: int) -> Figure:
    """Goodput against the number of hosts, on a log axis."""
    title, every = _title(plan), in_words(plan.interval_s)
    rows = [
        {
            "x": _size(plan, point),
            "best": point.goodput,
            "same": point.goodput_as_planned,
            "size": _size_in_words(plan, point),
            "at_best": percent(point.goodput),
            "as_planned": percent(point.goodput_as_planned),
        }
        for point in points
    ]
    x = _log_axis(plan, _size(plan, points[0]), _size(plan, points[-1]))
    planned = ChartLine("same", f"every {every}, as planned", GREY, dashed=True)
    drawn = lines(
        rows, x, share_axis(), [planned, ChartLine("best", "best intervals there", GREEN)]
    )
    tips = [("size", title), ("at_best", "best intervals"), ("as_planned", f"every {every}")]
    drawn += hover(rows, x, tips)
    here, double = _nearest(points, 1.0), _nearest(points, 2.0)
    drawn += marked((_size(plan, here), here.goodput_as_planned), "this plan", x, side="below left")
    return Figure(
        "scale",
        "The same job on more hosts",
        "Each host fails as often, so more of them fail more often: on twice the hosts "
        f"{percent(double.goodput)} are kept, with saves made as often as is best there.",
        spec_of(drawn.properties(width="container", height=height)),
        Table(
            (title, "best intervals", f"every {every}"),
            tuple((row["size"], row["at_best"], row["as_planned"]) for row in thinned(rows)),
        ),
    )


def cost(
    plan: Plan, points: Sequence[CostPoint], losses: Sequence[tuple[str, str, str]], height: int
) -> Figure:
    """Chip-hours lost in a day, kind upon kind, against the number of hosts, on linear axes.

    `losses`: of each kind the name in a point, words, and the colour.
    """
    alt, title = altair(), _title(plan)
    kinds = [one for one in losses if any(getattr(point, one[0]) for point in points)]
    names = [words for _, words, _ in kinds]
    x = _linear_axis(plan, _size(plan, points[-1]))
    long = [
        {"x": _size(plan, point), "hours": getattr(point, name), "what": words, "order": -place}
        for point in points
        for place, (name, words, _) in enumerate(kinds)
    ]
    y = alt.Y("hours:Q", title=f"{_unit(plan)} lost in a day", stack="zero")
    colours = alt.Color("what:N").scale(domain=names, range=[c for *_, c in kinds])
    drawn = (
        chart(long)
        .mark_area(opacity=0.92)
        .encode(
            x=x,
            y=y.axis(tickCount=5, labelExpr="format(datum.value, '~s')"),
            color=colours,
            order="order:Q",
        )
    )
    now, double = _nearest(points, 1.0), _nearest(points, 2.0)
    here = chart([{"x": _size(plan, now), "what": "this plan"}]).encode(x=x)
    drawn += here.mark_rule(strokeDash=[4, 4])
    drawn += here.mark_text(align="left", dx=6, y=10).encode(text="what:N")
    rows = [
        {
            "x": _size(plan, point),
            "size": _size_in_words(plan, point),
            **{name: _hours(plan, getattr(point, name)) for name, *_ in kinds},
        }
        for point in points
    ]
    drawn += hover(rows, x, [("size", title), *((name, words) for name, words, _ in kinds)])
    times = double.by_failures / now.by_failures if now.by_failures else 0.0
    heads = (title, "by failures", "by saves")
    return Figure(
        "cost",
        _cost_title(times),
        "Twice the hosts fail twice as often, and each failure stops twice as many chips: "
        f"{_hours(plan, now.by_failures)} a day become {_hours(plan, double.by_failures)}, "
        f"{times:.1f} times as many. {_cost_end(times, now.reschedule > 0)}",
        spec_of(drawn.properties(width="container", height=height)),
        Table(
            heads,
            tuple(
                (_size_in_words(plan, p), _hours(plan, p.by_failures), _hours(plan, p.save))
                for p in thinned(points[1:])
            ),
        ),
    )


def _cost_title(times: float) -> str:
    rest = " grows with the square of the scale" if times >= QUADRATIC else ""
    return f"What failures cost{rest}"


def _cost_end(times: float, are_waited_for: bool) -> str:
    """Why it is not four times exactly."""
    if times >= QUADRATIC:
        return "Saves are as far apart as in this plan; what they block grows with the hosts alone."
    spares = "a larger pool of spares is worth more, and " if are_waited_for else ""
    return f"It is not four times, since {spares}what is lost cannot be lost twice."


def _size(plan: Plan, point: ScalePoint | CostPoint) -> float:
    return point.hosts if plan.hosts > 1 else point.factor


def _title(plan: Plan) -> str:
    return "hosts" if plan.hosts > 1 else "times the size of this job"


def _size_in_words(plan: Plan, point: ScalePoint | CostPoint) -> str:
    return f"{point.hosts:,.0f}" if plan.hosts > 1 else f"{point.factor:.3g}"


def _unit(plan: Plan) -> str:
    return "chip-hours" if plan.chips > 1 else "hours of this job"


def _hours(plan: Plan, hours: float) -> str:
    number = f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
    return f"{number} {_unit(plan)}"


def _log_axis(plan: Plan, low: float, high: float) -> Any:
    """Sizes, with a tick at the plan's own, and one at four times and a quarter of each."""
    own = plan.hosts if plan.hosts > 1 else 1.0
    ticks = [own * 4.0**power for power in range(-4, 5)]
    x = altair().X("x:Q", title=_title(plan)).scale(type="log", domain=[low, high])
    words = "format(datum.value, ',.0f')"
    if plan.hosts == 1:
        words = (
            "datum.value < 1 ? '1/' + format(1 / datum.value, '.0f') : format(datum.value, '~g')"
        )
    return x.axis(values=[t for t in ticks if low <= t <= high], labelExpr=words, grid=False)


def _linear_axis(plan: Plan, high: float) -> Any:
    x = altair().X("x:Q", title=_title(plan)).scale(domain=[0, high], nice=False)
    return x.axis(grid=False, tickCount=6, format=",.0f" if plan.hosts > 1 else "~g")


def _nearest(points: Sequence[_Point], factor: float) -> _Point:
    return min(points, key=lambda point: abs(point.factor - factor))
