"""Processes as /proc shows them: who belongs to a run, and who is left of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

PF_FORKNOEXEC = 0x40  # include/linux/sched.h
JOURNAL = re.compile(rb"/attempt-(\d+)/rank-\d+\.hfj")


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def tree_of(root: int) -> list[int]:
    """A live process and all below it, parents before their children."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop(0)
        if is_alive(pid):
            found.append(pid)
        todo += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(w) for thread in threads for w in (thread / "children").read_text().split()]
    except OSError:
        return []


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def attempt_of(pid: int) -> int | None:
    """The attempt that a rank's process belongs to.

    What was forked has the environment of where it comes from, perhaps an older attempt's: there
    the journal counts that it has mapped.
    """
    try:
        flags = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[6])
        if flags & PF_FORKNOEXEC:
            found = JOURNAL.search(Path(f"/proc/{pid}/maps").read_bytes())
            return int(found[1]) if found else None
    except OSError:
        return None
    for word in _environment(pid):
        name, _, value = word.partition("=")
        if name == "HOLDFAST_ATTEMPT" and value.isdecimal():
            return int(value)
    return None


def with_marker(marker: str) -> list[int]:
    """All live processes whose environment holds `marker`, wherever in the tree they are now."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [
        pid for pid in pids if pid != os.getpid() and marker in _environment(pid) and is_alive(pid)
    ]
