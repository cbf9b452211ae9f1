"""Who holds a run, said so exactly that another process can tell whether that one still lives.

A pid alone names nobody: pids are reused, and differ between containers. A process is the same one
if the boot, the pid namespace, the pid and the kernel's start time of the process all agree.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from holdfast.core.value import value
from holdfast.journal.fields import text, whole

_PF_EXITING = 0x4  # in field 9 of /proc/PID/stat (include/linux/sched.h)


class Sign(Enum):
    """What one process can know of another by looking."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"  # another host or container, or a system without /proc


@value
class RunHolder:
    """A process that holds a run. Unknown parts are '' or 0."""

    host: str
    boot_id: str
    pid_namespace: int  # inode of /proc/self/ns/pid: containers of one host share its boot id
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat (proc(5)): clock ticks from boot to its start
    user: str
    started_unix_ns: int  # for people only; nothing is decided by it

    @classmethod
    def current(cls) -> RunHolder:
        """The calling process."""
        state = _state_and_start(os.getpid())
        return cls(
            host=os.uname().nodename,
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            pid=os.getpid(),
            start_ticks=state[1] if state else 0,
            user=_user(),
            started_unix_ns=time.time_ns(),
        )

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunHolder:
        """The inverse of `to_json`; raises ValueError on rubbish."""
        return cls(
            host=text(raw, "host"),
            boot_id=text(raw, "boot_id"),
            pid_namespace=whole(raw, "pid_namespace"),
            pid=whole(raw, "pid"),
            start_ticks=whole(raw, "start_ticks"),
            user=text(raw, "user"),
            started_unix_ns=whole(raw, "started_unix_ns"),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields' names."""
        return asdict(self)

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.started_unix_ns // 10**9))
        return f"pid {self.pid} on host {self.host} (user {self.user}) since {since}"


_MAX_PID = 2**31 - 1


def look(holder: RunHolder) -> Sign:
    """Whether `holder` lives, as far as this process can tell at once.

    A zombie counts as dead: it does nothing any more. A process that exists but whose start time
    cannot be read (/proc mounted with hidepid) is UNKNOWN, never dead.
    """
    here = (_boot_id(), _pid_namespace())
    if not all(here) or here != (holder.boot_id, holder.pid_namespace):
        return Sign.UNKNOWN
    if not 0 < holder.pid <= _MAX_PID:
        return Sign.DEAD  # no process ever has such an id
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return Sign.DEAD
    except PermissionError:
        pass  # it exists and is another user's
    state = _state_and_start(holder.pid)
    if state is None or not holder.start_ticks:
        return Sign.UNKNOWN
    letter, start_ticks = state
    if letter in "ZX" or start_ticks != holder.start_ticks:
        return Sign.DEAD
    return Sign.ALIVE


def is_dying(holder: RunHolder) -> bool:
    """Whether a holder of this host has been killed and is still being taken apart.

    That takes the kernel a moment, and for a process with much memory seconds; it runs no more.
    """
    try:
        flags = int(Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[6])
        status = Path(f"/proc/{holder.pid}/status").read_text()
    except (OSError, IndexError, ValueError):
        return False
    pending = 0
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("SigPnd", "ShdPnd"):
            pending |= int(value, 16)
    return bool(flags & _PF_EXITING or pending >> (signal.SIGKILL - 1) & 1)


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process; None if /proc does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The command name stands in parentheses and may itself hold any character.
        rest = text.rpartition(")")[2].split()
        return rest[0], int(rest[19])
    except (OSError, IndexError, ValueError):
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
