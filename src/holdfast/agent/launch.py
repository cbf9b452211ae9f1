"""What a rank is started with: its environment, its output, its place in scratch."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.agent.output import RankOutput
from holdfast.agent.tree import RankCommand, StandbyCommand
from holdfast.config import IMPORTS_VARIABLE, RankEnvironment
from holdfast.core.events import Resume
from holdfast.journal.layout import REPORT_SUFFIX
from holdfast.journal.store import RunFolder
from holdfast.snapshot.buffers import buffer_name

LOOPBACK = "127.0.0.1"
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 10_000  # below are services that somebody may start at any time
LEAST_CHOICE = 1000
PORT_TRIES = 100


@dataclass(frozen=True, slots=True)
class Command:
    """What the user asked to run, and in what surroundings."""

    argv: Sequence[str]
    working_directory: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """The run's folder of the memory tier on this host, and how many buffers ranks make there."""

    folder: str | None = None
    buffers: int = 0

    def buffer(self, number: int | None) -> str | None:
        """Where a buffer lies; None for none."""
        if self.folder is None or number is None:
            return None
        return str(Path(self.folder, buffer_name(number)))


NO_MEMORY = MemoryPlace()


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


def rank_commands(
    command: Command,
    folder: RunFolder,
    outputs: Sequence[RankOutput],
    scratch: Path,
    *,
    store: str,
    attempt: int,
    incarnation: str,
    ranks: int,
    chips: int,
    resume: Resume,
    memory: MemoryPlace = NO_MEMORY,
    cache: Path | None = None,
    gate: Path | None = None,
) -> list[RankCommand]:
    """One command per rank of this host; `scratch` is the attempt's, inside the run's.

    `gate`: where the ranks wait until they are told what they resume from; not `resume`, then.
    """
    port, coordinator_port = free_ports(2)
    commands = []
    for output in outputs:
        rank = output.rank
        environment = RankEnvironment(
            run=folder.name,
            run_id=folder.identity.run_id,
            store=store,
            attempt=attempt,
            incarnation=f"{incarnation}-{attempt}-{rank}",
            journal=str(scratch / journal_name(rank)),
            resume_set=resume.set_name,
            resume_step=resume.step,
            resume_parent=resume.parent,
            skip_batches=resume.skip_batches,
            resume_from=memory.buffer(resume.buffer),
            gate=None if gate is None else str(gate),
            ram=memory.folder,
            ram_buffers=memory.buffers,
            imports=str(imports_path(scratch.parent, rank)),
            chips=chips,
            rank=rank,
            local_rank=rank,
            world_size=ranks,
            local_world_size=ranks,
            master_addr=LOOPBACK,
            master_port=port,
            coordinator_port=coordinator_port,
            cache=None if cache is None else str(cache),
        )
        variables = {
            # Unbuffered, or the last lines before a SIGKILL are lost; a segfault shows its stack.
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            # It would take SIGTERM away from the session, without telling Python.
            "JAX_ENABLE_PREEMPTION_SERVICE": "false",
            "PYTHONBREAKPOINT": "holdfast.session.breakpoints.pass_over",
            **command.environment,
            **environment.to_environ(),
        }
        commands.append(
            RankCommand(
                rank=rank,
                argv=command.argv,
                environment=variables,
                working_directory=command.working_directory,
                output_fd=output.write_fd,
            )
        )
    return commands


def standby_commands(argv: Sequence[str], ranks: Sequence[RankCommand]) -> list[StandbyCommand]:
    """What to start ahead of these ranks: `argv`, an interpreter that can become any of them.

    What the ranks' environment says of the attempt may be out of date when they are launched.
    """
    return [
        StandbyCommand(
            argv=argv,
            task={"imports": rank.environment[IMPORTS_VARIABLE], "argv": list(rank.argv)},
            rank=rank,
        )
        for rank in ranks
    ]
