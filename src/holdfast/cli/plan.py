"""`holdfast plan`: what goodput to expect of a run, and what would raise it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.door import console
from holdfast.cli.files import write_file
from holdfast.cli.parameters import DRAWN, asked, parameters
from holdfast.errors import ConfigurationError
from holdfast.sim.buying import MOST_WAYS, Way, ways_of_flags
from holdfast.sim.plan_input import BUY, Question, question_of

if TYPE_CHECKING:
    from holdfast.sim.plan import Plan


@click.command()
@parameters
@click.option(
    "--buy",
    metavar="NAME:KEY=VALUE,...",
    multiple=True,
    help="A way to buy the machines, as in spot:price=2.1,interruptions=30,provision=10min; "
    "several are weighed against one another.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--html", metavar="FILE", help="Write a page with the curves too.")
@click.option("--svg", metavar="FILE", help="Draw the curves into a picture too.")
@click.option("--png", metavar="FILE", help="The same as PNG.")
def plan(
    file: str | None,
    from_run: str | None,
    store: str | None,
    buy: tuple[str, ...],
    as_json: bool,
    html: str | None,
    svg: str | None,
    png: str | None,
    **flags: object,
) -> None:
    """Say what goodput to expect of a run, how often to save, and what would raise it.

    Needs --mtbf, or --failures-per-1000-node-days and --hosts, or a run that has recorded how it
    fails (--from-run); all else has a default. A TIME is in seconds, or has a unit: 90s, 5min, 2h,
    54d. Nothing is started. How to read the answer, and how it is computed: docs/how-to/plan.md and
    docs/explanation/planning.md.
    """
    from holdfast.sim.plan import plan as answer

    given = asked(file, from_run, store, flags)
    ways = {BUY: _ways(given.values.get(BUY, {}), buy)}
    question = question_of(given.values | ways)
    drawn = [question_of(one) for one in given.drawn(DRAWN)]
    found = answer(question, drawn, given.fitted, given.assumed)
    if html is not None:
        from holdfast.cli.plan_page import page_of

        write_file(html, page_of(found, question, given.given).encode(), "the page")
    if svg is not None or png is not None:
        _draw(found, question, svg, png)
    if as_json:
        json.dump(found.to_json(), sys.stdout, indent=1, allow_nan=False)
        print()
        return
    from holdfast.cli.plan_screen import show

    show(found, console(folded=False))


def _ways(of_file: dict[str, Way], flags: tuple[str, ...]) -> dict[str, Way]:
    ways = of_file | ways_of_flags(flags)
    if len(ways) > MOST_WAYS:
        raise ConfigurationError(f"{len(ways)} ways to buy are too many: give {MOST_WAYS} at most")
    return ways


def _draw(plan: Plan, question: Question, svg: str | None, png: str | None) -> None:
    from holdfast.cli.plan_page import picture_of
    from holdfast.report.charts import png as png_of

    picture = picture_of(plan, question)
    if svg is not None:
        write_file(svg, picture.encode(), "the picture")
    if png is not None:
        write_file(png, png_of(picture), "the picture")
