"""`holdfast save`: ask a run for a checkpoint now."""

from __future__ import annotations

import click

from holdfast.cli.places import open_run, store_option
from holdfast.journal.control import request


@click.command()
@click.argument("run")
@store_option
def save(run: str, store: str | None) -> None:
    """Ask RUN to save at its next step and continue."""
    folder = open_run(run, store)
    request(folder, "save", tag=None)
    click.echo(f"asked run {folder.name!r} for a save")
