"""Every process that a system left behind, found and ended: also those in sessions of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on whoever loses its parent among our descendants becomes our child."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> set[int]:
    """The living processes below this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def bury_but(ours: list[subprocess.Popen[bytes]]) -> None:
    """Collect the orphans that have ended; the exits of these are for whoever started them."""
    mine = {process.pid for process in ours}
    for pid in zombies() - mine:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def zombies() -> set[int]:
    """Our own children that have ended and are still to be collected."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children if _state(int(pid)) == "Z"}


def stacks(limit_s: float = 10.0) -> str:
    """Where each descendant that is a Python program stands, for whoever looks into it later."""
    spy = Path(sys.executable).with_name("py-spy")
    told = []
    for pid in sorted(descendants()):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            told.append(f"--- {pid} {_state(pid)} {words.decode(errors='replace')}")
            done = subprocess.run(
                [spy, "dump", "--nonblocking", "--pid", str(pid)],
                capture_output=True, text=True, timeout=limit_s, check=False,
            )  # fmt: skip
            told.append(done.stdout or done.stderr)
    return "\n".join(told)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def end_all(limit_s: float = 20.0) -> None:
    """SIGKILL for all descendants, again and again until none is left."""
    give_up = time.monotonic() + limit_s
    while left := descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        bury_but([])
        if time.monotonic() > give_up:
            raise SystemExit(f"these processes survive SIGKILL: {sorted(left)}")
        time.sleep(0.02)
    bury_but([])
