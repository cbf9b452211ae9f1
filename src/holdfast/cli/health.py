"""`holdfast health`: the state and health of machines, as their service tells them."""

from __future__ import annotations

import json
import sys

import click

from holdfast.cli.fleet import agreed_machines, cloud, rows, show
from holdfast.cli.places import accept_option, open_run, store_option
from holdfast.core.hosts.fleet import Resource
from holdfast.errors import ConfigurationError


@click.command(short_help="Show the state and health of machines.")
@click.argument("run", required=False)
@store_option
@accept_option
@click.option("--project", metavar="NAME", help="Without RUN: all machines of this project.")
@click.option("--zone", metavar="ZONE", help="Without RUN: and of this zone.")
@click.option("--api", default="v2alpha1", metavar="VERSION", help="Of Cloud TPU: v2alpha1 or v2.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def health(
    run: str | None,
    store: str | None,
    accept_stored: bool,
    project: str | None,
    zone: str | None,
    api: str,
    as_json: bool,
) -> None:
    """Show the state and health of machines.

    Of those that `holdfast up` made for RUN; or of all in a project and zone.
    """
    found = _of_run(run, store, accept_stored) if run is not None else _of_zone(project, zone, api)
    table = rows(found)
    if as_json:
        json.dump({"machines": table}, sys.stdout, indent=1)
        print()
    elif table:
        show(table)
    else:
        click.echo("there are no machines")


def _of_run(name: str, store: str | None, accept_stored: bool) -> tuple[Resource, ...]:
    from holdfast.core.hosts.recover import name_of
    from holdfast.journal.machines import MachinesBook

    folder = open_run(name, store)
    machines = agreed_machines(folder, accept_stored)
    generation = MachinesBook(folder).load().generation
    with cloud(machines.project, machines.zone, machines.api) as provider:
        return provider.describe(machines, name_of(machines.prefix, generation))


def _of_zone(project: str | None, zone: str | None, api: str) -> tuple[Resource, ...]:
    if project is None or zone is None:
        raise ConfigurationError("name a run, or a project and a zone: --project NAME --zone ZONE")
    with cloud(project, zone, api) as provider:
        return provider.describe_all()
