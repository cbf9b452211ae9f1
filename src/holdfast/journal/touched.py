"""Whether files may have changed since the last look; a look costs less than a reading."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Two writes within one tick of the file system's clock look like one, and what is written through a
# map shows in a file's times only after a while.
SETTLED_NS = 60_000_000_000


class Touched:
    """These files, by their sizes, times and inodes; or folders, whose times tell of new names."""

    __slots__ = ("_looked", "_paths")

    def __init__(self, *paths: Path) -> None:
        """Nothing is looked at yet."""
        self._paths = paths
        self._looked: tuple[tuple[int, ...], ...] | None = None

    def again(self) -> bool:
        """Look: whether any of them may have changed since the last look. The first is True."""
        before, self._looked = self._looked, tuple(map(_look, self._paths))
        newest_ns = max(look[0] for look in self._looked)
        return self._looked != before or time.time_ns() - newest_ns < SETTLED_NS


def _look(path: Path) -> tuple[int, ...]:
    try:
        info = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of some thousand files
    except OSError:
        return (0,)
    return info.st_mtime_ns, info.st_size, info.st_ino
