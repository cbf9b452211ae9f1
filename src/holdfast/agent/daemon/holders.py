"""Which processes hold devices, as /proc tells: by open descriptors, and by mappings.

Every process of this PID namespace and of those below it is looked at, other users' and other
containers' too, as far as this user may (ptrace(2), "Ptrace access mode checking"). A device is
known by the name under which the process has it, as it is in that process's own file system, and by
its number, if this host has a device of that number under a name that matches: in a chroot, or
where it was made anew, it has another name.

Never found are this process and what it descends from.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import glob
import os
import re
import stat as file_stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.agent.daemon.device_number import device_number
from holdfast.config import LISTENS_MARK
from holdfast.core.daemon.events import DeviceHolder, ProcessId

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
ALONE_LINKS = 3  # of /proc/PID/task, where there is one thread
# No accelerators, and open nearly everywhere: their numbers are not asked for.
ORDINARY = ("/dev/null", "/dev/pts/", "/dev/urandom", "/proc/", "/sys/", "/memfd:")
_NUMBERS = tuple(map(str, range(256)))
_SHARED = re.compile(rb" [-r]w[-x]s ")  # as devices are mapped, in a line of /proc/PID/maps
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Stat(NamedTuple):
    """A process's line in /proc/PID/stat (proc(5))."""

    command: str
    state: str
    parent: int
    flags: int
    started_ticks: int

    @property
    def has_ended(self) -> bool:
        """Of a thread: whether it has. The process of a main thread that has may live on."""
        return self.state in "ZX"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at all processes has found. `unreadable`: how many may not be looked at."""

    holders: tuple[DeviceHolder, ...]
    spared: tuple[DeviceHolder, ...] = ()
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
        self._globs = tuple(globs)
        self._numbers: dict[int, str] = {}  # of the devices that this host has, with their names
        self._starts = tuple(re.split(r"[*?\[]", glob, maxsplit=1)[0] for glob in globs)
        self._starts_bytes = tuple(map(os.fsencode, self._starts))
        self._is_device = re.compile("|".join(f"(?:{fnmatch.translate(g)})" for g in globs)).match
        self._spared = frozenset(name[:COMM_CHARS] for name in spared)

    def look(self, *, is_thorough: bool = True) -> Sight:
        """All holders, in the order of their pids; `is_thorough`: by their mappings as well."""
        found: dict[int, tuple[str, ...]] = {}
        processes = unreadable = 0
        self._numbers = _device_numbers(self._globs)
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
            held = self._of_main_thread(pid, is_thorough=is_thorough)
            if held is None:  # its main thread may have ended, and the process lives on
                others = (task for task in self._tasks(pid) if task != pid)
                found = (self._held(f"{pid}/task/{one}", is_thorough=is_thorough) for one in others)
                held = next((one for one in found if one is not None), [])
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
        """Its line in the process table; None: it has ended, or is a zombie without threads."""
        stat = self._stat(str(pid))
        if stat is None or not stat.has_ended:
            return stat
        tasks = (self._stat(f"{pid}/task/{one}") for one in self._tasks(pid))
        return stat if any(one is not None and not one.has_ended for one in tasks) else None

    def _stat(self, place: str) -> Stat | None:
        try:
            text = (self._proc / place / "stat").read_text(errors="replace")
        except OSError:
            return None
        head, _, rest = text.rpartition(")")  # the command may hold spaces and brackets
        fields = rest.split()
        command = head.partition("(")[2]
        return Stat(command, fields[0], int(fields[1]), int(fields[6]), int(fields[19]))

    def _tasks(self, pid: int) -> list[int]:
        """Its threads."""
        place = f"{self._place}/{pid}/task"
        try:
            # A folder each, beside the two names that every folder has: one need not be listed.
            if os.stat(place).st_nlink == ALONE_LINKS:  # noqa: PTH116 - as a string
                return [pid]
            return [int(name) for name in os.listdir(place)]  # noqa: PTH208 - as above
        except OSError:
            return []

    def _of_main_thread(self, pid: int, *, is_thorough: bool) -> list[str] | None:
        try:
            return self._held(str(pid), is_thorough=is_thorough)
        except PermissionError:  # what a thread leaves when it has ended is root's
            stat = self._stat(str(pid))
            if stat is None or not stat.has_ended:
                raise
            return None

    def _held(self, place: str, *, is_thorough: bool) -> list[str] | None:
        """What a process or thread holds; None: it has nothing open at all."""
        folder = os.open(f"{self._place}/{place}/fd", _DIRECTORY)
        try:
            links = _links(folder)
            held = self._devices([target for _, target in links])
            if self._numbers:
                held += self._by_number(folder, links)
        finally:
            os.close(folder)
        if is_thorough:
            held += self._mapped(place)
        return held if links or held else None

    def _mapped(self, place: str) -> list[str]:
        text = _whole(f"{self._place}/{place}/maps")
        is_named = any(start in text for start in self._starts_bytes)
        if not is_named and not (self._numbers and _SHARED.search(text)):
            return []  # as for nearly all: their lines, which are many, need not be parted
        lines = [line for line in text.splitlines() if b"/" in line]
        held = self._devices([os.fsdecode(line[line.find(b"/") :]) for line in lines])
        shared = [line for line in lines if _SHARED.search(line)] if self._numbers else []
        links = [tuple(map(os.fsdecode, (one.split()[0], one[one.find(b"/") :]))) for one in shared]
        with contextlib.suppress(OSError):  # it takes more rights to see where mappings lead to
            folder = os.open(f"{self._place}/{place}/map_files", _DIRECTORY)
            try:
                held += self._by_number(folder, links)
            finally:
                os.close(folder)
        return held

    def _by_number(self, folder: int, links: Iterable[tuple[str, ...]]) -> list[str]:
        """Those of these links of an open folder that lead to a device under another name."""
        skipped = (*ORDINARY, *self._starts)
        others = [name for name, to in links if to.startswith("/") and not to.startswith(skipped)]
        numbers = [device_number(folder, name) for name in others]
        return [self._numbers[one] for one in numbers if one in self._numbers]

    def _devices(self, targets: Sequence[str]) -> list[str]:
        """Those of these names that are devices'."""
        names = [one.removesuffix(DELETED) for one in targets if one.startswith(self._starts)]
        return [one for one in names if self._is_device(one)]

    def _above(self, pid: int) -> Iterator[int]:
        """What a process descends from, its parent first."""
        stat = self.stat(pid)
        while stat is not None and stat.parent > 0:
            yield stat.parent
            stat = self.stat(stat.parent)

    def _holder(
        self, pid: int, found: dict[int, tuple[str, ...]], stats: dict[int, Stat]
    ) -> DeviceHolder:
        stat = stats[pid]
        try:
            uid = (self._proc / str(pid)).stat().st_uid
        except OSError:
            uid = -1
        process = ProcessId(pid, stat.started_ticks)
        boss = self._boss(pid, stats) or self._supervisor(pid)
        return DeviceHolder(process, stat.command, found[pid], uid, boss)

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


