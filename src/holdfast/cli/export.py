"""`holdfast export`: a run as files that other programs read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TextIO

import click

from holdfast.cli.places import open_run, store_option
from holdfast.errors import JournalError

LINES_AT_ONCE = 10_000


@click.command()
@click.argument("run")
@store_option
@click.option("--history", is_flag=True, help="As a history: one JSON object per line.")
@click.option("--out", metavar="FILE", help="Write there instead of to standard output.")
def export(run: str, store: str | None, history: bool, out: str | None) -> None:
    """Write the history of RUN as JSON lines.

    The lines are described in docs/reference/history.md, and `holdfast report --history` reads
    them; their times are seconds since the run's request.
    """
    from holdfast.core.history import to_lines
    from holdfast.journal.recorded import export_facts, load_run

    if not history:
        raise click.UsageError("say what to export: --history", click.get_current_context())
    folder = open_run(run, store)
    recorded = load_run(folder.path)
    for note in recorded.notes():
        print(f"holdfast: note: {note}", file=sys.stderr)
    lines = to_lines(export_facts(recorded))
    first = next(lines, None)
    if first is None:
        raise JournalError(f"run {folder.name!r} has no journal yet: there is nothing to export")
    if out is None or out == "-":
        _write(sys.stdout, first, lines)
        return
    # A reader that watches for the file never sees a part of it.
    draft = Path(f"{out}.part")
    with draft.open("w", encoding="utf-8") as file:
        _write(file, first, lines)
    draft.replace(out)


def _write(file: TextIO, first: str, lines: Iterable[str]) -> None:
    rest = iter(lines)
    file.write(_ended(first))
    while block := list(islice(rest, LINES_AT_ONCE)):
        file.write("".join(map(_ended, block)))


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"
