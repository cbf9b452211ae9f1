"""Processes as the kernel has them: started below us, found below us, told to us when they end."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import time

TYPE_CHECKING = False  # what `typing` would say, without importing it
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
STUCK_AFTER_S = 10.0
BUSY_LIMIT_S = 120.0  # who was given no processor for so long after SIGKILL is given up, too
RESCAN_S = 0.002
PF_EXITING = 0x4
STAT_BYTES = 4096
CONTROL_FD = 0
REPORT_FD = 1

libc = ctypes.CDLL(None, use_errno=True)


def now_ns() -> int:
    """CLOCK_BOOTTIME: goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def report(event: str, **fields: Any) -> None:
    """One JSON line to the agent. If the agent is gone there is nobody to tell."""
    line = json.dumps({"event": event, "at_ns": now_ns(), **fields}) + "\n"
    data = line.encode()
    while data:
        try:
            data = data[os.write(REPORT_FD, data) :]
        except OSError:
            return


def descendants(root: int) -> list[int]:
    """Pids of all live processes below `root`, by one pass over /proc (zombies left out)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double our start-up time
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - the same
                # The command may hold spaces and brackets: the fields start after the last ")".
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(name) if state != b"Z" else -int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(abs(pid))
            if pid > 0:
                found.append(pid)
    return found


class Fate:
    """How a child that is ending will have ended, before it can be waited for.

    The kernel frees its memory first, which for many GiB takes seconds.
    """

    def __init__(self, pid: int) -> None:
        self.fd = -1
        with contextlib.suppress(OSError):
            # Of the main thread: to sum up all of them costs more. Kept open, for looks are many.
            self.fd = os.open(f"/proc/{pid}/task/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def look(self) -> int | None:
        """Its status as of wait(2); None: not known.

        Told of those alone that were ended by SIGKILL, or left with a code that is not 0: others
        may dump core meanwhile, and 0 is also what the kernel says to who may not know.
        """
        try:
            fields = os.pread(self.fd, STAT_BYTES, 0).rpartition(b")")[2].split()
        except OSError:
            return None
        flags, status = int(fields[6]), int(fields[-1])
        if not flags & PF_EXITING or not status:
            return None
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return status if killed or os.WIFEXITED(status) else None

    def close(self) -> None:
        """Look no more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def survivors(killed: list[int], waited_s: float) -> list[int]:
    """Who of these, which got a SIGKILL so long ago, will not end by itself.

    They wait in the kernel, for a disk that does not answer, say. On a busy machine others may be
    given no processor to end on.
    """
    if waited_s <= STUCK_AFTER_S:
        return []
    return killed if waited_s > BUSY_LIMIT_S else [pid for pid in killed if _waits_in_kernel(pid)]


class LeftAlive:
    """Tells the agent who survives SIGKILL, once; or, now and then, that they get no processor."""

    def __init__(self) -> None:
        self._told_s = 0.0  # after the SIGKILL
        self._is_told = False  # that they survive it

    def tell(self, left: list[int], waited_s: float) -> None:
        """These are left, so long after it."""
        if not left or self._is_told or waited_s - self._told_s <= STUCK_AFTER_S:
            return
        self._told_s = waited_s
        stuck = survivors(left, waited_s)
        self._is_told = bool(stuck)
        report("stuck" if stuck else "busy", pids=stuck or left)


def _waits_in_kernel(pid: int) -> bool:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as above
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:  # noqa: PTH123 - as above
                if file.read().rpartition(b")")[2].split()[0] == b"D":
                    return True
    except OSError:
        pass  # it has just ended
    return False


def spawn(rank: dict[str, Any], failure_fd: int, keep: tuple[int, ...] = ()) -> int:
    """Fork and exec one rank; returns its pid. What it inherits: see `execute`."""
    pid = fork()
    if not pid:
        execute(rank, failure_fd, keep)
    return pid


def fork() -> int:
    """A child that dies with us, in a process group of its own: its pid, and 0 in itself."""
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl took hold
            os._exit(127)
        os.setpgid(0, 0)
    return pid


def execute(rank: dict[str, Any], failure_fd: int, keep: tuple[int, ...] = ()) -> NoReturn:
    """Become that rank's command; it inherits its output, the descriptors in `keep`, and no other.

    If exec fails, `(rank, errno)` is written to `failure_fd`, which exec closes on success.
    """
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; exec would keep that
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(rank["stdout_fd"], 1)
        os.dup2(rank["stderr_fd"], 2)
        for fd in keep:
            os.set_inheritable(fd, True)
        os.chdir(rank["cwd"])
        os.execvpe(rank["argv"][0], rank["argv"], rank["env"])  # noqa: S606 - no shell
    except OSError as error:
        word, where = rank["argv"][0], os.fsdecode(error.filename or rank["argv"][0])
        if error.errno == errno.ENOENT and os.path.basename(where) == word:  # noqa: PTH119
            where = word  # not the last folder of PATH that it was looked for in
        line = json.dumps({"rank": rank["rank"], "errno": error.errno, "where": where})
        os.write(failure_fd, line.encode() + b"\n")
    finally:
        os._exit(127)


def signal_to(pid: int, number: int) -> None:
    """Unless it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def has_children() -> bool:
    """Whether there are children that have not been waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError as error:
        return error.errno != errno.ECHILD
    return True


def take_place(parent: int, name: str) -> int:
    """What must hold in guard and reaper before the first rank exists; returns the wakeup fd."""
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Catchable, not SIGKILL: we still have a tree to take down.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    os.set_blocking(read_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    if os.getppid() != parent:  # it died before prctl took hold
        os._exit(0)
    return read_fd
