"""What other threads and signal handlers leave for a loop over a selector.

SIGTERM is a notice with the grace period, and so are SIGHUP (the terminal or the session went
away) and SIGUSR1 (Slurm's early signal); SIGINT is a person: once saves and stops, twice stops now;
SIGQUIT stops now. What `--notice signal:…` names means what it says there instead. A SIGHUP that is
ignored already (`nohup`) stays so.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Generic, TypeVar

from holdfast.errors import EXIT_SAVED_START_ME_AGAIN

STDERR = 2
NOTICES = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
WATCHED = (*NOTICES, signal.SIGINT, signal.SIGQUIT)

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

    wanted = [int(number) for number in WATCHED if not _is_for_nobody(number)]
    numbers = dict.fromkeys([*wanted, *also])
    for number in numbers:
        signal.signal(number, handler)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return ignore


def leave_until_watched() -> None:
    """Until `watch_signals`, have a notice end this process with 75: there is nothing to save yet.

    By default it would end by the signal, which counts as a failure where it was started.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        with contextlib.suppress(OSError):
            os.write(STDERR, f"holdfast: {name}: nothing runs yet; start it again\n".encode())
        raise SystemExit(EXIT_SAVED_START_ME_AGAIN)

    for number in NOTICES:
        if not _is_for_nobody(number):
            signal.signal(number, leave)


def _is_for_nobody(number: int) -> bool:
    """Whether whoever has started us wants us to outlive the terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
