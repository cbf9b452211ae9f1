"""`holdfast ls`: the runs of a store, and how each is doing."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from holdfast.cli.door import console, say
from holdfast.cli.places import store_option
from holdfast.config import run_store
from holdfast.core.redact import redacted_text
from holdfast.core.rollback import Wish, prevailing, way_back
from holdfast.errors import HoldfastError
from holdfast.journal.attempts import AttemptRecord, Attempts, attempts, lineage
from holdfast.journal.lease import LeaseState, LeaseView, view
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder, RunStore
from holdfast.runs.state import is_held, last_sign_ns, state_of

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {
    "running": "bold green",
    "silent": "yellow",
    "interrupted": "yellow",
    "failed": "bold red",
    "done": "green",
}


@dataclass(frozen=True, slots=True)
class Row:
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
    rows: list[Row] = []
    problems = list(damage)
    for folder in folders:
        row, trouble = look_at(folder, now_unix_ns)
        rows.append(row)
        problems += trouble
    if as_json:
        found = {"store": place.shown, "runs": [asdict(row) for row in rows]}
        json.dump(found | {"problems": problems}, sys.stdout, indent=1)
        print()
    elif rows:
        _show(rows, now_unix_ns)
    else:
        click.echo(f"no runs in {place.shown} yet; start one: holdfast run -- python train.py")
    if not as_json:
        for words in problems:
            say(words)


def look_at(folder: RunFolder, now_unix_ns: int) -> tuple[Row, list[str]]:
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
        saved_step, damaged_sets = _saved_step(folder, known.records)
        problems += [*known.damage, *damaged_sets]
    except HoldfastError as error:
        problems.append(f"run {folder.name!r}: {error}")
    state, why = state_of(lease, known.newest, now_unix_ns)
    running = is_held(lease)
    if wish is not None and not running:
        why += f"{'; ' if why else ''}goes {way_back(wish)} at its next start"
    row = Row(
        name=folder.name,
        state=state,
        why=why,
        saved_step=saved_step,
        attempts=len(known.records),
        seen_unix_ns=last_sign_ns(known, lease),
        holder=str(lease.holder) if running and lease.holder else None,
    )
    return row, problems


def _saved_step(
    folder: RunFolder, records: tuple[AttemptRecord, ...]
) -> tuple[int | None, list[str]]:
    """The step of the newest checkpoint that a restart could use, and what is wrong with others."""
    from holdfast.snapshot.choose import newest_first
    from holdfast.snapshot.sets import list_sets

    sets, damage = list_sets(folder.ckpt_dir)
    chain = tuple((part.attempt, part.up_to_step) for part in lineage(records))
    usable = newest_first(sets, chain)
    problems = [f"run {folder.name!r}: checkpoint {name}: {why}" for name, why in damage.items()]
    return (usable[0].step if usable else None), problems


def _show(rows: list[Row], now_unix_ns: int) -> None:
    console(folded=False).print(_table(rows, now_unix_ns))


def _table(rows: list[Row], now_unix_ns: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for heading in ("run", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("saved step", "attempts", "last sign of life"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            Text(row.name, style="bold"),
            Text(row.state, style=STYLES.get(row.state, "")),
            "–" if row.saved_step is None else f"{row.saved_step:,}",
            str(row.attempts),
            _ago(row.seen_unix_ns, now_unix_ns),
            Text(" ".join(redacted_text(row.why or row.holder or "").split()), style="dim"),
        )
    return table


def _ago(then_unix_ns: int | None, now_unix_ns: int) -> str:
    if then_unix_ns is None:
        return "–"
    seconds = max(0, now_unix_ns - then_unix_ns) // 1_000_000_000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
