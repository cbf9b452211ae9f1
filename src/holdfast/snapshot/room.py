"""How much memory snapshots may take on this host: the smallest of all the limits that hold.

Pages of /dev/shm are memory: of the host, and of the cgroup whose process touched them first. Past
the filesystem's size a write fails; past a cgroup's limit the kernel kills. So buffers are sized
before they are made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.core.value import value
from holdfast.journal.elsewhere import elsewhere

SHARE = 0.75
"""Of what is free now. The rest is for what the training allocates later, and for the others."""


@value
class Room:
    """How many bytes, and whose limit that is, in words that follow 'because'."""

    nbytes: int
    words: str


def find_room(folder: Path, held_bytes: int = 0) -> Room:
    """The room for buffers in `folder`, with the `held_bytes` that buffers take there already.

    Raises OSError when the folder's filesystem cannot be asked.
    """
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    limits = [Room(int(SHARE * (free + held_bytes)), f"{folder} has {size_words(free)} free")]
    available = _available()
    if available is not None:
        words = f"this host has {size_words(available)} of memory free"
        limits.append(Room(int(SHARE * (available + held_bytes)), words))
    for free in _free_in_cgroups():
        words = f"the limit of this process's cgroup leaves {size_words(free)} of memory"
        limits.append(Room(int(SHARE * (free + held_bytes)), words))
    return min(limits, key=lambda limit: limit.nbytes)


def memory_free_bytes() -> int:
    """What processes may still take of this host's memory; 0 where that is not known."""
    return min((_available() or 0, *_free_in_cgroups()))


def free_in(folder: Path) -> int | None:
    """Bytes free in a folder's filesystem; None where it cannot be asked (an object store)."""
    if elsewhere(folder) is not None:
        return None
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def size_words(nbytes: int) -> str:
    """A number of bytes for people."""
    units = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    size_bytes, unit = next((one for one in units if nbytes >= one[0]), units[-1])
    value = nbytes / size_bytes
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _available() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _free_in_cgroups() -> Iterator[int]:
    """What each limited cgroup above this process still has, cgroups(7), versions 1 and 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            mounts, names = [_CGROUPS, _CGROUPS / "unified"], _V2
        elif "memory" in controllers.split(","):
            mounts, names = [_CGROUPS / "memory"], _V1
        else:
            continue
        for mount in mounts:
            # In a container the mount may begin at the very cgroup that the path still names.
            place = mount / path.lstrip("/")
            for above in (place, *place.parents):
                free = _free_in(above, *names)
                if free is not None:
                    yield free
                if above == mount:
                    break


_CGROUPS = Path("/sys/fs/cgroup")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def _free_in(place: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    """Limit less usage, what the kernel can drop at once not counted; None without a limit."""
    try:
        limit = int((place / limit_name).read_text())  # "max" is none
        usage = int((place / usage_name).read_text())
        droppable = 0
        for line in (place / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == cache_name:
                droppable = int(value)
    except (OSError, ValueError):
        return None
    return max(0, limit - usage + droppable) if limit < 1 << 60 else None
