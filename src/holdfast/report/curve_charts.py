"""Curves drawn: a number over the run's steps, those that were lost in grey."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from holdfast.core.visible import clean
from holdfast.report.chart_parts import chart
from holdfast.report.charts import Figure, Table, altair, spec_of
from holdfast.report.charts import thinned as evenly
from holdfast.report.kinds import BLUE, GREY, VERMILLION
from holdfast.report.words import counted
from holdfast.runs.curves import Curve, Points, thinned

CURVE_PX = 150
DRAWN_POINTS = 400  # more are narrower than the pixels


def curve_figure(curve: Curve, number: int) -> Figure:
    """One number over its steps; `number` tells its figure from others on the page."""
    alt = altair()
    steps = [points.step for points in (curve.kept, *curve.lost) if len(points)]
    low, high = int(min(one[0] for one in steps)), int(max(one[-1] for one in steps))
    x = alt.X("step:Q", title="step").scale(domain=[low, max(high, low + 1)], nice=False)
    x = x.axis(grid=False, tickCount=6, format="~s")
    y = alt.Y("value:Q", title=None).scale(zero=False).axis(tickCount=4, format="~g")
    layers = []
    if lost := [row for n, one in enumerate(curve.lost) for row in _rows(one, n)]:
        grey = chart(lost).mark_line(color=GREY, strokeWidth=6, opacity=0.6)  # seen under the line
        layers.append(grey.encode(x=x, y=y, detail="part:N"))
    kept = list(_rows(curve.kept, 0))
    layers.append(chart(kept).mark_line(color=BLUE, point=len(kept) == 1).encode(x=x, y=y))
    if unusual := [{"step": step} for step in _unusual(curve.kept)]:
        marks = chart(unusual).mark_point(shape="cross", color=VERMILLION)
        layers.append(marks.encode(x=x, y=alt.value(4)))
    drawn = alt.layer(*layers).properties(width="container", height=CURVE_PX)
    return Figure(
        f"metric-{number}",
        clean(curve.name),
        _in_words(curve),
        spec_of(drawn),
        Table(("step", "value"), tuple(_numbers(curve.kept))),
    )


def _rows(points: Points, part: int) -> Iterator[dict[str, Any]]:
    """What is no finite number breaks the line."""
    shown = thinned(points, DRAWN_POINTS)
    for step, value in zip(shown.step.tolist(), shown.value.tolist(), strict=True):
        yield {"step": step, "value": value if np.isfinite(value) else None, "part": part}


def _unusual(points: Points) -> list[int]:
    steps: list[int] = points.step[~points.finite].tolist()
    return evenly(steps, DRAWN_POINTS) if steps else []


def _numbers(points: Points) -> Iterator[tuple[str, str]]:
    rows = list(zip(points.step.tolist(), points.value.tolist(), strict=True))
    for step, value in evenly(rows) if rows else ():
        yield f"{step:,}", number(value)


def number(value: float) -> str:
    """As people read it; nan and inf as what they are."""
    return f"{value:.6g}"


def _in_words(curve: Curve) -> str:
    kept = curve.kept
    if not len(kept):
        return "All steps of which it was reported were lost."
    newest = f"{number(float(kept.value[-1]))} at step {int(kept.step[-1]):,}"
    finite = kept.value[kept.finite]
    if len(finite) > 1:
        newest += f"; between {number(float(finite.min()))} and {number(float(finite.max()))}"
    unusual = len(kept) - len(finite)
    if unusual:
        first = int(kept.step[~kept.finite][0])
        newest += (
            f"; {counted(unusual, 'value')} (crosses), the first at step {first:,}, "
            f"{'is' if unusual == 1 else 'are'} no finite number"
        )
    lost = sum(map(len, curve.lost))
    if lost:
        newest += f"; {counted(lost, 'value')} (grey) of steps that were lost"
    return f"{newest}."
