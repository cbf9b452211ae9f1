"""Opening files that somebody else may have put there: without waiting, without being led away.

What lies in a store or a scratch folder under a file's name may be anything: a FIFO would block
its reader for ever, a device may act when it is opened, a link leads out of the store. So every
such file is opened here: neither it nor its folder may be a link, nothing is waited for, and what
is no regular file is refused with an OSError that says so. (`RunStore.get` looks at the folders
above.) A store's own root, and files that a user names (a configuration, a history), may be links:
they are the user's to arrange. Whoever may write in a store can still swap a folder between a look
and the next; against that the store's mode, 0700, is the defence.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# O_NONBLOCK means nothing to a regular file; a FIFO's open returns at once because of it.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`, which is not a link; closed by the caller.

    Raises OSError: FileNotFoundError, IsADirectoryError, ELOOP for a link, ENXIO for a FIFO, a
    socket or a device, and whatever else `os.open` meets.
    """
    refuse_link(os.path.dirname(path))  # noqa: PTH120 - a str or a Path, and often opened
    descriptor = os.open(path, flags | _SAFELY, 0o600)
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            number = errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO
            raise OSError(number, _strerror(number), os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The bytes of a regular file, at most `max_bytes` and one: that one says it is too long.

    Memory is that of what the file holds, never more. Raises OSError as `open_regular` does.
    """
    descriptor = open_regular(path)
    try:
        wanted = min(os.fstat(descriptor).st_size, max_bytes) + 1
        data = b""
        while len(data) < wanted and (block := os.read(descriptor, wanted - len(data))):
            data = data + block if data else block
        return data
    finally:
        os.close(descriptor)


def refuse_link(folder: str | os.PathLike[str]) -> None:
    """Raise OSError (ELOOP) when `folder` is a link; a missing one is left to who opens it."""
    try:
        kind = os.lstat(folder or ".").st_mode
    except OSError:
        return
    if stat.S_ISLNK(kind):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(folder))


def is_real_folder(path: Path) -> bool:
    """Whether `path` is a folder and no link to one; False when there is nothing."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _strerror(number: int) -> str:
    return "Is a folder" if number == errno.EISDIR else "Is a pipe, a socket or a device"
