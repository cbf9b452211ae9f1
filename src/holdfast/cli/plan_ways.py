"""The chart of the ways to buy: what an hour of useful work of a chip costs."""

from __future__ import annotations

from holdfast.report.chart_parts import ChartBar, bars
from holdfast.report.charts import Figure, Table, spec_of
from holdfast.report.kinds import BLUE, GREEN
from holdfast.report.words import MISSING, percent
from holdfast.sim.durations import in_words
from holdfast.sim.plan_buying import Bought, Buying

HEADS = (
    "way", "price", "scheduling", "runtime", "goodput", "takes", "costs", "per useful chip-hour"
)  # fmt: skip


def ways(buying: Buying) -> Figure:
    """Money for a useful chip-hour, way by way, and how long the same work takes."""
    done = [
        ChartBar(way.name, way.money_per_useful_chip_hour, _words(way), _colour(way, buying))
        for way in buying.ways
        if way.money_per_useful_chip_hour is not None
    ]
    said = ["What an hour of useful work of a chip costs, and how long all of it takes."]
    return Figure(
        "ways",
        "How to buy the machines",
        " ".join([*said, *buying.why]),
        spec_of(bars(done)),
        Table(HEADS, tuple(_row(way) for way in buying.ways)),
    )


def _colour(way: Bought, buying: Buying) -> str:
    return GREEN if way.name == buying.cheapest else BLUE


def _words(way: Bought) -> str:
    takes = MISSING if way.wall_s is None else in_words(way.wall_s)
    return f"{way.money_per_useful_chip_hour:.3g} in {takes}"


def _row(way: Bought) -> tuple[str, ...]:
    shares = (way.scheduling_goodput, way.runtime_goodput, way.goodput)
    if way.wall_s is None or way.money is None:
        return (way.name, f"{way.price:g}", *(MISSING for _ in shares), "never", MISSING, MISSING)
    return (
        way.name,
        f"{way.price:g}",
        *(percent(share) for share in shares),
        in_words(way.wall_s),
        f"{way.money:,.0f}",
        f"{way.money_per_useful_chip_hour:.3g}",
    )
