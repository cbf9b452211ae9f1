"""What imports leave behind that a fork would lose, or have in common with all other forks.

A cold start has each of these for itself: a thread, a child, a file with its place in it, a lock in
shared memory. Forks of one process cannot, so a process that has any of them is not forked.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

STATELESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LeftBehind:
    """Made before the imports.

    `handled`: the signals that guard and reaper handle in their own way, before there is a standby.
    `own`: the descriptors that are no import's.
    """

    def __init__(self, handled: Iterable[signal.Signals], own: Collection[int]) -> None:
        self._handled = tuple(handled)
        self._own = frozenset(own)
        self._memory = _shared_memory()

    def obstacle(self, has_children: Callable[[], bool], given: Collection[int] = ()) -> str:
        """Why this process must not be forked; empty: it may be. Threads: see `threads`.

        `given`: more descriptors that are no import's.
        """
        if has_children():
            return "an import has started a process, which would be the child of no fork"
        for fd in open_fds() - self._own - set(given):
            name = os.readlink(f"/proc/self/fd/{fd}")
            if name not in STATELESS:
                return f"an import has left {name} open, which all forks would share"
        for name in _shared_memory() - self._memory:
            return f"an import has made memory ({name}) that all forks would share"
        caught = _caught_signals()
        for number in self._handled:
            if caught >> (number - 1) & 1 and not callable(signal.getsignal(number)):
                return f"an import handles {number.name} outside of Python, and a fork would not"
        return ""


def threads() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/task"))


def open_fds() -> set[int]:
    """Of this process."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {fd for fd in found if _is_open(fd)}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False  # that of the listing itself
    return True


def _shared_memory() -> set[str]:
    """Files that are mapped so that one process sees what another writes."""
    names = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            if "w" in fields[1] and "s" in fields[1]:
                names.add(fields[5].strip() if len(fields) > 5 else "without a name")
    return names


def _caught_signals() -> int:
    """Those with a handler, as the kernel has it: bit 0 is signal 1."""
    with open("/proc/self/status", "rb") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith(b"SigCgt:"))
