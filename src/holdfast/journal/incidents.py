"""Incidents: the story of an attempt that ended before the run was done, one file an attempt.

Written before the attempt's end is: an attempt that is closed has its story, whoever dies between.
The first writer's stands, like the first record of an end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_part,
    read_json,
    write_atomic,
)
from holdfast.journal.regular import open_regular
from holdfast.journal.store import RunFolder

INCIDENT_FILE = "incident.json"
RESTART_FILE = "restart.json"
KEPT_LINES = 40
TAIL_BYTES = 1 << 16


def write_incident(folder: RunFolder, attempt: int, story: Mapping[str, Any]) -> None:
    """Put it on record, unless there is one already; raises StoreUnavailable.

    Keys: attempt, cause, words, rank, exits (per rank: exit code, -signal, or None: nobody saw it),
    last_lines (of the rank that broke), traceback, stacks (names of files beside it, if it hung),
    where (it hung, in the script; "": it did not, or nobody knows).
    """
    make_part(folder.incidents_dir(attempt))
    with contextlib.suppress(FileExistsError):
        create_exclusive(folder.incidents_dir(attempt) / INCIDENT_FILE, encode_json(dict(story)))


def write_restart(folder: RunFolder, attempt: int, story: Mapping[str, Any]) -> None:
    """Put on record how the restart after an attempt went; raises StoreUnavailable.

    Keys: phases_ns (by name, in order), woken (ranks that began as standbys), cold (rank: why not),
    standby_ready_ns (how old the attempt that broke was when its standbys were ready).
    """
    path = folder.attempt_dir(attempt) / RESTART_FILE
    write_atomic(path, encode_json(dict(story)), durable=False)


def restart_of(folder: RunFolder, attempt: int) -> dict[str, Any] | None:
    """What is on record of it; None when there is nothing that can be read."""
    try:
        return read_json(folder.attempt_dir(attempt) / RESTART_FILE)
    except (FileNotFoundError, StoreUnavailable):
        return None


class StandbyNote(NamedTuple):
    """Of one restart: whether some rank had no standby, and when all were ready.

    `ready_ns`: the age of the attempt before then; None: nobody said.
    """

    is_cold: bool
    ready_ns: int | None


def standby_notes(folder: RunFolder, attempts: Iterable[int]) -> dict[int, StandbyNote]:
    """What is on record of the restarts after these attempts."""
    found = {}
    for attempt in attempts:
        story = restart_of(folder, attempt)
        if story is not None:
            ready_ns = story.get("standby_ready_ns")
            is_told = type(ready_ns) is int and ready_ns > 0
            found[attempt] = StandbyNote(bool(story.get("cold")), ready_ns if is_told else None)
    return found


def incident_of(folder: RunFolder, attempt: int) -> dict[str, Any] | None:
    """The incident on record; None when there is none that can be read."""
    try:
        return read_json(folder.incidents_dir(attempt) / INCIDENT_FILE)
    except (FileNotFoundError, StoreUnavailable):
        return None


def story_of(
    attempt: int,
    cause: str,
    words: str,
    *,
    exits: Sequence[int | None],
    rank: int | None = None,
    last_lines: Iterable[str] = (),
    traceback: str | None = None,
    stacks: Sequence[str] = (),
    where: str = "",
) -> dict[str, Any]:
    """An incident as `write_incident` takes it."""
    return {
        "attempt": attempt,
        "cause": cause,
        "words": words,
        "rank": rank,
        "exits": list(exits),
        "last_lines": list(last_lines)[-KEPT_LINES:],
        "traceback": traceback,
        "stacks": list(stacks),
        "where": where,
    }


def stacks_name(rank: int) -> str:
    """The file, beside the incident, that says where a rank stood when it hung."""
    return f"rank-{rank:05d}.stacks.txt"


def write_stacks(folder: RunFolder, attempt: int, stacks: Mapping[int, str]) -> None:
    """Put ranks' stacks beside the incident that will name them; raises StoreUnavailable."""
    for rank, text in stacks.items():
        write_atomic(folder.incidents_dir(attempt) / stacks_name(rank), text.encode())


def last_lines(log: Path) -> list[str]:
    """The end of a rank's output; empty when there is none that can be read."""
    try:
        with os.fdopen(open_regular(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-KEPT_LINES:]
