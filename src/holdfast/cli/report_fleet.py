"""`holdfast report --fleet`: all runs of a store together."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from holdfast import __version__
from holdfast.cli.door import console
from holdfast.cli.files import write_file
from holdfast.cli.moments import moment_ns
from holdfast.config import run_store, scratch_folder, summaries_folder
from holdfast.core.ledger.summary import Window, rolling
from holdfast.journal.store import RunStore

if TYPE_CHECKING:
    pass


def report_fleet(
    store: str | None,
    *,
    as_json: bool,
    window: tuple[str, int] | None,
    since: str | None,
    capacity: int | None,
    every_run: bool,
    without_stopped: bool = False,
    html: str | None = None,
    price_per_chip_hour: float | None = None,
) -> None:
    """Print it. `window`: the last so many ns and how that was written; `since`: a moment."""
    from holdfast.report.fleet import FleetReport, document, show
    from holdfast.runs.listing import RunList

    place = RunStore.at(run_store(store))
    now_ns = time.time_ns()
    windows = rolling(now_ns)
    chosen = windows[0]
    if window is not None or since is not None:
        chosen = _chosen(window, since, now_ns)
        windows = (*(w for w in windows if w.name != chosen.name), chosen)
    runs = RunList(
        place,
        cache=summaries_folder(),
        scratch=scratch_folder(),
        processes=len(os.sched_getaffinity(0)),
    )
    listing = runs.look(now_ns, windows)
    found = listing.runs
    if without_stopped:
        found = tuple(one.without_stopped() for one in found)
    report = FleetReport(
        place.shown,
        now_ns,
        found,
        windows,
        chosen.name,
        capacity,
        listing.problems,
        price_per_chip_hour,
    )
    if html is not None:
        from holdfast.report.fleet_page import fleet_page

        write_file(html, fleet_page(report, __version__).encode(), "the page")
    if as_json:
        json.dump(document(report), sys.stdout, indent=1, allow_nan=False)
        print()
    elif html is not None:
        return
    elif not listing.runs and not listing.problems:
        click.echo(f"{place.why_empty}; start a run: holdfast run -- python train.py")
    else:
        show(report, console(folded=False), every_run=every_run)


def _chosen(window: tuple[str, int] | None, since: str | None, now_ns: int) -> Window:
    if since is not None:
        return Window(f"since {since}", moment_ns(since, "--since"))
    words, window_ns = window or ("", 0)
    return Window(words, now_ns - window_ns)