def _device_numbers(globs: Sequence[str]) -> dict[int, str]:
    """Of this host's devices with such names."""
    found = {}
    for path in (one for pattern in globs for one in glob.glob(pattern)):  # noqa: PTH207 - absolute
        try:
            known = os.stat(path)  # noqa: PTH116 - as a string
        except OSError:
            continue
        if file_stat.S_ISCHR(known.st_mode) or file_stat.S_ISBLK(known.st_mode):
            found[known.st_rdev] = path
    return found


def _links(folder: int) -> list[tuple[str, str]]:
    """The links of an open /proc/PID/fd, and what they lead to.

    Its size is the number of descriptors (Linux 6.2). Mostly they are the lowest numbers, and then
    the folder need not be listed, which takes as long as reading them.
    """
    count, readlink = os.fstat(folder).st_size, os.readlink
    if not count and _is_counted():  # as of all that the kernel runs for itself
        return []
    names = _NUMBERS[:count] if count <= len(_NUMBERS) else map(str, range(count))
    try:
        return [(one, readlink(one, dir_fd=folder)) for one in names] or _listed(folder)
    except FileNotFoundError:
        return _listed(folder)


@functools.cache
def _is_counted() -> bool:
    """Whether this kernel tells how many descriptors a process has: we have one, to look."""
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/fd").st_size > 0  # noqa: PTH116 - as a string
    return False


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


def _listed(folder: int) -> list[tuple[str, str]]:
    links = []
    for number in os.listdir(folder):
        try:
            links.append((number, os.readlink(number, dir_fd=folder)))
        except FileNotFoundError:
            continue  # closed meanwhile
    return links
