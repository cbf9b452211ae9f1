"""The doorbell: a rank that has left something in its page has its supervisor look at once.

A FIFO beside the rank's live journal. The page is the truth: a bell that is not heard costs the
time to the supervisor's next look, and a ring without news costs one look. It is opened anew for
each ring, by name: a script may close every descriptor that it did not open, and the number of a
kept one may be another file by then.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NAME = "doorbell"
_DRAIN_BYTES = 4096


def ring(path: str) -> None:
    """Wake whoever listens, if somebody does. Never blocks, never raises; fit for a handler."""
    with contextlib.suppress(OSError):  # nobody there, or nobody has answered for a long time
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b".")
        finally:
            os.close(fd)


class Doorbell:
    """The listener's side; where no FIFO can be made it is silent, and its owner looks as ever."""

    def __init__(self, path: Path) -> None:
        self.fd: int | None = None  # readable when somebody has rung; None: it is silent
        with contextlib.suppress(OSError):
            os.mkfifo(path, 0o600)
            # For reading and writing: without a writer of its own it would be at its end for ever
            # once the first ring is over.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def answer(self) -> bool:
        """Whether it has rung since the last call."""
        rung = False
        with contextlib.suppress(OSError):
            while self.fd is not None and os.read(self.fd, _DRAIN_BYTES):
                rung = True
        return rung

    def close(self) -> None:
        """Listen no more."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)
