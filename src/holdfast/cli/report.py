"""`holdfast report`: a run's goodput, what it lost, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.door import console
from holdfast.cli.files import write_file
from holdfast.cli.moments import NS_PER_S, moment_ns, number, window_ns
from holdfast.cli.places import open_run, store_option
from holdfast.cli.prices import price_of, price_option
from holdfast.errors import ConfigurationError, HistoryError

if TYPE_CHECKING:
    from holdfast.cli.report_page import FindingsSource
    from holdfast.report.findings import (
        Findings,
    )


@click.command()
@click.argument("run", required=False)
@store_option
@click.option(
    "--history",
    metavar="FILE",
    help="Report on a history file instead of a run; - reads standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--window",
    "--last",
    "window",
    metavar="TIME",
    help="Only the last so many seconds, or 90s, 5min, 2h, 7d.",
)
@click.option(
    "--since", metavar="TIME", help="Only from then on: an ISO 8601 time, or unix seconds."
)
@click.option(
    "--fleet", is_flag=True, help="All runs of a store together; RUN is then the store, if named."
)
@click.option(
    "--capacity",
    type=click.IntRange(min=1),
    metavar="CHIPS",
    help="With --fleet: all chips that there are, those that no run asked for too.",
)
@click.option(
    "--now",
    metavar="T",
    help="As it stood at T: seconds on the history's clock, for a run since its request; "
    "for a run also an ISO 8601 time.",
)
@click.option(
    "--all",
    "every_story",
    is_flag=True,
    help="Tell the story of every disruption, or of a fleet every run.",
)
@click.option(
    "--without-stopped",
    is_flag=True,
    help="Leave the time out in which a person kept a run stopped.",
)
@click.option("--html", metavar="FILE", help="Write a page with everything that is known of it.")
@click.option("--svg", metavar="FILE", help="Draw the charts into a picture.")
@click.option("--png", metavar="FILE", help="The same as PNG.")
@click.option("--picture", metavar="FILE", help="Draw this screen into an SVG picture.")
@price_option
def report(
    run: str | None,
    store: str | None,
    history: str | None,
    as_json: bool,
    window: str | None,
    since: str | None,
    fleet: bool,
    capacity: int | None,
    now: str | None,
    every_story: bool,
    without_stopped: bool,
    html: str | None,
    svg: str | None,
    png: str | None,
    picture: str | None,
    price_per_chip_hour: str | None,
) -> None:
    """Show the goodput of RUN, what it lost, and why.

    Reads what was recorded and changes nothing; the run may be under way. The JSON is described in
    docs/reference/report-json.md, that of --fleet in docs/reference/fleet-json.md, the history
    format in docs/reference/history.md.
    """
    context = click.get_current_context()
    if window is not None and since is not None:
        raise click.UsageError("give --last or --since, not both", context)
    last = None if window is None else (window, window_ns(window))
    if fleet:
        if history is not None or now is not None or (run and store):
            raise click.UsageError("--fleet takes a store, and neither history nor now", context)
        if any((svg, png, picture)):
            raise click.UsageError("a picture is of one run; of a fleet there is --html", context)
        from holdfast.cli.report_fleet import report_fleet

        report_fleet(
            run or store,
            as_json=as_json,
            window=last,
            since=since,
            capacity=capacity,
            every_run=every_story,
            without_stopped=without_stopped,
            html=html,
            price_per_chip_hour=price_of(price_per_chip_hour),
        )
        return
    if capacity is not None:
        raise click.UsageError("--capacity is for --fleet", context)
    if (run is None) == (history is None):
        words = "or give --fleet for all runs" if run is None else "not both"
        raise click.UsageError(f"name a run, or a file with --history, {words}", context)
    if since is not None and history is not None:
        raise click.UsageError("a history has a clock of its own: give --window", context)
    last_ns = None if last is None else last[1]
    price = price_of(price_per_chip_hour)
    is_page = html is not None or svg is not None or png is not None
    if is_page and (last_ns is not None or since is not None or without_stopped):
        raise click.UsageError(
            "a page shows the whole run: ask for it without --last, --since and --without-stopped",
            context,
        )
    if history is not None:
        findings, document, source = _of_history(history, now, last_ns, without_stopped)
    else:
        findings, document, source = _of_run(str(run), store, now, last_ns, since, without_stopped)
    from holdfast.report.findings import nearer

    near = nearer(findings, Path.cwd())
    if is_page:
        from holdfast.cli.report_page import ENOUGH, gains_of, look, write

        gains = None
        if source.gathered is not None and len(near.account.disruptions) >= ENOUGH:
            gains = gains_of(source.gathered())
        write(look(near, source, price, gains), near, html, svg, png)
    if picture is not None:
        _draw(near, picture)
    if as_json:
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        print()
    elif not is_page and picture is None:
        _show(near, every_story)


def _of_history(
    path: str, now: str | None, window_ns: int | None, without_stopped: bool
) -> tuple[Findings, Any, FindingsSource]:
    """What a history file says; `now` is on its own clock."""
    from holdfast.cli.parameters import OF_A_FILE
    from holdfast.cli.report_page import FindingsSource
    from holdfast.core.ledger.facts import RunFact
    from holdfast.core.ledger.incremental import Ledger
    from holdfast.journal.gathered import gathered
    from holdfast.journal.history_file import read_history
    from holdfast.report.findings import Findings

    try:
        history = read_history("/dev/stdin" if path == "-" else path)
    except HistoryError as error:
        where = "standard input" if path == "-" else path
        raise ConfigurationError(f"{where} is not a history: {error}") from None
    ledger = Ledger()
    ledger.add_history(history)
    now_ns = None if now is None else _clock_ns(now)
    account = ledger.account(now_ns, window_ns)
    account = account.without_stopped() if without_stopped else account
    run = next(f for f in history.facts if isinstance(f, RunFact))
    source = FindingsSource(
        ledger, now_ns, gathered=(lambda: gathered(ledger)) if path.endswith(OF_A_FILE) else None
    )
    findings = Findings(account, requested_ns=run.requested_ns, notes=run.notes)
    return findings, account.to_json(), source


def _of_run(
    name: str,
    store: str | None,
    now: str | None,
    window_ns: int | None,
    since: str | None,
    without_stopped: bool,
) -> tuple[Findings, Any, FindingsSource]:
    """What a run's store says; the run's clock counts unix nanoseconds, `now` from its request."""
    from holdfast.cli.report_page import source_of
    from holdfast.journal.live import live_journals
    from holdfast.journal.recorded import load_run
    from holdfast.report.document import document
    from holdfast.report.of_run import findings_of
    from holdfast.report.words import iso

    folder = open_run(name, store)
    recorded = load_run(folder.path, live_journals(folder))
    now_ns = recorded.asked_ns
    if now is not None:
        now_ns = _run_clock_ns(now, recorded.facts.requested_ns or 0)
    account = recorded.account(now_ns, window_ns)
    if since is not None:
        from_ns = moment_ns(since, "--since")
        if from_ns >= account.end_ns:
            raise ConfigurationError(
                f"--since {since}: the run's time line is over by then: it ends at "
                f"{iso(account.end_ns)}"
            )
        account = recorded.account(now_ns, account.end_ns - from_ns)
    findings = findings_of(folder, recorded, account)
    if without_stopped:
        findings = findings.without_stopped()
    return findings, document(findings), source_of(recorded, now_ns, findings, store)


def _show(findings: Findings, every_story: bool) -> None:
    from holdfast.report.terminal import show

    # Into a pipe, lines are for grep: never folded.
    folded = sys.stdout.isatty()
    show(findings, console(folded=False), every_story=every_story, folded=folded)


def _draw(findings: Findings, path: str) -> None:
    from holdfast.report.picture import svg

    drawn = svg(findings, f"holdfast report {findings.account.name}")
    write_file(path, drawn.encode(), "the picture")


def _clock_ns(text: str) -> int:
    seconds = number(text)
    if seconds is None:
        raise ConfigurationError(f"--now {text}: give seconds on the history's clock")
    return round(seconds * NS_PER_S)


def _run_clock_ns(text: str, requested_ns: int) -> int:
    """A time on a run's clock: seconds count from its request, dates stand for themselves."""
    seconds = number(text)
    if seconds is not None:
        return requested_ns + round(seconds * NS_PER_S)
    try:
        return moment_ns(text, "--now")
    except ConfigurationError:
        raise ConfigurationError(
            f"--now {text}: give seconds since the run's request, or a time like "
            "2026-01-31T18:00:00Z"
        ) from None
