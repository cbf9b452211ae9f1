"""The guard and its child, the reaper, from the first to the last."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from .loop import Reaper
from .processes import (
    CONTROL_FD,
    RESCAN_S,
    LeftAlive,
    descendants,
    has_children,
    signal_to,
    spawn,
    take_place,
)

TYPE_CHECKING = False  # what `typing` would say, without importing it
if TYPE_CHECKING:
    from typing import NoReturn

    from .loop import Start

# Meant for others: for the ranks, or for all processes of a service.
SWALLOWED = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
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
    began, left_alive = time.monotonic(), LeftAlive()
    while has_children():
        left = descendants(os.getpid())
        for pid in left:
            signal_to(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left_alive.tell(left, time.monotonic() - began)
        time.sleep(RESCAN_S)


def _has_ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def main(agent_pid: int, start: Start = spawn) -> NoReturn:
    """Become the guard and its child, the reaper; serve until nothing is left.

    `start`: how an interpreter that stands by is started.
    """
    for number in SWALLOWED:
        # A handler, not SIG_IGN: exec resets handlers to the default, but keeps "ignored".
        signal.signal(number, lambda *_: None)
    wakeup_fd = take_place(agent_pid, "hf-guard")
    guard_pid = os.getpid()
    reaper_pid = os.fork()
    if reaper_pid:
        stand_guard(reaper_pid, wakeup_fd)
    else:
        os.close(wakeup_fd)
        Reaper(guard_pid, start).run(take_place(guard_pid, "hf-reaper"))
    os._exit(0)
