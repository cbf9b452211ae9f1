"""The end of a job of Slurm whose script has died with its host (`holdfast run --ends-job`).

Without its script the job would stay, with nobody in it, until its time limit. So one of its hosts
does in its place what it would have done: have the job start again, or end it. That is the first of
those that the run's controller has not lost. While the script's host is not lost, nobody does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from holdfast.cli.again import wants_again
from holdfast.config import start_of_job
from holdfast.core.hosts.members import GONE
from holdfast.engines.registry import engine_here
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN, HoldfastError
from holdfast.journal.hosts_table import ListedHost, read_hosts
from holdfast.journal.lease import view
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

SCRIPT_HOST = 0  # Slurm starts a job's script on its first node


def end_lost_job(
    folder: RunFolder,
    index: int,
    code: int,
    environment: Mapping[str, str],
    say: Callable[[str, str], None],
) -> None:
    """Once the run is over on this host, with that code."""
    if engine_here(environment) != "slurm":
        return
    from holdfast.engines.slurm import end_job

    try:
        refresh(folder.lease_dir)
        lease = view(folder)
        if not is_first(index, read_hosts(folder, lease.epoch) or ()):
            return
        wanted = wants_again(lease, time.time_ns(), job=start_of_job(), code=code)
        done = end_job(environment, again=wanted.exit_code == EXIT_SAVED_START_ME_AGAIN)
    except HoldfastError as error:
        say("warning", f"The job has lost the host of its script, and cannot be ended: {error}")
    else:
        if done:
            say("warning", done)


def is_first(index: int, rows: Sequence[ListedHost]) -> bool:
    """Whether the host of the job's script is lost, and this is the first that is not."""
    there = [row.index for row in rows if row.state not in GONE]
    return SCRIPT_HOST not in there and bool(there) and min(there) == index
