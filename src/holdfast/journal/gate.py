"""The gate: where ranks wait that were started ahead of their attempt, until they are let go on.

A FIFO in the attempt's scratch folder, and beside it a file that says what the attempt starts from.
The file is written first, then a byte into the FIFO, which nobody takes out again: whoever waits
wakes, whoever comes later does not wait. Before that nothing of the attempt that still runs may be
touched.

Who has stood there for a moment tells what he has read, so that a script that is edited meanwhile
is seen.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from holdfast.core.value import value
from holdfast.journal.fields import load_json, text, whole, whole_or_none

NAME = "gate"
WORD = "go.json"
LEISURE_MS = 500  # a restart is through by then: nobody is kept from it by what is told here
LOST_LOOK_S = 0.1


@value
class Go:
    """What an attempt starts from. `place`: where the set lies in memory; None: in the store."""

    set_name: str | None
    step: int
    parent: int | None
    skip_batches: int
    place: str | None
    ended_until: int | None = None


class Gate:
    """The side that opens it; raises OSError where none can be made."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._word = folder / WORD
        os.mkfifo(self.path, 0o600)
        # For reading and writing: whoever opens it to read meets a writer, and no end of file.
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def open(self, go: Go) -> None:
        """Let all go on, those that are not there yet as well; raises OSError."""
        draft = self._word.with_suffix(".new")
        draft.write_text(json.dumps(asdict(go)))
        draft.replace(self._word)
        os.write(self._fd, b".")

    def close(self) -> None:
        """Nobody comes any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def wait(
    path: Path, at_leisure: Callable[[], None], meanwhile: Callable[[], None] = lambda: None
) -> Go:
    """Stand at the gate until it opens; `at_leisure` is called once if that takes a moment.

    `meanwhile` is called first, if it is not open yet: there is time for it then, or soon.

    Raises OSError, ValueError for what is no gate.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(0):
            meanwhile()
        if not poll.poll(LEISURE_MS):
            at_leisure()
        while not any(events & select.POLLIN for _, events in poll.poll()):
            time.sleep(LOST_LOOK_S)  # its keeper is gone; so are we, as soon as our parent notices
    finally:
        os.close(fd)
    fields = load_json(path.with_name(WORD).read_bytes())
    if not isinstance(fields, dict):
        raise ValueError(f"{path.with_name(WORD)} is no object")
    name, place = fields.get("set_name"), fields.get("place")
    return Go(
        None if name is None else text(fields, "set_name"),
        whole(fields, "step"),
        whole_or_none(fields, "parent"),
        whole(fields, "skip_batches"),
        None if place is None else text(fields, "place"),
        whole_or_none(fields, "ended_until"),
    )


# --- what was read by those who wait -----------------------------------------------------------


class Mark(NamedTuple):
    """A file as it was: it is another when one of these is."""

    mtime_ns: int
    size: int
    inode: int


def mark(path: str) -> Mark | None:
    """How a file is now; None when it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of them
    except OSError:
        return None
    return Mark(status.st_mtime_ns, status.st_size, status.st_ino)


def files_path(folder: Path, rank: int) -> Path:
    """Where a rank tells what it has read."""
    return folder / f"at-the-gate-{rank:05d}.json"


def encode_files(paths: Iterable[str]) -> dict[str, list[int]]:
    """What is told: the files, as they are."""
    marks = ((path, mark(path)) for path in paths)
    return {path: list(found) for path, found in marks if found is not None}


def read_files(path: Path) -> dict[str, Mark] | None:
    """The inverse; None while it is not there. Raises OSError, ValueError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    fields = load_json(data)
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is no object")
    for numbers in fields.values():
        if not isinstance(numbers, list) or [type(one) for one in numbers] != [int, int, int]:
            raise ValueError(f"{path} says {numbers!r:.50} of a file")
    return {name: Mark(*numbers) for name, numbers in fields.items()}
