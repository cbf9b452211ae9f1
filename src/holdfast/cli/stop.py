"""`holdfast stop`: ask a run to save and stop, from anywhere that reaches its store."""

from __future__ import annotations

import click

from holdfast.cli.orders import asked_of
from holdfast.cli.places import open_run, store_option
from holdfast.errors import ConfigurationError
from holdfast.journal.control import request


@click.command()
@click.argument("run")
@store_option
@click.option("--now", is_flag=True, help="Stop without saving.")
@click.option("--grace", type=float, metavar="S", help="Seconds until the run must be gone.")
def stop(run: str, store: str | None, now: bool, grace: float | None) -> None:
    """Ask RUN to save at its next step and stop."""
    folder = open_run(run, store)
    try:
        request(folder, "stop", now=now, grace_s=grace)
    except ConfigurationError as error:
        if not (asked := asked_of(folder)):
            raise
        raise ConfigurationError(
            f"{error}; its hosts were {asked}: if that waits to begin, `holdfast release "
            f"{folder.name}` takes it back"
        ) from None
    click.echo(f"asked run {folder.name!r} to {'stop now' if now else 'save and stop'}")
