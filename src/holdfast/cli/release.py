"""`holdfast release`: give the hosts of a run back to their engine."""

from __future__ import annotations

import click

from holdfast.cli.orders import known_order, order_json
from holdfast.cli.places import accept_option, open_run, store_option
from holdfast.journal.submitted import keep


@click.command(short_help="Give the hosts of RUN back to the engine they came from.")
@click.argument("run")
@store_option
@accept_option
def release(run: str, store: str | None, accept_stored: bool) -> None:
    """Give the hosts of RUN back to its engine, also those that have not come yet.

    A run that trains is told to go as its engine tells it, and saves in the time that it gets;
    `holdfast stop` first takes as long as it needs. Its records and checkpoints stay.
    """
    folder = open_run(run, store)
    engine, ordered = known_order(folder, accept_stored=accept_stored)
    click.echo(engine.release(ordered))
    keep(folder, order_json(ordered, is_released=True))
