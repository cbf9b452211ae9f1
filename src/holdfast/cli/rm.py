"""`holdfast rm`: a run that is not wanted any more."""

from __future__ import annotations

import contextlib
import sys

import click

from holdfast.cli.door import say
from holdfast.cli.places import store_option
from holdfast.config import resolve
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.moving import remove_run
from holdfast.journal.names import check_name
from holdfast.journal.store import RunStore


@click.command(short_help="Remove a run: its records, its checkpoints, all of it.")
@click.argument("run")
@store_option
@click.option("--yes", is_flag=True, help="Do it without asking.")
def rm(run: str, store: str | None, yes: bool) -> None:
    """Remove RUN: its records, its checkpoints, its logs, and what it has on this host.

    Nothing brings it back. A run that somebody supervises is not removed. If the command is
    interrupted, repeat it. Machines that holdfast up has made are not deleted, but named.
    """
    settings = resolve({"store": store}).settings
    place = RunStore.at(settings.store)
    check_name(run)
    if left := _machines_left(place, run):
        say(f"its machines are not deleted with it, and paid for as long as they are there: {left}")
    if not yes:
        if not sys.stdin.isatty():
            why = "there is no terminal to ask on; add --yes"
            raise ConfigurationError(f"run {run!r} was not removed: {why}")
        click.confirm(f"remove run {run!r} in {place.shown} for good?", err=True, abort=True)
    remove_run(place, run, (settings.scratch, settings.memory_dir), say)
    click.echo(f"run {run!r} is removed from {place.shown}")


def _machines_left(place: RunStore, run: str) -> str:
    """Where those are that the run may still have; "": it never had any, or nobody can say."""
    from holdfast.core.hosts.recover import name_of
    from holdfast.journal.machines import MachinesBook, read_machines

    with contextlib.suppress(HoldfastError):
        folder = place.get(run)
        machines = read_machines(folder)
        name = name_of(machines.prefix, MachinesBook(folder).load().generation)
        kind = "queued resource" if machines.is_queued else "node"
        return f"{kind} {name} in {machines.zone} of project {machines.project}"
    return ""
