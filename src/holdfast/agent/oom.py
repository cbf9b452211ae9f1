"""Whether the kernel killed a rank for want of memory: the counts of the cgroups it was seen in.

A SIGKILL tells nobody who sent it. The kernel counts its own, per cgroup of the victim: in
`memory.events` (v2) or `memory.oom_control` (v1). A dead process has no cgroup any more, and a
wrapper may move a rank into another one after its start, so each rank is looked at while it lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LOOK_EVERY_NS = 500_000_000
_KEY = b"oom_kill"


class OomWatch:
    """One attempt's ranks. `root` is where cgroups are mounted, `proc` the process table."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._before: dict[Path, int] = {}
        self._seen_in: dict[int, set[Path]] = {}
        # The whole machine's count: only for a rank whose cgroup shows none.
        self._vmstat = proc / "vmstat"
        self._count_first(self._vmstat)
        self._next_look_ns = 0

    def look(self, pids: dict[int, int], now_ns: int) -> None:
        """Where the ranks (rank → pid) are now; a few times a second is often enough."""
        if not pids or now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + LOOK_EVERY_NS
        for rank, pid in pids.items():
            for counter in self._counters(pid):
                self._seen_in.setdefault(rank, set()).add(counter)
                self._count_first(counter)

    def has_killed(self, rank: int) -> bool:
        """Whether a count that concerns the rank has gone up."""
        counters = self._seen_in.get(rank) or {self._vmstat}
        return any((_count(path) or 0) > self._before[path] for path in counters)

    def _count_first(self, counter: Path) -> None:
        self._before.setdefault(counter, _count(counter) or 0)

    def _counters(self, pid: int) -> Iterator[Path]:
        """The counters of a process's cgroup that are there, by /proc/PID/cgroup (cgroups(7))."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            number, controllers, path = line.split(":", 2)
            if number == "0":
                mounts, name = [self._root, self._root / "unified"], "memory.events"
            elif "memory" in controllers.split(","):
                mounts, name = [self._root / "memory"], "memory.oom_control"
            else:
                continue
            # In a container the mount may begin at the very cgroup that the path still names.
            places = [mount / part for mount in mounts for part in (path.lstrip("/"), "")]
            for counter in (place / name for place in places):
                if _count(counter) is not None:
                    yield counter
                    break


def _count(counter: Path) -> int | None:
    """How many the kernel has killed by this counter; None if it does not say."""
    try:
        lines = counter.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(b" ")
        if name == _KEY and value.strip().isdigit():
            return int(value)
    return None
