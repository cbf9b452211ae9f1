"""The fence: what a dead supervisor left running is ended before its successor starts anything.

A tree goes down with its supervisor (`reaper`); this is for the day on which that failed: agent,
guard and reaper were killed together, and something below the ranks lived on. A process belongs to
a run if it carries the run's id in the environment that it was started with, or descends from one
that does. Only who holds the run's lease may ask: then no other supervisor of it lives.

What hides from it: a process that has wiped its own environment, and one of another user. What is
spared: a process of a run with that id in another store, which is there. Who copies a run's folder
copies its id, and so may whoever writes the store.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from holdfast.agent.daemon.pidfds import has_ended
from holdfast.agent.reaper.processes import RESCAN_S, STUCK_AFTER_S, descendants
from holdfast.config.rank import RANK_VARIABLES, rank_marks
from holdfast.errors import RunHeld


class _Mark(NamedTuple):
    """What the processes of a run carry, and where the run is."""

    words: tuple[bytes, ...]
    folder: Path | None


def fence(
    run_id: str,
    host: int | None = None,
    *,
    folder: Path | None = None,
    limit_s: float = STUCK_AFTER_S,
) -> list[int]:
    """End every process of the run on this host; the pids of those that were there.

    `host`: only those of the host of that number, where one machine has several. `folder`: the
    run's; None: no process is of another store.

    Raises RunHeld when one is still there after `limit_s`: nothing may be started beside it.
    """
    mark = _Mark(rank_marks(run_id, host), folder)
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


def _marked(mark: _Mark) -> list[int]:
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


def _carries(pid: int, mark: _Mark) -> bool:
    try:
        found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or not ours to read
        return False
    return all(one in found for one in mark.words) and not _is_elsewhere(found, mark.folder)


def _is_elsewhere(environment: list[bytes], folder: Path | None) -> bool:
    """Whether a process says that its run is another folder, and that one is there."""
    if folder is None:
        return False
    said = dict(one.partition(b"=")[::2] for one in environment)
    store, name = (said.get(RANK_VARIABLES[key].encode()) for key in ("store", "run"))
    if not store or not name or b"://" in store:
        return False
    try:
        return not Path(os.fsdecode(store), os.fsdecode(name)).samefile(folder)
    except OSError:
        return False


def _kill(pid: int, mark: _Mark) -> None:
    """SIGKILL, through a pidfd: between a look and a kill a pid may become another's."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
