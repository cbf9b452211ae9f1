"""A fleet's report as one HTML page: the tables of the screen, with every run."""

from __future__ import annotations

from holdfast.report.fleet import FleetReport, headline, notes, tables
from holdfast.report.page import still_page
from holdfast.report.words import moment

MOST_RUNS = 2_000


def fleet_page(fleet: FleetReport, version: str) -> str:
    """The page; raises ConfigurationError where the extra `dashboard` is not installed."""
    return still_page(
        "fleet.html",
        [],
        {},
        title=headline(fleet),
        facts=f"As it was at {moment(fleet.now_ns)}.",
        tables=list(tables(fleet, MOST_RUNS)),
        notes=notes(fleet),
        made_by=f"Made by holdfast report --fleet, version {version}. This file is whole: it "
        "loads nothing, and sends nothing.",
    )
