"""The fence: what a dead supervisor left running is ended before its successor starts anything.

A tree goes down with its supervisor (`reaper`); this is for the day on which that failed: agent,
guard and reaper were killed together, and something below the ranks lived on. A process belongs to
a run if it carries the run's id in the environment that it was started with, or descends from one
that does. Only who holds the run's lease may ask: then no other supervisor of it lives.

What hides from it: a process that has wiped its own environment, and one of another user.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from holdfast.agent.daemon.pidfds import has_ended
from holdfast.agent.reaper.processes import RESCAN_S, STUCK_AFTER_S, descendants
from holdfast.config.rank import rank_marks
from holdfast.errors import RunHeld


def fence(run_id: str, host: int | None = None, *, limit_s: float = STUCK_AFTER_S) -> list[int]:
    """End every process of the run on this host; the pids of those that were there.

    `host`: only those of the host of that number, where one machine has several.

    Raises RunHeld when one is still there after `limit_s`: nothing may be started beside it.
    """
    mark = rank_marks(run_id, host)
    ended: dict[int, None] = {}
    below: dict[int, int] = {}  # what descends from them, with a mark or without: pid → pidfd
    give_up_s = time.monotonic() + limit_s
    try:
        while left := _marked(mark) + [pid for pid, fd in below.items() if not has_ended(fd)]:
            for child in [child for pid in left for child in descendants(pid)]:  # while it is below
                if child not in below:
                    with contextlib.suppress(OSError):
                        below[child] = os.pidfd_open(child)
            ended |= dict.fromkeys([*left, *below])
            for pid in left:
                _kill(pid, mark)
            for fd in below.values():
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            if time.monotonic() > give_up_s:
                pids = ", ".join(map(str, left))
                raise RunHeld(
                    f"processes {pids} of an earlier attempt of this run survive SIGKILL on this "
                    "host: reboot it, or start the run on another"
                )
            time.sleep(RESCAN_S)
    finally:
        for fd in below.values():
            os.close(fd)
    return list(ended)


def _marked(mark: tuple[bytes, ...]) -> list[int]:
    """Live processes that carry the mark; never ourselves, nor what we were started from.

    Who starts a run from a shell inside that very run's training process keeps the shell, and all
    that runs below it.
    """
    found = [pid for pid in descendants(0) if _carries(pid, mark)]
    spared = {os.getpid()}
    for pid in _ancestors():
        if pid in found:
            spared |= {pid, *descendants(pid)}
    return [pid for pid in found if pid not in spared]


def _ancestors() -> list[int]:
    pids, pid = [], os.getppid()
    while pid > 1:
        pids.append(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            break
        pid = int(text.rpartition(b")")[2].split()[1])
    return pids


def _carries(pid: int, mark: tuple[bytes, ...]) -> bool:
    try:
        found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or not ours to read
        return False
    return all(one in found for one in mark)


def _kill(pid: int, mark: tuple[bytes, ...]) -> None:
    """SIGKILL, through a pidfd: between a look and a kill a pid may become another's."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
