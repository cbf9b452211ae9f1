"""`holdfast recover`: machines that are lost are deleted, and made again."""

from __future__ import annotations

import sys

import click

from holdfast.cli.fleet import (
    agreed_machines,
    concluded,
    looked_after,
    looking_options,
)
from holdfast.cli.places import accept_option, open_run, store_option
from holdfast.cli.seconds import Seconds
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.recover import Act, RecoverPolicy
from holdfast.errors import ConfigurationError


@click.command(short_help="Find machines of RUN that are lost, delete them, and make them again.")
@click.argument("run")
@store_option
@accept_option
@click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing: the default."
)
@click.option("--delete", is_flag=True, help="Delete what is lost, and make it again.")
@click.option("--create", is_flag=True, help="Create missing machines; delete none.")
@click.option("--watch", is_flag=True, help="Go on looking when all is well.")
@looking_options()
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=4,
    metavar="N",
    help="Delete N within an hour at most.",
)
@click.option(
    "--maintenance-limit",
    type=Seconds(),
    default=3600.0,
    metavar="S",
    help="How long maintenance may take before the machine counts as stuck.",
)
@click.option(
    "--sick-limit",
    type=Seconds(),
    default=600.0,
    metavar="S",
    help="How long a machine may be unhealthy, or silent, before it counts as stuck.",
)
def recover(
    run: str,
    store: str | None,
    accept_stored: bool,
    dry_run: bool,
    delete: bool,
    create: bool,
    watch: bool,
    every: float,
    limit: float | None,
    most: int,
    maintenance_limit: float,
    sick_limit: float,
) -> None:
    """Find machines of RUN that are lost, delete them, and make them again.

    Without --delete or --create it says what it would do. A preempted machine, one that its service
    has given up, and one that is stuck is deleted, and the same is made under the next name; its
    startup script starts the run again, which resumes from its newest checkpoint. Nothing is
    deleted that does not carry the run's label, whose state is not understood, or while the run
    shows life.

    What the machines are made of is read from the store. Where that is not what `holdfast up` was
    told on this host, it is shown first, and you are asked (without a terminal: --accept-stored).

    Exit codes: 0 all is well, 69 it is not, or not yet.
    """
    if dry_run and (delete or create):
        raise ConfigurationError("--dry-run does nothing: leave it out, or --delete and --create")
    if watch and not (delete or create):
        raise ConfigurationError("--watch watches what --delete or --create may act on; add one")
    policy = RecoverPolicy(
        may_delete=delete,
        may_create=delete or create,
        most_deletions=most,
        maintenance_limit_ns=int(maintenance_limit * SECOND_NS),
        sick_limit_ns=int(sick_limit * SECOND_NS),
    )
    folder = open_run(run, store)
    machines = agreed_machines(folder, accept_stored)
    with looked_after(folder, machines, policy) as recovery:
        if not policy.may_create:
            sys.exit(concluded(recovery.look()))
        decision = recovery.run(every, limit)
        while watch and decision.action.act is Act.REST:
            recovery.pause(every)
            decision = recovery.run(every, limit)
        sys.exit(concluded(decision))
