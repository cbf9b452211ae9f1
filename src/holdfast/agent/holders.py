"""Which processes hold devices, as /proc tells: by open descriptors, and by mappings.

Every process of this PID namespace and of those below it is looked at, other users' and other
containers' too, as far as this user may (ptrace(2), "Ptrace access mode checking"). A device is
known by the name under which the process has it, so globs are matched against names as they are in
that process's own file system.

Never found are this process and what it descends from.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.config import LISTENS_MARK
from holdfast.core.autocheckpoint_events import Holder, ProcessId

DEVICES = ("/dev/accel*", "/dev/vfio/*", "/dev/nvidia*")
# They hold devices for as long as the host is up, and have nothing to save. The kernel keeps 15
# characters of a name (proc(5), /proc/PID/comm).
SPARED = (
    "nvidia-persistenced",
    "nv-fabricmanager",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-device-plugin",
    "Xorg",
)
COMM_CHARS = 15
PF_FORKNOEXEC = 0x40  # in field 9 of /proc/PID/stat (include/linux/sched.h)
# Between a supervisor and its ranks (`agent.reaper`): those whom it has started, and nobody else.
REAPER, GUARD = "hf-reaper", "hf-guard"
DELETED = " (deleted)"
READ_BYTES = 1 << 16
_NUMBERS = tuple(map(str, range(256)))
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Stat(NamedTuple):
    """A process's line in /proc/PID/stat (proc(5))."""

    command: str
    state: str
    parent: int
    flags: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at all processes has found. `unreadable`: how many may not be looked at."""

    holders: tuple[Holder, ...]
    spared: tuple[Holder, ...] = ()
    processes: int = 0
    unreadable: int = 0


class Scan:
    """Looks for the holders of devices that match a glob. `proc` is where the processes are."""

    def __init__(
        self,
        globs: Sequence[str] = DEVICES,
        spared: Sequence[str] = SPARED,
        proc: Path = Path("/proc"),
    ) -> None:
        self._proc, self._place = proc, str(proc)
        self._starts = tuple(re.split(r"[*?\[]", glob, maxsplit=1)[0] for glob in globs)
        self._starts_bytes = tuple(map(os.fsencode, self._starts))
        self._is_device = re.compile("|".join(f"(?:{fnmatch.translate(g)})" for g in globs)).match
        self._spared = frozenset(name[:COMM_CHARS] for name in spared)

    def look(self, *, is_thorough: bool = True) -> Sight:
        """All holders, in the order of their pids; `is_thorough`: by their mappings as well."""
        found: dict[int, tuple[str, ...]] = {}
        processes = unreadable = 0
        for name in os.listdir(self._proc):  # noqa: PTH208 - pathlib would double the time
            if not name.isdigit():
                continue
            processes += 1
            try:
                devices = self.devices(int(name), is_thorough=is_thorough)
            except OSError:  # no permission, as a rule
                unreadable += 1
                continue
            if devices:
                found[int(name)] = devices
        if not found:
            return Sight((), (), processes, unreadable)
        ours = (os.getpid(), *self._above(os.getpid()))
        stats = {pid: stat for pid in sorted(found) if (stat := self.stat(pid)) is not None}
        others = {pid: self._holder(pid, found, stats) for pid in stats if pid not in ours}
        spared = {pid for pid in others if stats[pid].command in self._spared}
        return Sight(
            tuple(one for pid, one in others.items() if pid not in spared),
            tuple(one for pid, one in others.items() if pid in spared),
            processes,
            unreadable,
        )

    def devices(self, pid: int, *, is_thorough: bool = True) -> tuple[str, ...]:
        """What a process holds, each once; nothing for one that has ended.

        Raises OSError for one that cannot be looked at: PermissionError where this user may not.
        """
        try:
            held = self._opened(pid)
            if is_thorough:
                held += self._mapped(pid)
        except (FileNotFoundError, ProcessLookupError):
            return ()
        return tuple(dict.fromkeys(held))

    def is_holder(self, process: ProcessId) -> bool:
        """Whether that very process is there and holds a device."""
        stat = self.stat(process.pid)
        if stat is None or stat.started_ticks != process.started_ticks:
            return False
        try:
            return bool(self.devices(process.pid))
        except OSError:
            return False

    def stat(self, pid: int) -> Stat | None:
        """Its line in the process table; None: it has ended, or is a zombie."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        head, _, rest = text.rpartition(")")  # the command may hold spaces and brackets
        fields = rest.split()
        if fields[0] in "ZX":
            return None
        command = head.partition("(")[2]
        return Stat(command, fields[0], int(fields[1]), int(fields[6]), int(fields[19]))

    def _opened(self, pid: int) -> list[str]:
        folder = os.open(f"{self._place}/{pid}/fd", _DIRECTORY)
        try:
            targets = _targets(folder)
        finally:
            os.close(folder)
        starts = self._starts
        return self._devices([one for one in targets if one.startswith(starts)])

    def _mapped(self, pid: int) -> list[str]:
        text = _whole(f"{self._place}/{pid}/maps")
        if not any(start in text for start in self._starts_bytes):
            return []  # as for nearly all: their lines, which are many, need not be parted
        lines = [line for line in text.splitlines() if b"/" in line]
        targets = [os.fsdecode(line[line.find(b"/") :]) for line in lines]
        return self._devices([one for one in targets if one.startswith(self._starts)])

    def _devices(self, targets: Sequence[str]) -> list[str]:
        """Those of these names that are devices'."""
        names = [one.removesuffix(DELETED) for one in targets]
        return [one for one in names if self._is_device(one)]

    def _above(self, pid: int) -> Iterator[int]:
        """What a process descends from, its parent first."""
        stat = self.stat(pid)
        while stat is not None and stat.parent > 0:
            yield stat.parent
            stat = self.stat(stat.parent)

    def _holder(
        self, pid: int, found: dict[int, tuple[str, ...]], stats: dict[int, Stat]
    ) -> Holder:
        stat = stats[pid]
        try:
            uid = (self._proc / str(pid)).stat().st_uid
        except OSError:
            uid = -1
        process = ProcessId(pid, stat.started_ticks)
        boss = self._boss(pid, stats) or self._supervisor(pid)
        return Holder(process, stat.command, found[pid], uid, boss)

    def _supervisor(self, pid: int) -> ProcessId | None:
        """The `holdfast run` that has started it, where that one listens for notices itself.

        It is warned already, knows the deadline, and orders the save. A run that hears nothing is
        told by the signal to its ranks, which they pass on.
        """
        if not self._carries(pid, LISTENS_MARK):
            return None
        between = False
        for above in self._above(pid):
            stat = self.stat(above)
            if stat is None:
                return None
            if between and stat.command not in (REAPER, GUARD):
                return ProcessId(above, stat.started_ticks)
            between = between or stat.command == REAPER
        return None

    def _carries(self, pid: int, mark: bytes) -> bool:
        try:
            return mark in (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _boss(self, pid: int, stats: dict[int, Stat]) -> ProcessId | None:
        """The nearest holder that it was forked from, while it still runs that one's program."""
        at = stats.get(pid)
        while at is not None and at.flags & PF_FORKNOEXEC:
            if at.parent in stats:
                return ProcessId(at.parent, stats[at.parent].started_ticks)
            at = self.stat(at.parent)
        return None


def _targets(folder: int) -> list[str]:
    """What the links of an open /proc/PID/fd lead to.

    Its size is the number of descriptors (Linux 6.2). Mostly they are the lowest numbers, and then
    the folder need not be listed, which takes as long as reading them.
    """
    count, readlink = os.fstat(folder).st_size, os.readlink
    names = _NUMBERS[:count] if count <= len(_NUMBERS) else map(str, range(count))
    try:
        return [readlink(one, dir_fd=folder) for one in names] or _listed(folder)
    except FileNotFoundError:
        return _listed(folder)


def _whole(path: str) -> bytes:
    """A file of /proc, which gives a page at a time."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _listed(folder: int) -> list[str]:
    targets = []
    for number in os.listdir(folder):
        try:
            targets.append(os.readlink(number, dir_fd=folder))
        except FileNotFoundError:
            continue  # closed meanwhile
    return targets
