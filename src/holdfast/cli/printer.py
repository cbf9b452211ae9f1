"""Writing to a terminal without waiting for it.

A terminal may take no lines for hours (Ctrl-S, a pager, a pipe that nobody reads). One thread does
all the writing and waits there; the supervisor never does, neither while it runs nor at its exit.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import threading
import time
from collections.abc import Callable


class RawText(io.TextIOBase):
    """Text straight to a file descriptor.

    Without a buffer, because the interpreter's exit waits for the lock of a buffered stream, and
    aborts when a thread that is stuck in a write holds it.
    """

    encoding = "utf-8"

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> int:
        """All of it; raises OSError when nobody can ever read it."""
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # somebody who shares the terminal made it non-blocking
                select.select([], [self._fd], [])
        return len(text)

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Whether somebody looks on."""
        return os.isatty(self._fd)


class Printer:
    """Does what it is given, in order, in its own thread. A job that fails is forgotten."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._taken = 0  # jobs that are done
        self._thread = threading.Thread(target=self._run, name="holdfast-screen", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs the terminal has not taken yet."""
        return self._jobs.qsize()

    def put(self, job: Callable[[], None]) -> None:
        """Do this after everything else; never blocks."""
        self._jobs.put(job)

    def close(self, limit_s: float = 2.0, total_s: float = 30.0) -> bool:
        """Finish; False when the terminal takes nothing for `limit_s`, or not all in `total_s`."""
        self._jobs.put(None)
        end_s = time.monotonic() + total_s
        before = -1
        while self._thread.is_alive() and self._taken != before and time.monotonic() < end_s:
            before = self._taken
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            # A closed or broken terminal must not end the supervisor.
            with contextlib.suppress(OSError, ValueError):
                job()
            self._taken += 1
