"""`holdfast again`: whether a run wants to be started again, for whoever starts it: a script."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import click

from holdfast.cli.door import say
from holdfast.cli.places import open_run, store_option
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, HoldfastError, UnknownRun
from holdfast.journal.lease import SILENT_AFTER_S, LeaseState, LeaseView, view
from holdfast.journal.remote import refresh


class StartWish(NamedTuple):
    """What whoever starts the run should end with, 75 where it should start it again; and why."""

    exit_code: int
    words: str


@click.command(short_help="Say whether RUN wants to be started again: exit code 75.")
@click.argument("run")
@store_option
@click.option("--lease", is_flag=True, help="Print the number of the newest lease, and no more.")
@click.option("--after", type=int, metavar="LEASE", help="Only a start after that lease counts.")
@click.option("--code", type=int, metavar="N", help="What the start ended with, as far as known.")
def again(run: str, store: str | None, lease: bool, after: int | None, code: int | None) -> None:
    """Say whether RUN wants to be started again, by what it has told when it ended.

    Exit code 75: it has saved for a notice or a time limit, start it again. 0: it is done, or
    somebody has stopped it (`holdfast stop`), who starts it again when they like. Otherwise what
    it has failed with. Job scripts that requeue ask this, since the code of `srun` is that of the
    worst of all tasks. With --code, a start that has told nothing ends with that.
    """
    try:
        folder = open_run(run, store)
        refresh(folder.lease_dir)
        seen = view(folder)
    except HoldfastError as error:
        if lease and isinstance(error, UnknownRun):
            click.echo(0)  # it has never begun
            return
        if code is None:
            raise
        say(f"{error}; the code of what has run counts")
        sys.exit(code)
    if lease:
        click.echo(seen.epoch)
        return
    wanted = wants_again(seen, time.time_ns(), after=after, code=code)
    say(f"run {folder.name!r}: {wanted.words}")
    sys.exit(wanted.exit_code)


def wants_again(
    lease: LeaseView, now_unix_ns: int, *, after: int | None = None, code: int | None = None
) -> StartWish:
    """By its newest lease. `code`: its start is over, with that; None: nobody knows of one."""
    if lease.epoch <= (after or 0):
        return StartWish(EXIT_DONE if code is None else code, "it has not begun")
    words = lease.last_words
    if words is None:
        return _untold(lease, now_unix_ns, code)
    if words.exit_code != EXIT_SAVED_START_ME_AGAIN:
        return StartWish(words.exit_code, words.words)
    if words.by_person:
        return StartWish(EXIT_DONE, f"stopped by a person, who starts it again: {words.words}")
    return StartWish(EXIT_SAVED_START_ME_AGAIN, f"start it again: {words.words}")


def _untold(lease: LeaseView, now_unix_ns: int, code: int | None) -> StartWish:
    if code is not None:
        return StartWish(code, f"it has not told how it ended; what has run ended with {code}")
    silent_s = (now_unix_ns - (lease.seen_unix_ns or 0)) / 1e9
    runs = lease.state is LeaseState.HELD
    if runs or (lease.state is LeaseState.UNKNOWN and silent_s < SILENT_AFTER_S):
        return StartWish(EXIT_DONE, "it runs")
    words = "it has ended without a word: start it again"
    return StartWish(EXIT_SAVED_START_ME_AGAIN, words)
