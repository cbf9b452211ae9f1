"""What charts are put together from: lines with a legend, numbers under the pointer, marks, axes.

Each returns a layer or a channel of Altair's. Colours that follow the theme are left to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from holdfast.report.charts import altair
from holdfast.report.kinds import VERMILLION
from holdfast.report.words import percent

Row = Mapping[str, Any]
DASHES, SOLID = [5, 5], [1, 0]
BAR_PX, ROW_PX = 22, 34

_SECONDS_IN_WORDS = (
    "datum.value < 1 ? datum.value * 1000 + ' ms' : datum.value < 60 ? datum.value + ' s' : "
    "datum.value < 3600 ? datum.value / 60 + ' min' : "
    "datum.value < 86400 ? datum.value / 3600 + ' h' : datum.value / 86400 + ' d'"
)
_DAY_S = 86_400
# fmt: off
_ROUND_SECONDS = (
    0.001, 0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600,
    *(_DAY_S * 4**power for power in range(8)),
)
# fmt: on


Side = Literal["above", "right", "below left", "below right"]
_SIDES: dict[Side, dict[str, Any]] = {
    "above": {"dy": -14},
    "right": {"align": "left", "dx": 10, "dy": -8},
    "below left": {"align": "right", "dx": -8, "dy": 14},
    "below right": {"align": "left", "dx": 8, "dy": 14},
}


class ChartLine(NamedTuple):
    """A line of a chart: the column of its values, its name, colour and form."""

    column: str
    name: str
    colour: str
    dashed: bool = False


class Step(NamedTuple):
    """A loss of a waterfall: its name, its share of the whole, its colour."""

    name: str
    share: float
    colour: str


class ChartBar(NamedTuple):
    """A bar that is compared with others: its name, its length in any unit, words, its colour."""

    name: str
    value: float
    words: str
    colour: str


def chart(rows: Sequence[Row]) -> Any:
    """A chart of rows that stand in it."""
    alt = altair()
    return alt.Chart(alt.Data(values=list(rows)))


def lines(rows: Sequence[Row], x: Any, y: Any, series: Sequence[ChartLine]) -> Any:
    """A line for each series over the column `x`, named in the legend; the last lies on top."""
    alt = altair()
    long = [
        {"x": row["x"], "y": row[one.column], "what": one.name} for one in series for row in rows
    ]
    names = [one.name for one in series]
    colours = alt.Color("what:N").scale(domain=names, range=[one.colour for one in series])
    dashes = alt.StrokeDash("what:N").scale(
        domain=names, range=[DASHES if one.dashed else SOLID for one in series]
    )
    return chart(long).mark_line(clip=True).encode(x=x, y=y, color=colours, strokeDash=dashes)


def hover(rows: Sequence[Row], x: Any, tips: Sequence[tuple[str, str]]) -> Any:
    """A line at the row nearest to the pointer, and of that row the columns named in `tips`.

    `tips`: columns and what they are called, which becomes a part of an expression of Vega's: no
    words from outside. The rows' values may be any.
    """
    alt = altair()
    near = alt.selection_point(
        nearest=True, on="pointermove", clear="pointerout", encodings=["x"], empty=False
    )
    shown = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    tooltip = [alt.Tooltip(f"{column}:N", title=title) for column, title in tips]
    return chart(rows).mark_rule().encode(x=x, opacity=shown, tooltip=tooltip).add_params(near)


def marked(at: tuple[float, float], words: str, x: Any, side: Side = "above") -> Any:
    """A point worth knowing, with its words on a side of it where no line is."""
    data = chart([{"x": at[0], "y": at[1], "what": words}]).encode(x=x, y="y:Q")
    text = data.mark_text(**_SIDES[side]).encode(text="what:N")
    return data.mark_point(color=VERMILLION) + text


def waterfall(steps: Sequence[Step], whole: Step, rest: Step) -> Any:
    """From the whole, loss by loss, to the rest; shares are of the whole."""
    alt = altair()
    rows, left = [_bar(whole, 0.0, 1.0)], 1.0
    for step in steps:
        rows.append(_bar(step, max(0.0, left - step.share), left))
        left -= step.share
    rows.append(_bar(rest, 0.0, rest.share))
    base = chart(rows).encode(y=_names([row["what"] for row in rows]))
    bars = base.mark_bar(height=BAR_PX).encode(
        x=alt.X("from:Q", axis=None).scale(domain=[0, 1]),
        x2="to:Q",
        color=alt.Color("colour:N", scale=None),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("share:N")],
    )
    words = base.mark_text(align="left", dx=6).encode(x="to:Q", text="share:N")
    return (bars + words).properties(width="container", height=ROW_PX * len(rows))


def bars(of: Sequence[ChartBar]) -> Any:
    """Bars from nothing, one below the other, with their words beside them; names may be any."""
    alt = altair()
    rows = [{"what": b.name, "value": b.value, "words": b.words, "colour": b.colour} for b in of]
    base = chart(rows).encode(y=_names([b.name for b in of]))
    longest = max((bar.value for bar in of), default=0.0) or 1.0
    x = alt.X("value:Q", axis=None).scale(domain=[0, longest], nice=False)
    drawn = base.mark_bar(height=BAR_PX).encode(x=x, color=alt.Color("colour:N", scale=None))
    words = base.mark_text(align="left", dx=6).encode(x=x, text="words:N")
    return (drawn + words).properties(width="container", height=ROW_PX * len(rows))


def _names(names: Sequence[str]) -> Any:
    """Names of rows, from the top.

    In a scale's domain names are data; an order to sort by would be an expression of them.
    """
    y = altair().Y("what:N", sort=None, title=None).scale(domain=list(names))
    return y.axis(domain=False, ticks=False, labelLimit=200, labelFontSize=13)


def _bar(step: Step, start: float, end: float) -> dict[str, Any]:
    share = percent(step.share)
    return {"what": step.name, "from": start, "to": end, "share": share, "colour": step.colour}


def share_axis(domain: tuple[float, float] = (0.0, 1.0)) -> Any:
    """Shares upwards, as per cent."""
    form = ".0%" if domain[1] - domain[0] > 0.05 else ".1%"
    scale = altair().Y("y:Q", title=None).scale(domain=list(domain), nice=False)
    return scale.axis(tickCount=5, format=form)


def seconds_axis(title: str, low_s: float, high_s: float) -> Any:
    """Durations along the column `x`, on a log scale, with round ones as ticks."""
    scale = altair().X("x:Q", title=title).scale(type="log", domain=[low_s, high_s])
    ticks = [value_s for value_s in _ROUND_SECONDS if low_s <= value_s <= high_s]
    return scale.axis(values=ticks, labelExpr=_SECONDS_IN_WORDS, grid=False)
