"""The agent's store worker: what touches the run store happens in its thread, in order.

The loop must answer a signal at once even when the store hangs. A job gives an event (or None),
which comes back to the loop through `Inbox`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
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


class Worker:
    """One thread, one queue of jobs. A job handles its own expected errors."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = failed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Do this after everything submitted before it."""
        self._jobs.put(job)

    def close(self, limit_s: float) -> bool:
        """Finish what was submitted; False when that takes longer than `limit_s`."""
        self._jobs.put(None)
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._failed(error)
