"""What an attempt needs of this host: free ports, and its files in the run's scratch folder."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

from holdfast.journal.layout import REPORT_SUFFIX

LOOPBACK = "127.0.0.1"
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 10_000  # below are services that somebody may start at any time
LEAST_CHOICE = 1000
PORT_TRIES = 100


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, no two of them the same.

    Fresh ones per attempt: no rank may meet a store or a coordinator of the last attempt. If
    possible none of those that the kernel gives to whoever connects to anything: hours may pass
    until a rank that was woken ahead of its attempt listens there.
    """
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            _bind(probe)
        return [probe.getsockname()[1] for probe in probes]


def _bind(probe: socket.socket) -> None:
    choice = _first_given_port() - LOWEST_PORT
    for _ in range(PORT_TRIES if choice >= LEAST_CHOICE else 0):
        with contextlib.suppress(OSError):  # somebody listens there
            probe.bind((LOOPBACK, LOWEST_PORT + secrets.randbelow(choice)))
            return
    probe.bind((LOOPBACK, 0))


def _first_given_port() -> int:
    """The lowest of the ports that the kernel gives (ip(7)); 0: not known."""
    try:
        return int(PORT_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def journal_name(rank: int) -> str:
    """The file name of a rank's journal."""
    return f"rank-{rank:05d}.hfj"


def report_name(rank: int) -> str:
    """The file name of what a rank that failed said about it."""
    return f"rank-{rank:05d}{REPORT_SUFFIX}"


def log_name(rank: int) -> str:
    """The file name of a rank's output."""
    return f"rank-{rank:05d}.log"


def attempt_folder(scratch: Path, attempt: int) -> Path:
    """An attempt's own place in the run's scratch folder."""
    return scratch / f"attempt-{attempt:04d}"


def imports_path(scratch: Path, rank: int) -> Path:
    """Where a rank leaves the list of its imports, in the run's own scratch folder."""
    return scratch / f"imports-rank-{rank:05d}.json"


def forget_imports(scratch: Path) -> None:
    """The run has ended here: nobody needs what was learned of its imports."""
    for path in scratch.glob("imports-rank-*"):
        path.unlink(missing_ok=True)
