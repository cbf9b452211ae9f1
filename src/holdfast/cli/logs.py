"""`holdfast logs`: what the ranks printed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from holdfast.agent.output import last_redrawn
from holdfast.cli.door import coloured_line, raw_line, say
from holdfast.cli.places import open_run, store_option
from holdfast.errors import ConfigurationError
from holdfast.journal.attempts import attempts
from holdfast.journal.incidents import incident_of
from holdfast.journal.regular import is_real_folder, open_regular

_LOG = re.compile(r"rank-[0-9]{5,9}\.log")


@click.command()
@click.argument("run")
@store_option
@click.option("--attempt", type=int, help="Which attempt; the newest by default.")
@click.option("--rank", type=int, help="Only this rank; all by default.")
@click.option("--tail", type=click.IntRange(min=1), help="Only the last N lines of each rank.")
@click.option("--raw", is_flag=True, help="Control characters too, which a terminal obeys.")
def logs(
    run: str,
    store: str | None,
    attempt: int | None,
    rank: int | None,
    tail: int | None,
    raw: bool,
) -> None:
    """Print what the ranks of RUN wrote.

    If it hung, standard error says where. Colours reach the terminal; other control characters are
    spelled out.
    """
    folder = open_run(run, store)
    known = [record.attempt for record in attempts(folder).records]
    if not known:
        raise ConfigurationError(f"run {run!r} has no attempts yet: nothing was printed")
    number = known[-1] if attempt is None else attempt
    if number not in known:
        span = f"{known[0]}..{known[-1]}"
        raise ConfigurationError(f"run {run!r} has no attempt {number}; it has {span}")
    place = folder.logs_dir(number)
    found = place.glob("rank-*.log") if is_real_folder(place) else ()
    files = sorted(file for file in found if _LOG.fullmatch(file.name))
    if rank is not None:
        files = [file for file in files if file.stem == f"rank-{rank:05d}"]
        if not files:
            raise ConfigurationError(f"attempt {number} of {run!r} has no output of rank {rank}")
    for file in files:
        prefix = f"[{int(file.stem.removeprefix('rank-'))}] " if len(files) > 1 else ""
        _print(file, prefix, tail, raw=raw)
    incident = incident_of(folder, number) or {}
    if incident.get("stacks"):  # a rank that hangs does not say so itself
        say(f"attempt {number} {incident.get('words')}")


def _print(file: Path, prefix: str, tail: int | None, *, raw: bool) -> None:
    from collections import deque

    show = raw_line if raw else coloured_line
    with os.fdopen(open_regular(file), "rb") as lines:
        for line in deque(lines, tail) if tail else lines:
            shown = line.rstrip(b"\n") if raw else last_redrawn(line.rstrip(b"\n"))
            show(prefix + shown.decode(errors="replace"))
