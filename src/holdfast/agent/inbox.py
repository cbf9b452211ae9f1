"""What other threads and signal handlers leave for a loop over a selector.

SIGTERM is a notice with the grace period, and so are SIGHUP (the terminal or the session went
away) and SIGUSR1 (Slurm's early signal); SIGINT is a person: once saves and stops, twice stops now;
SIGQUIT stops now. What `--notice signal:…` names means what it says there instead.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Generic, TypeVar

WATCHED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGQUIT,
)

T = TypeVar("T")


class Inbox(Generic[T]):
    """Things that other threads and signal handlers leave for the loop; `fileno` wakes a select."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._unread = 0  # items that were taken, and whose bytes in the pipe were not
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
        if not self._unread and self._items.empty():
            return
        with contextlib.suppress(BlockingIOError):
            while read := os.read(self._read_fd, 4096):
                self._unread -= len(read)
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._items.get_nowait()
                self._unread += 1
                yield item

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read_fd)
        os.close(self._write_fd)


def watch_signals(arrived: Callable[[int], None], also: Collection[int] = ()) -> Callable[[], None]:
    """Call `arrived(number)` for each; returns what has them ignored, once the end is decided.

    `also`: signals that mean something to a source of notices.

    Not the old handlers: by default a signal ends the process, with an exit code that is not the
    run's and before the lease is given back.
    """

    def handler(number: int, _frame: FrameType | None) -> None:
        arrived(number)

    numbers = dict.fromkeys([*map(int, WATCHED), *also])
    for number in numbers:
        signal.signal(number, handler)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return ignore
