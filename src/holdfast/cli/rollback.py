"""`holdfast rollback`: have a run continue from an earlier checkpoint."""

from __future__ import annotations

import click

from holdfast.cli.places import open_run, store_option
from holdfast.core.run.rollback import Wish, target_words
from holdfast.errors import ConfigurationError, NoGoodCheckpoint, NoSuchCheckpoint
from holdfast.journal.control import request
from holdfast.journal.lease import LeaseState, view
from holdfast.journal.rollbacks import wish_of
from holdfast.journal.store import RunFolder


@click.command(short_help="Have RUN continue from an earlier checkpoint.")
@click.argument("run")
@store_option
@click.option("--to", required=True, metavar="STEP|TAG", help="Where to; 0: from scratch.")
@click.option(
    "--skip-batches", default=0, metavar="N", help="Pass over N batches of each data stream."
)
def rollback(run: str, store: str | None, to: str, skip_batches: int) -> None:
    """Have RUN continue from an earlier checkpoint.

    From the newest one at or before STEP, or from the one with that TAG. What came after it is
    given up: it is lost, and never comes back. A run that trains is ended without a save and starts
    again from there; one that does not goes back at its next start.
    """
    folder = open_run(run, store)
    wish = Wish("", int(to) if to.isdecimal() else to, skip_batches, "", is_from_script=False)
    words = _what_it_comes_to(folder, wish)
    asked = wish_of(request(folder, "rollback", to=wish.to, skip_batches=skip_batches))
    running = view(folder).state in (LeaseState.HELD, LeaseState.UNKNOWN)
    when = " (without a supervisor, at its next start)" if running else " at its next start"
    skipped = f", skipping {asked.skip_batches} batches" if asked.skip_batches else ""
    click.echo(f"asked run {folder.name!r} to go back to {words}{skipped}{when}")


def _what_it_comes_to(folder: RunFolder, wish: Wish) -> str:
    """The checkpoint that would be taken now; raises ConfigurationError where there is none."""
    from holdfast.snapshot.catalog import Catalog

    try:
        resume, _ = Catalog(folder).choose(wish)
    except (NoGoodCheckpoint, NoSuchCheckpoint) as error:
        raise ConfigurationError(str(error)) from error
    if resume.set_name is not None:
        return f"checkpoint {resume.set_name} (step {resume.step})"
    if wish.to != 0:
        raise ConfigurationError(
            f"run {folder.name!r} has no checkpoint to go back to, and so not "
            f"{target_words(wish.to)}; to begin again from scratch, ask for 0"
        )
    return "scratch"
