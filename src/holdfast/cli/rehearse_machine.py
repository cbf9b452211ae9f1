"""`holdfast rehearse machine`: the cloud itself is asked to simulate maintenance of a machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.fleet import agreed_machines, cloud, looking_options, tell
from holdfast.cli.places import accept_option, open_run, store_option
from holdfast.core.hosts.fleet import ActOutcome, to_rehearse
from holdfast.core.hosts.recover import name_of
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE, EXIT_USER_FAILURE
from holdfast.journal.machines import MachinesBook
from holdfast.provision.cloud_tpu.requests import ALPHA

if TYPE_CHECKING:
    from holdfast.core.ledger.facts import NoticeFact
    from holdfast.provision.cloud_tpu.client import CloudTpu
    from holdfast.rehearse.hearing import Hearing

NS_PER_S = 1_000_000_000


@click.command(short_help="Have the cloud simulate maintenance of RUN's own machine.")
@click.argument("run")
@store_option
@accept_option
@click.option("--slice", "slice_name", default="", metavar="NAME", help="Which, of several.")
@click.option(
    "--worker",
    "workers",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Which of its hosts; the first.",
)
@click.option("--yes", is_flag=True, help="Ask for it; without this flag nothing is done.")
@looking_options(2.0, 300.0, "Wait so long for the run to hear it; 300 s by default.")
def machine(
    run: str,
    store: str | None,
    accept_stored: bool,
    slice_name: str,
    workers: Sequence[int],
    yes: bool,
    every: float,
    limit: float,
) -> None:
    """Have the cloud simulate maintenance of RUN's own machine.

    Of those that `holdfast up` has made: the cloud's own test of what maintenance does to them
    (simulateMaintenanceEvent of Cloud TPU). The run that trains there is warned, saves and
    leaves, as it would; what it had not saved in time is lost. Without --yes it says what it would
    do. Machines that do not carry the run's label, and those that are not well, are left alone.

    Exit codes: 0 the run has heard it, 1 it has not, 69 the cloud was not asked, or has refused.
    """
    from holdfast.rehearse.hearing import Hearing

    folder = open_run(run, store)
    machines = agreed_machines(folder, accept_stored)
    name = name_of(machines.prefix, MachinesBook(folder).load().generation)
    with cloud(machines.project, machines.zone, ALPHA) as provider:
        found = provider.describe(machines, name)
        one, reason = to_rehearse(found, name, machines.owner, slice_name)
        if one is None:
            click.echo(f"nothing was asked for: {reason}")
            sys.exit(EXIT_UNAVAILABLE)
        which = tuple(str(worker) for worker in workers or (0,))
        hosts = f"worker{'s' if len(which) > 1 else ''} {', '.join(which)} of {one.name}"
        if not yes:
            click.echo(f"would have maintenance of {hosts} simulated; nothing was done, see --yes")
            sys.exit(EXIT_DONE)
        hearing = Hearing(folder)
        hearing.news()  # what was heard before
        answer = provider.simulate_maintenance(one.name, which)
        if answer.operation:
            tell("info", f"asked for maintenance of {hosts}; waiting for run {run!r} to hear of it")
            sys.exit(_followed(provider, answer.operation, hearing, every, limit))
    click.echo(f"maintenance of {hosts} is not simulated ({answer.outcome}: {answer.words})")
    sys.exit(EXIT_UNAVAILABLE)


def _followed(
    provider: CloudTpu,
    operation: str,
    hearing: Hearing,
    every_s: float,
    limit_s: float,
) -> int:
    """Wait until the run has heard a notice, or the cloud says no; the exit code."""
    run, began_s, is_done = hearing.run, time.monotonic(), False
    while not (news := hearing.news()):
        answer = None if is_done else provider.progress(operation)
        is_done = is_done or answer is not None
        if answer is not None and answer.outcome is not ActOutcome.ACCEPTED:
            click.echo(f"maintenance is not simulated ({answer.outcome}: {answer.words})")
            return EXIT_UNAVAILABLE
        if time.monotonic() - began_s >= limit_s:
            click.echo(
                f"run {run!r} has heard nothing within {limit_s:g} s: see what it listens to "
                "(--notice), and holdfast doctor on its host"
            )
            return EXIT_USER_FAILURE
        time.sleep(every_s)
    click.echo(f"run {run!r} has heard of it {_words(news[0])}; holdfast report {run} tells more")
    return EXIT_DONE


def _words(notice: NoticeFact) -> str:
    if notice.deadline_ns is None:
        return f"from {notice.source}, without a deadline"
    left_s = (notice.deadline_ns - notice.at_ns) / NS_PER_S
    return f"from {notice.source}, {left_s:.0f} s ahead of its deadline"
