"""The ranks' output: from their pipes to a log file and to the screen.

A rank must never wait for us. One thread drains all pipes; a log that cannot be written (disk
full) or a screen that does not take its lines is counted and skipped, and the pipes stay empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from holdfast.journal.regular import open_regular

PIPE_BYTES = 1 << 20
LAST_ROUNDS = 4  # each takes all that a pipe holds
KEPT_LINES = 60
UNFINISHED_SHOWN = 1000
LOG_LIMIT_BYTES = 256 << 20  # a rank that prints without end must not fill the disk


class RankOutput:
    """One rank's pipe, log and last lines. The pipe may be there long before the log is."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        with contextlib.suppress(OSError):  # the kernel's limit for unprivileged users
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._lost_bytes = 0
        self._partial = b""
        self._written_bytes = 0
        self._log_fd: int | None = None

    def log_to(self, log: Path) -> None:
        """Keep what is drained from now on in this file, if it can be written."""
        with contextlib.suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._log_fd = open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def drain(self) -> tuple[list[str], bool]:
        """Read what is there: `(complete lines, whether the pipe is still open)`."""
        try:
            data = os.read(self.read_fd, PIPE_BYTES)
        except BlockingIOError:
            return [], True
        if not data:
            return [], False
        self._keep(data)
        *whole, rest = (self._partial + data).split(b"\n")
        lines = [last_redrawn(line).decode(errors="replace") for line in whole]
        self.last_lines.extend(lines)
        end = b"\r" if rest.endswith(b"\r") else b""  # what follows is a line's end, or redraws it
        self._partial = last_redrawn(rest) + end if len(rest) <= PIPE_BYTES else b""
        return lines, True

    @property
    def unfinished(self) -> str:
        """How the line stands that has no end yet: a progress bar, perhaps."""
        return self._partial[:UNFINISHED_SHOWN].decode(errors="replace").rstrip("\r")

    def rest(self) -> list[str]:
        """A last line that never got its end, if there is one."""
        rest = [last_redrawn(self._partial).decode(errors="replace")] if self._partial else []
        self._partial = b""
        self.last_lines.extend(rest)
        return rest

    def _keep(self, data: bytes) -> None:
        """To the log, up to a limit. Where something is missing, the log says so."""
        if self._log_fd is None or self._written_bytes > LOG_LIMIT_BYTES:
            return
        try:
            if self._lost_bytes:
                os.write(self._log_fd, f"\n[{self._lost_bytes} bytes were lost here]\n".encode())
                self._lost_bytes = 0
            written = os.write(self._log_fd, data)
        except OSError:  # no space left
            written = 0
        self._lost_bytes += len(data) - written
        self._written_bytes += written
        if self._written_bytes > LOG_LIMIT_BYTES:
            first = f"the first {LOG_LIMIT_BYTES >> 20} MiB"
            says = f"\n[what follows {first} is not kept, but for the last lines]\n"
            with contextlib.suppress(OSError):
                os.write(self._log_fd, says.encode())

    def close(self) -> None:
        """Close what is still open; a log that was too long ends with the last lines."""
        os.close(self.read_fd)
        if self._log_fd is None:
            return
        if self._written_bytes > LOG_LIMIT_BYTES:
            lines = (line[:UNFINISHED_SHOWN] for line in self.last_lines)
            last = "\n".join([f"[the last {len(self.last_lines)} lines]", *lines, ""])
            with contextlib.suppress(OSError):
                os.write(self._log_fd, last.encode(errors="replace"))
        os.close(self._log_fd)


def last_redrawn(line: bytes) -> bytes:
    """What a terminal shows in the end of a line that was redrawn with carriage returns.

    A progress bar redraws its line a thousand times, and is one line.
    """
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class OutputPump:
    """The thread that drains the pipes of one attempt; `screen` gets their lines, from it.

    `unfinished` gets how a rank's line without an end stands; "": there is none.
    """

    def __init__(
        self,
        outputs: list[RankOutput],
        screen: Callable[[int, str], None],
        unfinished: Callable[[int, str], None] = lambda _rank, _text: None,
    ) -> None:
        self._outputs = outputs
        self._screen = screen
        self._unfinished = unfinished
        self._stop_read_fd, self._stop_write_fd = os.pipe()
        self._reader = threading.Thread(target=self._read, name="holdfast-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop_read_fd, selectors.EVENT_READ, None)
            for output in self._outputs:
                selector.register(output.read_fd, selectors.EVENT_READ, output)
            still_open, stopping, rounds = len(self._outputs), False, LAST_ROUNDS
            while still_open and rounds:
                ready = selector.select(0 if stopping else None)
                if stopping:  # somebody may still hold a pipe, and print without end
                    rounds = rounds - 1 if ready else 0
                for key, _ in ready:
                    if key.data is None:
                        stopping = True
                        selector.unregister(self._stop_read_fd)
                    elif not self._forward(key.data):
                        still_open -= 1
                        selector.unregister(key.data.read_fd)
        for output in self._outputs:
            self._show(output.rank, output.rest())
            self._unfinished(output.rank, "")

    def _forward(self, output: RankOutput) -> bool:
        lines, is_open = output.drain()
        self._show(output.rank, lines)
        self._unfinished(output.rank, output.unfinished)
        return is_open

    def _show(self, rank: int, lines: list[str]) -> None:
        for line in lines:
            self._screen(rank, line)

    def finish(self) -> None:
        """Take what the pipes still hold, whoever still has them open, and close them."""
        os.write(self._stop_write_fd, b".")
        self._reader.join()
        for output in self._outputs:
            output.close()
        os.close(self._stop_read_fd)
        os.close(self._stop_write_fd)
