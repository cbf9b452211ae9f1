"""The door at which a rank is asked for a profile: a FIFO beside its live journal.

The rank's thread waits in `open`, by name, until somebody opens the other end. So it costs nothing
until then, and holds no descriptor that a script could close, or take for its own.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from holdfast.journal import fields
from holdfast.journal.names import check_name

MAX_ASKED_BYTES = 4096  # so that it is written in one piece (PIPE_BUF)
_SUFFIX = ".profile"


class ProfileWish(NamedTuple):
    """What a rank is asked for. `name`: of the profile; `limit_s`: for all of it."""

    name: str
    steps: int
    limit_s: float


def door_path(journal: Path) -> Path:
    """Where the door of the rank with that live journal is."""
    return journal.with_suffix(_SUFFIX)


def make_door(journal: Path) -> Path | None:
    """The rank makes it; None: it cannot."""
    path = door_path(journal)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        return path
    return None


def knock(journal: Path, wish: ProfileWish) -> bool:
    """Ask the rank with that live journal; False: it does not listen. Never waits."""
    data = json.dumps([wish.name, wish.steps, wish.limit_s]).encode() + b"\n"
    try:
        fd = os.open(door_path(journal), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.write(fd, data) == len(data)
        finally:
            os.close(fd)
    except OSError:
        return False


def close_door(path: Path) -> None:
    """The rank takes it away; whoever waits there comes back with nothing."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:  # as long as somebody may write, nobody waits in `open`
            path.unlink()
        finally:
            os.close(fd)


def wait_at(path: Path) -> list[ProfileWish]:
    """Wait until somebody knocks; what was asked then. Raises OSError where the door is gone."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    data = b""
    try:
        while len(data) <= MAX_ASKED_BYTES and (block := os.read(fd, MAX_ASKED_BYTES)):
            data += block
    finally:
        os.close(fd)
    wishes = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            name, steps, limit_s = fields.load_json(line)
            wishes.append(ProfileWish(check_name(str(name)), int(steps), float(limit_s)))
    return wishes
