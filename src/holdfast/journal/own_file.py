"""A file that is kept open for days, in a process whose script may close every descriptor.

Programs that turn themselves into daemons do, and libraries that start others carelessly. The
number may then be somebody else's file, which we would write into, or close. So before each use it
is looked at, and opened anew by its name where it is no longer ours.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from holdfast.journal.regular import open_regular


class OwnFile:
    """A descriptor that is ours whenever it is asked for."""

    __slots__ = ("_fd", "_flags", "_identity", "_path", "is_shaken")

    def __init__(self, path: Path, fd: int, flags: int) -> None:
        """Take over `fd`, open on `path` with `flags` (those to open it with again)."""
        self._path = path.absolute()
        self._fd = fd
        self._flags = flags
        self._identity = _identity(fd)
        self.is_shaken = False  # descriptors of ours were closed: mappings have some, too

    def descriptor(self) -> int:
        """The file's descriptor; raises OSError when it is gone, or another has its name."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        if not self._is_ours(self._fd):
            self.is_shaken = True
            fd = open_regular(self._path, self._flags)
            if not self._is_ours(fd):
                os.close(fd)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
            self._fd = fd
        return self._fd

    def close(self) -> None:
        """Close the file, if it is still ours to close. Again: no effect."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if self._is_ours(fd):
            os.close(fd)
        else:
            self.is_shaken = True

    def _is_ours(self, fd: int) -> bool:
        try:
            return _identity(fd) == self._identity
        except OSError:
            return False


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
