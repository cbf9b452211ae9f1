"""`holdfast again`: whether a run wants to be started again, for whoever starts it: a script."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import click

from holdfast.cli.door import say
from holdfast.cli.places import open_run, store_option
from holdfast.config import start_of_job
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, HoldfastError
from holdfast.journal.lease import SILENT_AFTER_S, LeaseState, LeaseView, view
from holdfast.journal.remote import refresh


class StartWish(NamedTuple):
    """What whoever starts the run should end with, 75 where it should start it again; and why."""

    exit_code: int
    words: str


@click.command(short_help="Say whether RUN wants to be started again: exit code 75.")
@click.argument("run")
@store_option
@click.option("--code", type=int, metavar="N", help="What the start that is over ended with.")
def again(run: str, store: str | None, code: int | None) -> None:
    """Say whether RUN wants to be started again, by what it has told when it ended.

    Exit code 75: it has saved for a notice or a time limit, start it again. 0: it is done, or
    somebody has stopped it (`holdfast stop`), who starts it again when they like. Otherwise what
    it has failed with. Job scripts that requeue ask this, since the code of `srun` is that of the
    worst of all tasks. With --code, a start that has told nothing ends with that; under Slurm what
    an earlier start of the job has told, or another job, does not count then.
    """
    try:
        folder = open_run(run, store)
        refresh(folder.lease_dir)
        seen = view(folder)
    except HoldfastError as error:
        if code is None:
            raise
        say(f"{error}; the code of what has run counts")
        sys.exit(code)
    wish = wants_again(seen, time.time_ns(), job=start_of_job(), code=code)
    say(f"run {folder.name!r}: {wish.words}")
    sys.exit(wish.exit_code)


def wants_again(
    lease: LeaseView, now_unix_ns: int, *, job: str = "", code: int | None = None
) -> StartWish:
    """By its newest lease. `code`: a start is over, with that; None: nobody knows of one.

    `job`: the cluster's name for that start, "": it has none.
    """
    words = lease.last_words
    is_of_another = words is not None and code is not None and words.job != job
    if words is None or is_of_another:
        return _untold(lease, now_unix_ns, code)
    if words.exit_code != EXIT_SAVED_START_ME_AGAIN:
        return StartWish(words.exit_code, words.words)
    if words.by_person:
        return StartWish(EXIT_DONE, f"stopped by a person, who starts it again: {words.words}")
    return StartWish(EXIT_SAVED_START_ME_AGAIN, f"start it again: {words.words}")


def _untold(lease: LeaseView, now_unix_ns: int, code: int | None) -> StartWish:
    if lease.state is LeaseState.FREE and code is None:
        return StartWish(EXIT_DONE, "it has never begun")
    if code is not None:
        return StartWish(code, f"it has not told how it ended; what has run ended with {code}")
    silent_s = (now_unix_ns - (lease.seen_unix_ns or 0)) / 1e9
    runs = lease.state is LeaseState.HELD
    if runs or (lease.state is LeaseState.UNKNOWN and silent_s < SILENT_AFTER_S):
        return StartWish(EXIT_DONE, "it runs")
    words = "it has ended without a word: start it again"
    return StartWish(EXIT_SAVED_START_ME_AGAIN, words)
