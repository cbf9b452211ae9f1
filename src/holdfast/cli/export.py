"""`holdfast export`: a run as files that other programs read."""

from __future__ import annotations

import sys
from itertools import chain

import click

from holdfast.cli.places import open_run, store_option
from holdfast.errors import JournalError


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
    from holdfast.journal.history_file import write_history
    from holdfast.journal.live import live_journals
    from holdfast.journal.recorded import export_facts, load_run

    if not history:
        raise click.UsageError("say what to export: --history", click.get_current_context())
    folder = open_run(run, store)
    recorded = load_run(folder.path, live_journals(folder))
    for note in recorded.notes():
        print(f"holdfast: note: {note}", file=sys.stderr)
    facts = export_facts(recorded)
    first = next(facts, None)
    if first is None:
        raise JournalError(f"run {folder.name!r} has no journal yet: there is nothing to export")
    write_history(sys.stdout if out in (None, "-") else out, chain([first], facts))
