"""A process that starts one agent, in a session of its own, and keeps how it has ended.

    python keeper.py FOLDER NICE -- holdfast run ...

Ray ends the children of an actor with it, and an actor with its raylet. So this process leaves
them: it forks, and lives on as nobody's child. The first process ends once the agent is started.

    FOLDER/lock     locked while the keeper lives: that an agent is there
    FOLDER/agent    JSON: {"pid": ...} of the keeper while it runs, {"code": ...} once it has ended
    FOLDER/log      what the agent prints
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOCK, STATUS, LOG = "lock", "agent", "log"
ANOTHER_IS_THERE = 3
CANNOT_START = 78  # of `errors`, which is not imported here: EXIT_CONFIGURATION
LOCK_LIMIT_S, TRY_S = 5.0, 0.05
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
MOST_LOG_BYTES = 64 << 20


def main(folder: Path, niceness: int, command: list[str]) -> int:
    """Start the command; 0 once it runs, ANOTHER_IS_THERE where another keeper is.

    `niceness`: the raylet's. Ray's workers have 15, and not everybody may go back from there.
    """
    started, tells = os.pipe()
    if os.fork():
        os.close(tells)
        said = os.read(started, 1)
        return said[0] if said else 1
    os.close(started)
    os.setsid()
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray's workers hold back SIGINT
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _lock(lock):
        os.write(tells, bytes([ANOTHER_IS_THERE]))
        return ANOTHER_IS_THERE
    _write(folder, {"pid": os.getpid()})
    agent = _begin(folder, command)
    os.write(tells, b"\0")
    os.close(tells)
    _write(folder, {"code": CANNOT_START if agent is None else agent.wait()})
    return 0


def _begin(folder: Path, command: list[str]) -> subprocess.Popen[bytes] | None:
    """The agent, which gets the signals that are meant for it; None: it cannot be started."""
    begun: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        for one in begun:
            one.send_signal(number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    with _log(folder) as log:
        try:
            begun.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        except OSError as error:
            log.write(f"{command[0]} cannot be started: {error}\n".encode())
            return None
        for descriptor in (0, 1, 2):  # the actor's, which may end
            os.dup2(log.fileno(), descriptor)
    return begun[0]


def has_keeper(folder: Path) -> bool:
    """Whether an agent is there, or its keeper at least."""
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
    return False


def read_status(folder: Path) -> dict[str, Any]:
    """What a keeper has written; empty: none was there."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / STATUS).read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _lock(descriptor: int) -> bool:
    """Somebody may look at it at this moment, so it is tried for a while."""
    give_up_s = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_s:
                return False
            time.sleep(TRY_S)
        else:
            return True


def _log(folder: Path) -> Any:
    path = folder / LOG
    with contextlib.suppress(OSError):
        if path.stat().st_size > MOST_LOG_BYTES:
            path.replace(path.with_suffix(".old"))
    return path.open("ab", buffering=0)


def _write(folder: Path, found: dict[str, Any]) -> None:
    draft = folder / f"{STATUS}.new"
    draft.write_text(json.dumps(found))
    draft.replace(folder / STATUS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4:]))
