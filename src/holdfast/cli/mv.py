"""`holdfast mv`: a run under another name."""

from __future__ import annotations

import click

from holdfast.cli.door import say
from holdfast.cli.places import store_option
from holdfast.config import run_store
from holdfast.journal.moving import move
from holdfast.journal.store import RunStore


@click.command(short_help="Rename a run.")
@click.argument("old")
@click.argument("new")
@store_option
def mv(old: str, new: str, store: str | None) -> None:
    """Rename the run OLD to NEW.

    Nobody may supervise it, and no run may have the new name. Others see it under one name or the
    other. If it is broken off, say it again. Not in an object store, which cannot rename.
    """
    move(RunStore.at(run_store(store)), old, new, say)
    click.echo(f"run {old!r} is now {new!r}")
