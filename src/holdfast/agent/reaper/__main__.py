"""The reaper: a small parent for an attempt's ranks, so that none of their processes outlives it.

Runs as a program of its own (`python -I -S reaper/__main__.py`, standard library only: it is up in
some 15 ms) between the agent and the ranks. It is two processes, agent → guard → reaper → ranks:

- The reaper is a child subreaper: whatever the ranks leave behind, double-forked sessions included,
  is reparented to it, and dies with the attempt.
- End of file on its standard input means that the agent is gone: it kills the whole tree and
  ends. Its own parent-death signal says the same. Nothing else makes it end early: signals meant
  for others are swallowed.
- It speaks JSON lines. In: perhaps a `standby`, one `launch`, then `free`, `signal` and `kill`.
  Out: `launched` or `spawn_failed`, `exit` per rank, `stuck` for processes that survive SIGKILL,
  `gone`.
- `standby` starts one interpreter for each rank ahead of the launch, which wakes it: it becomes the
  rank. What it says of itself is passed on as `standby`; its death before that is `standby_lost`.
- The guard is its parent, and a subreaper too. It does nothing until the reaper has ended; what is
  left then (the reaper was killed, with the agent or without it) has come to the guard, and dies.
- A rank itself dies with its reaper by the kernel's hand (PR_SET_PDEATHSIG; the reaper has one
  thread), even when agent, guard and reaper are killed in one instant.

Times in its messages are CLOCK_BOOTTIME nanoseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

if not __package__:  # run by its path: the package is found beside the standard library, not first
    sys.path.append(__file__.rpartition("/reaper/")[0])
    __package__ = "reaper"

from .loop import Reaper
from .processes import (
    CONTROL_FD,
    RESCAN_S,
    STUCK_AFTER_S,
    descendants,
    has_children,
    report,
    signal_to,
    take_place,
)

TYPE_CHECKING = False  # what `typing` would say, without importing it
if TYPE_CHECKING:
    from typing import NoReturn

REAPER_LIMIT_S = 5.0  # a reaper that is stopped, or wedged, when its agent is gone


def stand_guard(reaper: int, wakeup_fd: int) -> None:
    """Return when the reaper has ended and nothing that it left behind is alive.

    It is given a while to do its work when the agent is gone; then it is wedged, and killed too.
    """
    poll = select.poll()
    poll.register(CONTROL_FD, 0)  # never read here: only its hang-up is told
    poll.register(wakeup_fd, select.POLLIN)
    limit_ms = None
    while not _has_ended(reaper):
        ready = poll.poll(limit_ms)
        if not ready:
            signal_to(reaper, signal.SIGKILL)
        for fd, _ in ready:
            if fd == wakeup_fd:
                os.read(wakeup_fd, 512)
            else:
                poll.unregister(CONTROL_FD)
                limit_ms = REAPER_LIMIT_S * 1000
    began, stuck_reported = time.monotonic(), False
    while has_children():
        left = descendants(os.getpid())
        for pid in left:
            signal_to(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if left and time.monotonic() - began > STUCK_AFTER_S and not stuck_reported:
            stuck_reported = True
            report("stuck", pids=left)
        time.sleep(RESCAN_S)


def _has_ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def main(agent_pid: int) -> NoReturn:
    """Become the guard and its child, the reaper; serve until nothing is left."""
    for number in (
        signal.SIGCHLD,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        # A handler, not SIG_IGN: exec resets handlers to the default, but keeps "ignored".
        signal.signal(number, lambda *_: None)
    wakeup_fd = take_place(agent_pid, "hf-guard")
    guard_pid = os.getpid()
    reaper_pid = os.fork()
    if reaper_pid:
        stand_guard(reaper_pid, wakeup_fd)
    else:
        os.close(wakeup_fd)
        Reaper(guard_pid).run(take_place(guard_pid, "hf-reaper"))
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
