"""A cgroup with little memory, where this machine lets us make one (v1 or v2; mostly as root)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT_BYTES = 400 << 20
V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class NoCgroup(Exception):
    """Why none can be made here."""


@dataclass(frozen=True)
class MemoryLimit:
    """A cgroup; `wrapper` is a command that enters it and becomes the command after it."""

    folder: Path

    @property
    def wrapper(self) -> tuple[object, ...]:
        enter = 'echo $$ > "$0" && exec "$@"'
        return ("sh", "-c", enter, self.folder / "cgroup.procs")

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed in it, by its own count (cgroups(7))."""
        names = ("memory.oom_control", "memory.events")
        (counter,) = (self.folder / name for name in names if (self.folder / name).exists())
        return int(dict(line.split() for line in counter.read_text().splitlines())["oom_kill"])


@contextmanager
def memory_limit() -> Iterator[MemoryLimit]:
    """Made for a test, and removed after it. Raises NoCgroup."""
    is_v1 = (V1 / "memory.limit_in_bytes").exists()
    folder = (V1 if is_v1 else V2) / f"holdfast-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoCgroup(f"no cgroup can be made: {error}") from error
    try:
        limit = folder / ("memory.limit_in_bytes" if is_v1 else "memory.max")
        limit.write_text(str(LIMIT_BYTES))
    except OSError as error:
        folder.rmdir()
        raise NoCgroup(f"no memory limit can be set: {error}") from error
    try:
        yield MemoryLimit(folder)
    finally:
        folder.rmdir()
