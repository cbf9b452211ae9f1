"""What other threads and signal handlers leave for a loop over a selector."""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Things that other threads and signal handlers leave for the loop; `fileno` wakes a select."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)

    def fileno(self) -> int:
        """Readable when something waits."""
        return self._read_fd

    def put(self, item: T) -> None:
        """Leave something; never blocks."""
        self._items.put(item)
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes just as well
            os.write(self._write_fd, b".")

    def take(self) -> Iterator[T]:
        """Everything that waits, oldest first."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_fd, 4096):
                pass
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._items.get_nowait()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read_fd)
        os.close(self._write_fd)
