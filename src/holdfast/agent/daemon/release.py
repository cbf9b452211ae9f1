"""The release step: what tells the cloud, or whoever waits for it, that the host may be taken.

A command, started without a shell and given a minute, or a file that is touched: it, or the way to
it, may be nobody else's, or he could have the agent touch what he likes. A round may come again
after the agent was started anew, so a step must bear being done twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from holdfast.config.trusted import Untrusted, check_folders, open_trusted, own_uids

LIMIT_NS = 60_000_000_000


class ReleaseStep:
    """Done by `start`; a command is over when `poll` has words. Neither raises, or waits."""

    def __init__(self, argv: Sequence[str] = (), file: Path | None = None) -> None:
        self._argv = tuple(argv)
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None
        self._limit_ns = 0
        self._trouble = ""  # with the file

    def check(self) -> None:
        """Raise Untrusted where others may change what the file's path leads to."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # its folder may be made later
                check_folders(self._file, own_uids())

    @property
    def words(self) -> str:
        """What it is, for people."""
        steps = [f"touch {self._file}"] if self._file is not None else []
        steps += [f"run {' '.join(self._argv)}"] if self._argv else []
        return " and ".join(steps) or "do nothing (no release step is set)"

    @property
    def deadline_ns(self) -> int | None:
        """By when the command must be done; None: none runs."""
        return None if self._process is None else self._limit_ns

    def start(self, now_ns: int) -> tuple[bool, str] | None:
        """Touch the file, start the command; whether that was done, if it is done already.

        A file that cannot be touched makes the step a failed one; the command is run all the same.
        """
        self._trouble = ""
        if self._file is not None:
            try:
                _touch(self._file)
            except Untrusted as error:
                self._trouble = str(error)
            except OSError as error:
                self._trouble = f"{self._file}: {error.strerror}"
        if not self._argv:
            return not self._trouble, self._trouble or self.words
        if self._process is not None:
            return False, "the command of an earlier release still runs"
        try:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return False, f"{error.filename or self._argv[0]}: {error.strerror}"
        self._limit_ns = now_ns + LIMIT_NS
        return None

    def poll(self, now_ns: int) -> tuple[bool, str] | None:
        """How the command ended; None: it runs, or none was started."""
        process = self._process
        if process is None:
            return None
        code = process.poll()
        if code is None and now_ns < self._limit_ns:
            return None
        self._process = None
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False, f"{self.words}: ended, it took longer than a minute"
        words = f"{self.words}: exit code {code}"
        if self._trouble:
            return False, f"{self._trouble}; {words}"
        return code == 0, words

    def close(self) -> None:
        """Let a command that runs come to its own end: the host is being released."""
        self._process = None


def _touch(path: Path) -> None:
    descriptor = open_trusted(path, own_uids(), os.O_WRONLY | os.O_CREAT)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)
