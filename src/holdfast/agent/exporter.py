"""The process that exports a run's numbers while it is supervised: `holdfast run --export`.

It reads what the run has written, as anybody could, with low priority; neither the trainer nor the
agent's loop knows of it. The upkeep thread looks once a second whether it is there, and starts it
again, later each time, when it is not. Its standard input is its lifeline: at end of file, also by
the agent's death, it tells the last numbers and ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

SOURCES = Path(__file__).parents[2]
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 300.0
CLOSE_LIMIT_S = 5.0  # for the last numbers; above what the process itself allows
LINE_CHARS = 400
MOST_SAID = 100  # different lines
PREFIX = "holdfast: "


class ExportProcess:
    """Keeps one there. `say` is called from threads of this module's own."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        paths = [str(SOURCES), environment.get("PYTHONPATH", "")]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._argv = [sys.executable, "-P", "-m", "holdfast.cli.main", "export", *arguments]
        self._say = say
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._retry_s = FIRST_RETRY_S
        self._not_before_s = 0.0
        self._said: set[str] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the process, if there is one."""
        process = self._process
        return [] if process is None else [process.pid]

    def look(self) -> None:
        """See that it is there; called now and then, waits for nothing."""
        with self._lock:
            if self._closed or time.monotonic() < self._not_before_s:
                return
            if self._process is not None and self._process.poll() is None:
                return
            self._not_before_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            _let_go(self._process)
            self._start()

    def close(self) -> None:
        """Have it tell the last numbers, and end; at the limit it is ended. Again: no effect."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is None:
            return
        _let_go(process)
        try:
            process.wait(CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._say("The exporters did not end in time and were killed")
            process.kill()
            process.wait()

    def _start(self) -> None:
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self._environment,
                text=True,
                errors="replace",
                start_new_session=True,  # a terminal's Ctrl-C is for the agent alone
            )
        except OSError as error:
            self._tell(f"the exporters cannot be started: {error.strerror or error}")
            return
        self._process = process
        hearing = threading.Thread(
            target=self._hear, args=(process.stderr,), name="holdfast-export", daemon=True
        )
        hearing.start()

    def _hear(self, lines: IO[str]) -> None:
        with contextlib.suppress(ValueError, OSError), lines:
            for line in lines:
                self._tell(line[:LINE_CHARS].strip().removeprefix(PREFIX))

    def _tell(self, words: str) -> None:
        """Once: what is tried again and again would say the same each time."""
        if words and words not in self._said and len(self._said) < MOST_SAID:
            self._said.add(words)
            self._say(f"export: {words}")


def _let_go(process: subprocess.Popen[str] | None) -> None:
    """End its standard input, its lifeline."""
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
