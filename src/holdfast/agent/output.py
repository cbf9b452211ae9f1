"""The ranks' output: from their pipes to a log file and to the screen.

A rank must never wait for us. One thread drains all pipes; a log that cannot be written (disk
full) or a screen that does not take its lines is counted and skipped, and the pipes stay empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import selectors
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

PIPE_BYTES = 1 << 20
KEPT_LINES = 60
SCREEN_QUEUE_LINES = 10_000
LOG_LIMIT_BYTES = 256 << 20  # a rank that prints without end must not fill the disk


class RankOutput:
    """One rank's pipe, log and last lines."""

    def __init__(self, rank: int, log: Path) -> None:
        self.rank = rank
        self.log = log
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        with contextlib.suppress(OSError):  # the kernel's limit for unprivileged users
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped_bytes = 0
        self._partial = b""
        self._written_bytes = 0
        self._log_fd = self._open_log()

    def _open_log(self) -> int | None:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:
            return None

    def drain(self) -> tuple[list[str], bool]:
        """Read what is there: `(complete lines, whether the pipe is still open)`."""
        try:
            data = os.read(self.read_fd, PIPE_BYTES)
        except BlockingIOError:
            return [], True
        if not data:
            rest = [self._partial.decode(errors="replace")] if self._partial else []
            self._partial = b""
            self.last_lines.extend(rest)
            return rest, False
        self._keep(data)
        # A progress bar redraws its line with carriage returns: each redraw counts as a line.
        *whole, self._partial = (self._partial + data).replace(b"\r\n", b"\n").split(b"\n")
        lines = [line.decode(errors="replace") for line in whole]
        self.last_lines.extend(lines)
        if len(self._partial) > PIPE_BYTES:
            self._partial = b""
        return lines, True

    def _keep(self, data: bytes) -> None:
        if self._log_fd is None or self._written_bytes > LOG_LIMIT_BYTES:
            self.dropped_bytes += len(data)
            return
        try:
            self._written_bytes += os.write(self._log_fd, data)
        except OSError:
            self.dropped_bytes += len(data)

    def close(self) -> None:
        """Close what is still open."""
        os.close(self.read_fd)
        if self._log_fd is not None:
            os.close(self._log_fd)


class OutputPump:
    """The thread that drains the pipes of one attempt, and the one that feeds the screen."""

    def __init__(self, outputs: list[RankOutput], screen: Callable[[int, str], None]) -> None:
        self._outputs = outputs
        self._screen = screen
        self._lines: queue.Queue[tuple[int, str] | None] = queue.Queue(SCREEN_QUEUE_LINES)
        self._stop_read_fd, self._stop_write_fd = os.pipe()
        self._reader = threading.Thread(target=self._read, name="holdfast-output", daemon=True)
        self._printer = threading.Thread(target=self._print, name="holdfast-screen", daemon=True)
        self._reader.start()
        self._printer.start()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for output in self._outputs:
                selector.register(output.read_fd, selectors.EVENT_READ, output)
            selector.register(self._stop_read_fd, selectors.EVENT_READ, None)
            stopping = False
            while len(selector.get_map()) > 1:
                ready = selector.select(0 if stopping else None)
                if stopping and not ready:
                    break
                for key, _ in ready:
                    if key.data is None:
                        stopping = True
                        selector.unregister(self._stop_read_fd)
                        continue
                    if not self._forward(key.data):
                        selector.unregister(key.data.read_fd)
                if stopping and not any(k.data for k in selector.get_map().values()):
                    break
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=1.0)

    def _forward(self, output: RankOutput) -> bool:
        lines, is_open = output.drain()
        for line in lines:
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait((output.rank, line))
        return is_open

    def _print(self) -> None:
        while (item := self._lines.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._screen(*item)

    def finish(self, screen_limit_s: float = 2.0) -> None:
        """Take what the pipes still hold, whoever still has them open, and close them."""
        os.write(self._stop_write_fd, b".")
        self._reader.join()
        self._printer.join(screen_limit_s)
        for output in self._outputs:
            output.close()
        os.close(self._stop_read_fd)
        os.close(self._stop_write_fd)


def print_line(rank: int, line: str) -> None:
    """The plain screen: one prefixed line on standard output."""
    sys.stdout.write(f"[{rank}] {line}\n")
    sys.stdout.flush()
