"""What a reader may do with rubbish: answer, or one documented error; in bounded time and memory.

`guarded` lets nothing else through. Memory is limited by the kernel (RLIMIT_AS above what the
process has now), so that a claim of 2**62 bytes is a MemoryError here and not a dead machine.
Time is limited twice: processor time for loops, and a long while of clock time for what blocks
(a FIFO that nobody writes to). Both are far above what a good reader needs on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY_BYTES = 192 << 20
MEMORY_PER_INPUT_BYTE = 256  # a byte of JSON is at most a small object and its slot in a list
CPU_S = 20.0
BLOCKED_S = 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Hung(BaseException):
    """A reader that does not come back. No `except Exception` may hide it."""


@contextlib.contextmanager
def guarded(input_bytes: int = 0) -> Iterator[None]:
    """Limit time and memory inside; MemoryError and Hung are findings like any other error."""
    ceiling = _in_use() + MEMORY_BYTES + MEMORY_PER_INPUT_BYTE * input_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handlers = [(number, signal.signal(number, _hung)) for number in _TIMERS.values()]
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED_S)
    try:
        yield
    finally:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in handlers:
            signal.signal(number, handler)


_TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}


def _hung(number: int, _frame: Any) -> None:
    raise Hung(f"not back after {CPU_S if number == signal.SIGPROF else BLOCKED_S} s")


def _in_use() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * _PAGE_BYTES


class Fence:
    """Tells of every file outside a folder that is opened, listed, made, moved or removed.

    It listens to the interpreter's audit events, so nothing that Python code does escapes it.
    Reading is reported only inside `forbidden` (elsewhere lie Python's own modules). Meanwhile
    Python keeps no compiled form of what it imports: that it wrote would be told as well.
    """

    def __init__(self, inside: Path, forbidden: Path) -> None:
        self.inside = os.path.realpath(inside)
        self.forbidden = os.path.realpath(forbidden)
        self.crossed: list[str] = []
        self._writes_bytecode = True

    def __enter__(self) -> Fence:
        global _fence, _installed
        if not _installed:
            sys.addaudithook(_audit)  # for ever: a hook cannot be taken away
            _installed = True
        self._writes_bytecode = not sys.dont_write_bytecode
        sys.dont_write_bytecode = True
        _fence = self
        return self

    def __exit__(self, *_: object) -> None:
        global _fence
        _fence = None
        sys.dont_write_bytecode = not self._writes_bytecode

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge one audit event."""
        if event == "open":
            path, _, flags = arguments
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            self._judge(event, path, writes, follows=not flags & os.O_NOFOLLOW)
        elif event in ("os.listdir", "os.scandir"):
            self._judge(event, arguments[0], writes=False, follows=True)
        elif event in _CHANGES and (-1 in arguments or event == "os.truncate"):
            for path in arguments[:2]:  # what is relative to an open folder was judged with that
                self._judge(event, path, writes=True, follows=False)

    def _judge(self, event: str, path: Any, writes: bool, *, follows: bool) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor, which was judged when it was opened
        name = Path.cwd() / os.fsdecode(path)
        real = os.path.realpath(name) if follows else f"{os.path.realpath(name.parent)}/{name.name}"
        if real.startswith("/dev/") and not real.startswith("/dev/shm/"):
            return
        if _is_below(real, self.forbidden) or (writes and not _is_below(real, self.inside)):
            self.crossed.append(f"{event} {name} -> {real}")


_CHANGES = {"os.remove", "os.rmdir", "os.rename", "os.link", "os.mkdir", "os.truncate"}


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


_fence: Fence | None = None
_installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    fence = _fence
    if fence is None or not (event == "open" or event.startswith("os.")):
        return
    fence.see(event, arguments)
