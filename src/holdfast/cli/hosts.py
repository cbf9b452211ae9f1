"""`holdfast hosts`: the hosts of a run, as its controller sees them."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

import click

from holdfast.cli.door import coloured_line
from holdfast.cli.ls import ago
from holdfast.cli.orders import known_order, order_lines, standing_json
from holdfast.cli.places import accept_option, open_run, store_option
from holdfast.core.durations import clock_words, in_words
from holdfast.core.hosts.placement import ranks_words
from holdfast.core.visible import clean
from holdfast.journal.hosts_table import ListedHost, read_hosts
from holdfast.journal.lease import LeaseState, view
from holdfast.journal.quarantine import put_in_quarantine, quarantined
from holdfast.journal.quarantine import release as release_host
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

HEADINGS = (
    "host", "state", "trains as", "ranks", "chips", "behind", "slice", "address", "clock",
    "last heard",
)  # fmt: skip
GAP = "   "
WATCH_S = 1.0
MOST_HOSTS = 1_000_000


@click.command(short_help="Show the hosts of RUN.")
@click.argument("run")
@store_option
@click.option(
    "--quarantine",
    metavar="HOST",
    type=click.IntRange(0, MOST_HOSTS - 1),
    help="Give host HOST no part any more: what it trains is saved first, a spare takes its place.",
)
@click.option("--reason", metavar="WORDS", default="asked for", help="Why, for people to read.")
@click.option(
    "--release",
    metavar="HOST",
    type=click.IntRange(0, MOST_HOSTS - 1),
    help="Host HOST may have a part again.",
)
@click.option(
    "--replace",
    metavar="NAME",
    help="Have the engine give another machine for the one of that name, as it names it.",
)
@accept_option
@click.option("--watch", is_flag=True, help="Again each second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def hosts(
    run: str,
    store: str | None,
    quarantine: int | None,
    reason: str,
    release: int | None,
    replace: str | None,
    accept_stored: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Show the hosts of RUN: which of them train, which wait, and when each was last heard.

    A host without a part is a spare. Of a run that is over it shows how they stood last.
    """
    folder = open_run(run, store)
    if replace is not None:
        engine, ordered = known_order(folder, accept_stored=accept_stored)
        click.echo(engine.replace(ordered, replace, reason))
        return
    if quarantine is not None or release is not None:
        _change(folder, quarantine, reason, release)
        return
    while True:
        _show(folder, as_json=as_json)
        if not watch:
            return
        time.sleep(WATCH_S)
        click.clear()


def _change(folder: RunFolder, quarantine: int | None, reason: str, release: int | None) -> None:
    if quarantine is not None:
        put_in_quarantine(folder, quarantine, reason)
        ends = f"`holdfast hosts {folder.name} --release {quarantine}` ends that"
        click.echo(f"Host {quarantine} of run {folder.name!r} goes into quarantine; {ends}")
    if release is not None:
        was_there = release_host(folder, release)
        how = "may have a part again" if was_there else "was not in quarantine"
        click.echo(f"Host {release} of run {folder.name!r} {how}")


def _show(folder: RunFolder, *, as_json: bool) -> None:
    refresh(folder.lease_dir)
    lease = view(folder)
    rows, kept = read_hosts(folder, lease.epoch), quarantined(folder)
    is_over = lease.state in (LeaseState.RELEASED, LeaseState.DEAD, LeaseState.FREE)
    if as_json:
        found = {
            "run": folder.name,
            "is_over": is_over,
            "hosts": [asdict(row) for row in rows or ()],
            "engine": standing_json(folder),
            "quarantine": [{"index": n} | asdict(one) for n, one in kept.items()],
        }
        json.dump(found, sys.stdout, indent=1)
        print()
        return
    now_unix_ns = time.time_ns()
    lines = order_lines(folder, now_unix_ns)
    if rows is None and lines:
        click.echo(f"no host of run {folder.name!r} has told of itself yet")
    elif rows is None:
        click.echo(f"run {folder.name!r} has one host, or no controller of it has told of others")
    else:
        _print(rows)
        if is_over:
            click.echo("nobody runs it now: that is how they stood last")
    for words in lines:
        click.echo(words)
    for index, one in kept.items():
        by = "the run itself" if one.is_automatic else clean(one.sender)
        since = f" {ago(one.sent_unix_ns, now_unix_ns)}" if one.sent_unix_ns is not None else ""
        click.echo(f"host {index} is in quarantine ({clean(one.reason)}), by {by}{since}")


def _print(rows: tuple[ListedHost, ...]) -> None:
    now_unix_ns = time.time_ns()
    table = [HEADINGS, *(_cells(row, now_unix_ns) for row in rows)]
    if all(row.chips is None for row in rows):
        at = HEADINGS.index("chips")
        table = [(*cells[:at], *cells[at + 1 :]) for cells in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        line = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        coloured_line(GAP.join(line).rstrip())


def _cells(row: ListedHost, now_unix_ns: int) -> tuple[str, ...]:
    part = "–" if row.trains_as is None else f"host {row.trains_as}"
    ranks = ranks_words(row.first_rank, row.last_rank)
    clock = clock_words(row.ahead_ns, row.error_ns)
    where = clean(row.slice) or "–", clean(row.address) or "–"
    heard = ago(row.heard_unix_ns, now_unix_ns)
    behind = _behind(row.behind_ns, row.step_ns)
    chips = "–" if row.chips is None else f"{row.chips:,}"
    return str(row.index), clean(row.state), part, ranks, chips, behind, *where, clock, heard


def _behind(behind_ns: int | None, step_ns: int | None) -> str:
    """How far behind the median host, of each step."""
    if behind_ns is None or not step_ns:
        return "–"
    return f"{in_words(behind_ns)} ({round(100 * behind_ns / step_ns)} %)"
