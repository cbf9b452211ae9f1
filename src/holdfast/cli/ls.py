"""`holdfast ls`: the runs of a store, and how each is doing."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click

from holdfast.cli.door import coloured_line, say
from holdfast.cli.orders import asked_of
from holdfast.cli.places import store_option
from holdfast.config import run_store
from holdfast.core.redact import redacted_text
from holdfast.core.run.rollback import Wish, prevailing, way_back
from holdfast.core.visible import clean
from holdfast.errors import HoldfastError
from holdfast.journal.attempts import Attempts, attempts, lineage
from holdfast.journal.lease import LeaseState, LeaseView, view
from holdfast.journal.live import tells_held
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder, RunStore
from holdfast.report.words import shortened
from holdfast.runs.state import NEW, is_held, last_sign_ns, shown, state_of
from holdfast.snapshot.sets import newest_sound

HEADINGS = ("run", "state", "saved step", "attempts", "last sign of life", "")
SIDES = "<<>>>"  # on which a column's cells are; the last has what room is left
GAP = 3
LEAST_WHY = 20
STYLES: dict[str, dict[str, Any]] = {
    "running": {"fg": "green", "bold": True},
    "silent": {"fg": "yellow"},
    "interrupted": {"fg": "yellow"},
    "failed": {"fg": "red", "bold": True},
    "done": {"fg": "green"},
}


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run of the list.

    `state` is running, silent (its supervisor, on another host, shows no life), new, done, stopped,
    failed, or interrupted (nobody was left to record its end).
    """

    name: str
    state: str
    why: str
    saved_step: int | None
    attempts: int
    seen_unix_ns: int | None
    holder: str | None


@click.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def ls(store: str | None, as_json: bool) -> None:
    """List the runs of a store."""
    place = RunStore.at(run_store(store))
    folders, damage = place.runs()
    now_unix_ns = time.time_ns()
    rows: list[ListedRun] = []
    problems = list(damage)
    for row, trouble in place.each(partial(look_at, now_unix_ns=now_unix_ns), folders):
        rows.append(row)
        problems += trouble
    if as_json:
        found = {"store": place.shown, "runs": [asdict(row) for row in rows]}
        json.dump(found | {"problems": problems}, sys.stdout, indent=1)
        print()
    elif rows:
        _show(rows, now_unix_ns)
    else:
        click.echo(f"{place.why_empty}; start a run: holdfast run -- python train.py")
    if not as_json:
        for words in problems:
            say(words)


def look_at(folder: RunFolder, now_unix_ns: int) -> tuple[ListedRun, list[str]]:
    """A run's row, and a sentence for all of it that could not be read."""
    lease = LeaseView(LeaseState.FREE, 0, None, None)
    known = Attempts((), ())
    wish: Wish | None = None
    problems: list[str] = []
    saved_step = None
    try:
        lease = view(folder)
        known = attempts(folder)
        wish, _ = prevailing(standing_wishes(folder, known))
        newest_set, damaged_sets = newest_sound(folder.ckpt_dir, lineage(known.records))
        saved_step = None if newest_set is None else newest_set.step
        problems += known.damage
        problems += [
            f"run {folder.name!r}: checkpoint {name}: {why}" for name, why in damaged_sets.items()
        ]
    except HoldfastError as error:
        problems.append(f"run {folder.name!r}: {error}")
    running = is_held(lease)
    is_finished = running and tells_held(folder)
    state, why = state_of(lease, known.newest, now_unix_ns, is_held=is_finished)
    if wish is not None and not running:
        why += f"{'; ' if why else ''}goes {way_back(wish)} at its next start"
    if not running and (asked := _asked_of(folder, problems)):
        why = f"{why}; {asked}" if why and state != NEW else asked
    row = ListedRun(
        name=folder.name,
        state=state,
        why=why,
        saved_step=saved_step,
        attempts=len(known.records),
        seen_unix_ns=last_sign_ns(known, lease),
        holder=str(lease.holder) if running and lease.holder else None,
    )
    return row, problems


def _asked_of(folder: RunFolder, problems: list[str]) -> str:
    """Who is to give hosts to a run that nobody runs."""
    try:
        return asked_of(folder)
    except HoldfastError as error:
        problems.append(f"run {folder.name!r}: {error}")
        return ""


def _show(rows: list[ListedRun], now_unix_ns: int) -> None:
    """A line each, in columns: plain text, so that a thousand rows take no time."""
    table = [HEADINGS, *(_cells(row, now_unix_ns) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
    is_pipe = not sys.stdout.isatty()  # there, lines are for grep: neither cut nor coloured
    room = max(LEAST_WHY, shutil.get_terminal_size().columns - sum(widths) - GAP * len(widths))
    styles = [{"dim": True}, *(STYLES.get(row.state, {}) for row in rows)]
    for (*cells, why), style in zip(table, styles, strict=True):
        columns = [
            f"{cell:{side}{width}}" for cell, side, width in zip(cells, SIDES, widths, strict=True)
        ]
        if not is_pipe:
            columns[1] = click.style(columns[1], **style)
            why = click.style(shortened(why, room), dim=True)
        coloured_line((" " * GAP).join([*columns, why]).rstrip())


def _cells(row: ListedRun, now_unix_ns: int) -> tuple[str, ...]:
    return (
        clean(row.name),
        shown(row.state, row.why),
        "–" if row.saved_step is None else f"{row.saved_step:,}",
        str(row.attempts),
        ago(row.seen_unix_ns, now_unix_ns),
        " ".join(clean(redacted_text(row.why or row.holder or "")).split()),
    )


def ago(then_unix_ns: int | None, now_unix_ns: int) -> str:
    """How long ago that was, in few words; "–" for never."""
    if then_unix_ns is None:
        return "–"
    seconds = max(0, now_unix_ns - then_unix_ns) // 1_000_000_000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
