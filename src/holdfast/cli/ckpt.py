"""`holdfast ckpt`: list, verify and pin the checkpoints of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.door import console, say
from holdfast.cli.places import open_run, store_option
from holdfast.config import resolve
from holdfast.errors import ConfigurationError, CorruptCheckpoint
from holdfast.journal.attempts import AttemptRecord, attempts, lineage
from holdfast.journal.names import check_tag
from holdfast.journal.store import RunFolder

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.snapshot.sets import SetInfo

REMOVED = "being removed"

set_argument = click.argument("checkpoint", metavar="[SET]", required=False)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint of the list.

    `state` is good, damaged, abandoned (not on the lineage), or being removed: never chosen again.
    `why`: it is not good; of one that stands for a framework's checkpoint, where that is.

    `tier`: the run's store, or memory of this host, which outlives its processes and no reboot.
    """

    name: str
    attempt: int
    step: int
    state: str
    why: str
    ranks: int | None
    nbytes: int | None
    created_unix_ns: int | None
    tags: tuple[str, ...]
    tier: str = "store"


@click.group(no_args_is_help=True)
def ckpt() -> None:
    """List, verify, pin and export checkpoints.

    SET is a set's name, a step, or a tag; without it, the newest one.
    """


@ckpt.command()
@click.argument("run")
@store_option
@click.option("--memory-dir", metavar="FOLDER", help="The memory folder of its snapshots.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def ls(run: str, store: str | None, memory_dir: str | None, as_json: bool) -> None:
    """List the checkpoints of RUN, the newest first.

    Those in memory are shown on the host that holds them.
    """
    folder = open_run(run, store)
    base = resolve({"memory_dir": memory_dir}).settings.memory_dir
    rows = [*look_at(folder), *in_memory(folder, Path(base))]
    rows.sort(key=lambda row: (row.attempt, row.step, row.tier == "memory"), reverse=True)
    if as_json:
        json.dump({"run": folder.name, "checkpoints": [asdict(row) for row in rows]}, sys.stdout)
        print()
    elif rows:
        _show(rows)
    else:
        click.echo(f"run {folder.name!r} has no checkpoints yet")


@ckpt.command(short_help="Compare every byte of a checkpoint with its checksums.")
@click.argument("run")
@set_argument
@store_option
@click.option("--all", "every", is_flag=True, help="Every checkpoint of the run.")
def verify(run: str, checkpoint: str | None, store: str | None, every: bool) -> None:
    """Read a checkpoint of RUN and compare every byte with its checksums.

    Exits with 69 when something is wrong.
    """
    from holdfast.snapshot.reader import verify as check

    folder = open_run(run, store)
    if every and checkpoint is not None:
        raise ConfigurationError(f"--all and the checkpoint {checkpoint!r} exclude each other")
    names = [row.name for row in look_at(folder)] if every else [find(folder, checkpoint)]
    bad = []
    for name in names:
        problems = check(folder.ckpt_dir / name)
        for words in problems:
            say(words)
        if problems:
            bad.append(name)
        else:
            click.echo(f"{name}: every byte is what was written")
    if bad:
        raise CorruptCheckpoint(
            f"{len(bad)} of {len(names)} checkpoints of run {folder.name!r} cannot be trusted: "
            f"{', '.join(bad)}; a restart skips them"
        )


@ckpt.command(short_help="Write a checkpoint in another format.")
@click.argument("run")
@set_argument
@store_option
@click.option("--to", "form", type=click.Choice(["dcp"]), required=True, help="The format.")
@click.option("--out", metavar="FOLDER", required=True, help="Where to; it is made.")
def export(run: str, checkpoint: str | None, store: str | None, form: str, out: str) -> None:
    """Write a checkpoint of RUN in another format, every byte of it verified.

    `--to dcp` writes what torch.distributed.checkpoint loads, on any number of ranks. The tracked
    parts stand under their names, with parameters by name; a state stands under `state`.
    """
    folder = open_run(run, store)
    name = find(folder, checkpoint)
    try:
        from torch.distributed import checkpoint as _  # noqa: F401

        from holdfast.adapters import dcp_export
    except ImportError as error:
        raise ConfigurationError(f"--to {form} needs PyTorch here: {error}") from error
    for path in dcp_export.export(folder.ckpt_dir / name, Path(out)):
        say(f"! {path} is each rank's own: that of rank 0 is written")
    click.echo(f"{name} is in {out}")


@ckpt.command()
@click.argument("run")
@click.argument("checkpoint", metavar="SET")
@click.argument("tag")
@store_option
def pin(run: str, checkpoint: str, tag: str, store: str | None) -> None:
    """Give a checkpoint of RUN a TAG: retention never deletes it. A tag that is used moves."""
    from holdfast.snapshot.retention import pin as write_pin

    folder = open_run(run, store)
    name = find(folder, checkpoint)
    write_pin(folder.pins_path, check_tag(tag), name)
    if not any(row.name == name and row.state != REMOVED for row in look_at(folder)):
        raise ConfigurationError(f"{name} was deleted meanwhile, by what the run keeps")
    click.echo(f"{name} is pinned as {tag}")


@ckpt.command()
@click.argument("run")
@click.argument("tag")
@store_option
def unpin(run: str, tag: str, store: str | None) -> None:
    """Take a TAG away: the checkpoint goes when retention says so."""
    from holdfast.snapshot.retention import unpin as take_away

    folder = open_run(run, store)
    if not take_away(folder.pins_path, tag):
        raise ConfigurationError(f"run {folder.name!r} has no tag {tag!r}; {_known_tags(folder)}")
    click.echo(f"{tag} is not a tag any more")


def look_at(folder: RunFolder) -> list[CheckpointRow]:
    """All checkpoints of a run, the newest first; raises StoreUnavailable."""
    from holdfast.core.save.choose import on_chain
    from holdfast.snapshot.removal import is_doomed
    from holdfast.snapshot.sets import list_sets, parse_set_name

    sets, damage = list_sets(folder.ckpt_dir)
    records = attempts(folder).records
    chain = lineage(records)
    tags = _tags_by_set(folder)
    rows = []
    for one in sets:
        counts = on_chain(chain, one.attempt, one.step)
        if is_doomed(one.name, one.doomed_by, records):
            rows.append(_row(one, REMOVED, "the next supervisor finishes it", tags))
            continue
        why = one.external if counts else _why_abandoned(one, records)
        rows.append(_row(one, "good" if counts else "abandoned", why, tags))
    for name, why in damage.items():
        attempt, step = parse_set_name(name) or (0, 0)
        tagged = tuple(tags.get(name, ()))
        rows.append(CheckpointRow(name, attempt, step, "damaged", why, None, None, None, tagged))
    return sorted(rows, key=lambda row: (row.attempt, row.step), reverse=True)


def in_memory(folder: RunFolder, base: Path) -> list[CheckpointRow]:
    """What a start of the run on this host would find in its memory, while it trains or later."""
    from holdfast.core.save.choose import on_chain
    from holdfast.snapshot.names import set_name
    from holdfast.snapshot.ram_folder import ram_path, sealed_buffers

    sealed, _ = sealed_buffers(ram_path(base, folder.scratch_key))
    if not sealed:
        return []
    records = attempts(folder).records
    chain = lineage(records)
    rows = []
    for one in (buffer.info for buffer in sealed):
        counts = on_chain(chain, one.attempt, one.step)
        why = "" if counts else _why_abandoned(one, records)
        row = _row(one, "good" if counts else "abandoned", why, {})
        rows.append(replace(row, name=set_name(one.attempt, one.step), tier="memory"))
    return rows


def _why_abandoned(one: SetInfo, records: Sequence[AttemptRecord]) -> str:
    for record in reversed(records):
        left_it = record.attempt > one.attempt and record.resume_step < one.step
        if left_it and record.rollback is not None:
            return f"attempt {record.attempt} rolled back to step {record.resume_step}"
    return "the run continued from another one"


def _row(one: SetInfo, state: str, why: str, tags: dict[str, list[str]]) -> CheckpointRow:
    return CheckpointRow(
        name=one.name,
        attempt=one.attempt,
        step=one.step,
        state=state,
        why=why,
        ranks=one.world_size,
        nbytes=one.nbytes + one.external_bytes,
        created_unix_ns=one.created_unix_ns,
        tags=tuple(tags.get(one.name, ())),
    )


def find(folder: RunFolder, which: str | None) -> str:
    """The name of the set that is meant by a name, a tag or a step; for None of the newest one.

    Raises ConfigurationError when there is none.
    """
    from holdfast.snapshot.retention import read_pins

    rows = [row for row in look_at(folder) if row.state != REMOVED]
    if not rows:
        raise ConfigurationError(f"run {folder.name!r} has no checkpoints yet")
    names = {row.name for row in rows}
    if which is None:
        return newest(rows).name
    tagged = read_pins(folder.pins_path).get(which)
    if which in names:
        return which
    if tagged is not None:
        return tagged
    # Several attempts may have saved one step: the one that counts, else the newest.
    at_step = [row for row in rows if which.isdecimal() and row.step == int(which)]
    at_step.sort(key=lambda row: row.state != "good")
    if not at_step:
        raise ConfigurationError(
            f"run {folder.name!r} has no checkpoint {which!r}; see holdfast ckpt ls {folder.name}"
        )
    return at_step[0].name


def newest(rows: Sequence[CheckpointRow]) -> CheckpointRow:
    """The first of rows that come newest first; one that was abandoned only if all were.

    It may be damaged: who looks for the newest is to hear that.
    """
    return next((row for row in rows if row.state != "abandoned"), rows[0])


def _tags_by_set(folder: RunFolder) -> dict[str, list[str]]:
    from holdfast.snapshot.retention import read_pins

    tags: dict[str, list[str]] = {}
    for tag, name in sorted(read_pins(folder.pins_path).items()):
        tags.setdefault(name, []).append(tag)
    return tags


def _known_tags(folder: RunFolder) -> str:
    from holdfast.snapshot.retention import read_pins

    known = sorted(read_pins(folder.pins_path))
    return f"its tags: {', '.join(known)}" if known else "it has no tags"


def _show(rows: list[CheckpointRow]) -> None:
    from holdfast.report.whole import print_whole

    print_whole(console(folded=False), _table(rows))


def _table(rows: list[CheckpointRow]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="dim"
    )
    table.add_column("checkpoint", no_wrap=True)
    for heading in ("step", "ranks", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    has_tags = any(row.tags for row in rows)
    for heading in ("made (UTC)", "tier", "state", *(["tags"] if has_tags else [])):
        table.add_column(heading, no_wrap=True)
    is_said = any(row.why for row in rows)
    if is_said:
        table.add_column("")
    styles = {"good": "green", "damaged": "bold red", "abandoned": "yellow", REMOVED: "dim"}
    for row in rows:
        table.add_row(
            row.name,
            f"{row.step:,}",
            _or_dash(row.ranks),
            "–" if row.nbytes is None else _size(row.nbytes),
            "–" if row.created_unix_ns is None else _when(row.created_unix_ns),
            row.tier,
            Text(row.state, style=styles[row.state]),
            *([Text(", ".join(row.tags), style="bold")] if has_tags else []),
            *([Text(row.why, style="dim")] if is_said else []),
        )
    return table


def _or_dash(value: Any) -> str:
    return "–" if value is None else str(value)


def _size(nbytes: int) -> str:
    size, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _when(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
