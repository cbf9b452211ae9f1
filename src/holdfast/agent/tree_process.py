"""The first process of a tree, the guard, as the agent holds it: started, or forked for us.

It ends when nothing of its tree is left, whoever was killed before it. One that the fork server has
forked is a child of ours as well: we are a subreaper, and its parent has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

from holdfast.agent.reaper import processes

REAPER = Path(processes.__file__).with_name("__main__.py")


class TreeProcess:
    """A guard, and the pipes to its reaper. `fds`: what the descriptors that we gave are there."""

    def __init__(
        self,
        pid: int,
        control: IO[bytes],
        report: IO[bytes],
        fds: Mapping[int, int],
        started: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.pid = pid
        self.control = control
        self.report_fd = report.fileno()
        self.fds = fds
        self.pidfd = os.pidfd_open(pid)
        os.set_blocking(self.report_fd, False)
        self._report = report
        self._started = started  # Popen wants to be the one that waits for what it has started
        self._is_over = False

    @classmethod
    def start(cls, output_fds: Collection[int]) -> TreeProcess:
        """One of its own; it takes over these descriptors."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REAPER), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=sorted(set(output_fds)),
            start_new_session=True,  # a terminal's Ctrl-C is for the agent alone
        )
        for fd in set(output_fds):
            os.close(fd)
        if process.stdin is None or process.stdout is None:  # for the type checker
            raise RuntimeError("Popen was asked for pipes")
        fds = {fd: fd for fd in output_fds}
        return cls(process.pid, process.stdin, process.stdout, fds, process)

    def has_ended(self) -> bool:
        """Whether it is no more, and so its tree."""
        return self._is_over or self._wait(0)

    def _wait(self, limit_ms: int | None) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(limit_ms):
            return False
        if self._started is not None:
            self._started.poll()
        else:
            with contextlib.suppress(OSError):  # whoever swept orphans may have waited for it
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        return True

    def kill(self) -> None:
        """SIGKILL; what is below it comes to us."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close_at_end(self) -> None:
        """Wait for its end, for as long as it takes, and let go of what is left of it here."""
        self._wait(None)
        self._is_over = True
        self._report.close()
        os.close(self.pidfd)
