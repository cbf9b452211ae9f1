"""What imports print belongs to the attempt that they are made for: held back until it begins."""

from __future__ import annotations

import os
import sys

_CHUNK = 1 << 16


class HeldOutput:
    """Standard output and error lead into memory, in order where both are one file."""

    def __init__(self) -> None:
        self._saved: dict[int, int] = {}  # 1 and 2, and where they led
        self._memory: dict[int, int] = {}
        shared: dict[tuple[int, int], int] = {}
        for fd in (1, 2):
            try:
                status = os.fstat(fd)
            except OSError:
                continue  # closed; so it stays
            place = (status.st_dev, status.st_ino)
            if place not in shared:
                shared[place] = os.memfd_create("holdfast-standby")
            self._saved[fd] = os.dup(fd)
            self._memory[fd] = shared[place]
            os.dup2(shared[place], fd)

    @property
    def fds(self) -> set[int]:
        """Descriptors that must stay open until `restore`."""
        return {*self._saved.values(), *self._memory.values()}

    def mute(self) -> None:
        """What is printed from now on is nobody's; until `hold`, or `lead_to`."""
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in self._memory:
            os.dup2(null, fd)
        os.close(null)

    def hold(self) -> None:
        """Hold back once more."""
        for fd, memory in self._memory.items():
            os.dup2(memory, fd)

    def lead_to(self, stdout_fd: int, stderr_fd: int) -> None:
        """In a fork: hold back for these instead, with what was printed before the fork."""
        own = {memory: _copied(memory) for memory in set(self._memory.values())}
        for fd, target in ((1, stdout_fd), (2, stderr_fd)):
            if fd in self._saved:
                os.dup2(target, self._saved[fd], inheritable=False)
                self._memory[fd] = own[self._memory[fd]]
                os.dup2(self._memory[fd], fd)
        for memory in own:
            os.close(memory)

    def restore(self, *, say: bool) -> None:
        """Lead them back; `say`: and let out what was printed meanwhile."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for fd, saved in self._saved.items():
            os.dup2(saved, fd)
            os.close(saved)
        restored = set()
        for fd, memory in self._memory.items():
            if memory not in restored:
                restored.add(memory)
                if say:
                    _copy(memory, fd)
                os.close(memory)


def _copied(memory: int) -> int:
    """A file of our own: forks share the place in one where the next word goes."""
    copy = os.memfd_create("holdfast-standby")
    _copy(memory, copy)
    return copy


def _copy(memory: int, fd: int) -> None:
    offset = 0
    while data := os.pread(memory, _CHUNK, offset):
        offset += len(data)
        while data:
            try:
                data = data[os.write(fd, data) :]
            except OSError:
                return  # nobody reads it; the program will find out by itself
