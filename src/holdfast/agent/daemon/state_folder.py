"""The daemon's folder: its lock, and what it writes down for the next one and for people.

`agent.json` is read by `holdfast agent status`. It also names every process that was signalled, and
is written before the signal is sent: an agent that is started again on the same boot sends no
second one. And it says since when an agent has worked from here: a notice file that was touched
since is no old one. The folder is the user's own, and closed to others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.daemon.events import ProcessId
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import encode_json, read_json, write_plain
from holdfast.journal.clocks import boot_id, read_clock_pair
from holdfast.journal.scratch import claim_folder

VERSION = 1
STATE_FILE = "agent.json"
LOCK_FILE = "agent.lock"
MOST_BYTES = 1 << 22


def default_folder(uid: int) -> Path:
    """Where it is if nobody says: gone with the boot, if possible."""
    if uid == 0:
        return Path("/run/holdfast")
    own = Path(f"/run/user/{uid}")
    return own / "holdfast" if own.is_dir() else Path(f"/var/tmp/holdfast-agent-{uid}")  # noqa: S108 - checked


class StateFolder:
    """Claimed by one agent at a time."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError for a folder that will not do."""
        self.path = path
        if trouble := claim_folder(path, os.getuid()):
            raise ConfigurationError(
                f"the agent's folder cannot be used: {trouble}; name one with --state"
            )
        self.since_unix_ns = read_clock_pair()[1]
        self._lock = -1

    def claim(self) -> None:
        """Until this process ends; raises StoreUnavailable while another agent has it."""
        lock = self.path / LOCK_FILE
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StoreUnavailable(
                f"another agent works from {self.path}: see holdfast agent status"
            ) from None

    def close(self) -> None:
        """Let another one have it."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def inherit(self) -> tuple[ProcessId, ...]:
        """Go on where an earlier agent of this boot was killed; whom it has signalled.

        Raises StoreUnavailable.
        """
        try:
            state = read_json(self.path / STATE_FILE, MOST_BYTES)
        except FileNotFoundError:
            return ()
        if state.get("boot_id") != boot_id():
            return ()
        since_unix_ns = state.get("since_unix_ns")  # not there: of an earlier version
        if isinstance(since_unix_ns, int):
            self.since_unix_ns = min(self.since_unix_ns, since_unix_ns)
        try:
            return tuple(ProcessId(int(pid), int(start)) for pid, start in state["signalled"])
        except (KeyError, TypeError, ValueError):
            raise StoreUnavailable(
                f"{self.path / STATE_FILE} does not say who was signalled; move it away"
            ) from None

    def write(self, signalled: Sequence[ProcessId], status: Mapping[str, Any]) -> None:
        """Replace what is written; raises OSError."""
        state = {
            "version": VERSION,
            "boot_id": boot_id(),
            "pid": os.getpid(),
            "since_unix_ns": self.since_unix_ns,
            "signalled": [[one.pid, one.started_ticks] for one in signalled],
            **status,
        }
        write_plain(self.path / STATE_FILE, encode_json(state))


def read_status(path: Path) -> dict[str, Any]:
    """What the agent has written last, with `running`: whether one lives.

    Raises StoreUnavailable when nothing can be read.
    """
    try:
        state = read_json(path / STATE_FILE, MOST_BYTES)
        lock = os.open(path / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise StoreUnavailable(
            f"no agent has run from {path}: start one with holdfast agent --autocheckpoint, or "
            "name its folder with --state"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        is_running = False
    except OSError:
        is_running = True
    finally:
        os.close(lock)
    return {"running": is_running, **state}
