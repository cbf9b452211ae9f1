"""`holdfast profile`: where the time of a live run's steps goes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from holdfast.cli.door import say
from holdfast.cli.places import open_run, store_option
from holdfast.core.visible import clean
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.attempts import attempts
from holdfast.journal.control import request
from holdfast.journal.lease import LeaseState, view
from holdfast.journal.names import new_id
from holdfast.journal.remote import remote_of
from holdfast.journal.store import RunFolder
from holdfast.profiles.capture import MAX_STEPS, Capture, capture_path, profiles, read_capture
from holdfast.profiles.read import captures, make_summary, summarised
from holdfast.profiles.summary import ProfileSummary
from holdfast.report.profile_picture import picture
from holdfast.report.words import counted

LOOK_S, FAR_LOOK_S = 0.5, 2.0
ROUND_TRIP_S = 30.0  # for the way there, the writing, and the way back


@click.command(short_help="Show where the time of a live run's steps goes.")
@click.argument("run")
@store_option
@click.option("--steps", default=5, show_default=True, metavar="N", help="How many steps.")
@click.option("--rank", default=0, show_default=True, metavar="R", help="Of which rank.")
@click.option(
    "--limit", default=60.0, show_default=True, metavar="S", help="Seconds that it may take."
)
@click.option("--last", is_flag=True, help="Show the newest profile that is there.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def profile(
    run: str,
    store: str | None,
    steps: int,
    rank: int,
    limit: float,
    last: bool,
    as_json: bool,
) -> None:
    """Have one rank of RUN profile its next steps, and show where their time goes.

    Its framework's profiler (JAX's or PyTorch's) is on for these steps alone. The trace stays in
    the run's folder, and the report shows what it says.
    """
    folder = open_run(run, store)
    found = _last(folder) if last else _asked(folder, run, store, steps, rank, limit)
    if as_json:
        json.dump(found.to_json(), sys.stdout, indent=1)
        print()
        return
    for line in picture(found):
        click.echo(line)


def _last(folder: RunFolder) -> ProfileSummary:
    newest = attempts(folder).newest_number
    for attempt in range(newest, -1, -1):
        for place in profiles(folder, attempt):
            if (known := summarised(place)) is not None:
                return known
            for path, capture in captures(place):
                if not capture.refused:
                    return make_summary(path, capture)
    raise ConfigurationError(
        f"run {folder.name!r} has no profile yet: `holdfast profile {folder.name}` makes one while "
        "it runs"
    )


def _asked(
    folder: RunFolder, run: str, store: str | None, steps: int, rank: int, limit_s: float
) -> ProfileSummary:
    if not 1 <= steps <= MAX_STEPS:
        raise ConfigurationError(f"--steps {steps} cannot be: give 1 to {MAX_STEPS}")
    newest = attempts(folder).newest
    if newest is not None and rank >= newest.ranks:
        raise ConfigurationError(
            f"--rank {rank}: the run has {counted(newest.ranks, 'rank')}, counted from 0"
        )
    name = new_id()
    request(folder, "profile", name=name, rank=rank, steps=steps, limit_s=limit_s)
    many = counted(steps, "step")
    say(f"asked run {folder.name!r} for {many} of rank {rank}, in at most {limit_s:g} s")
    attempt = 0 if newest is None else newest.attempt
    try:
        path, capture = _awaited(folder, run, store, attempt, name, rank, limit_s)
    except KeyboardInterrupt:
        say(f"the rank goes on with it: `holdfast profile {folder.name} --last` shows it then")
        raise
    if capture.refused:
        raise ConfigurationError(f"there is no profile: {clean(capture.refused)}")
    return make_summary(path, capture)


def _awaited(
    folder: RunFolder,
    run: str,
    store: str | None,
    attempt: int,
    name: str,
    rank: int,
    limit_s: float,
) -> tuple[Path, Capture]:
    """What the rank answers; raises StoreUnavailable if it does not."""
    is_far = remote_of(folder.path) is not None
    give_up_s = time.monotonic() + limit_s + ROUND_TRIP_S
    while True:
        # Asked first: an answer may come with the run's last words.
        is_running = view(folder).state in (LeaseState.HELD, LeaseState.UNKNOWN)
        known = attempts(folder)
        for number in range(attempt, known.newest_number + 1):
            path = capture_path(folder, number, name, rank)
            capture = read_capture(path)
            if capture is not None:
                return path, capture
        has_ended = any(one.attempt >= attempt and one.end for one in known.records)
        if not is_running or has_ended:
            raise StoreUnavailable(
                f"there is no profile: {'the attempt' if is_running else 'the run'} ended before "
                "the window was over; nothing else came of it"
            )
        if time.monotonic() > give_up_s:
            raise StoreUnavailable(
                f"no answer in {limit_s + ROUND_TRIP_S:g} s: the run takes no steps now, or its "
                "store cannot be written; see what it prints"
            )
        time.sleep(FAR_LOOK_S if is_far else LOOK_S)
        if is_far:
            folder = open_run(run, store)
