"""What `holdfast run` was asked to do, and what its ranks are started as because of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.agent.guessed_imports import guess
from holdfast.agent.launch import (
    LOOPBACK,
    attempt_folder,
    free_ports,
    imports_path,
    journal_name,
)
from holdfast.agent.memory import MemoryJob, MemoryPlace
from holdfast.agent.output import RankOutput
from holdfast.agent.standbys import StandbyJob
from holdfast.agent.tree import RankCommand
from holdfast.cache.seal import FileSealer
from holdfast.config.rank import RankEnvironment, host_mark
from holdfast.core.actions import Launch
from holdfast.core.events import SCRATCH, Resume
from holdfast.core.hosts.placement import Meeting, place
from holdfast.core.ledger.program import Declared
from holdfast.core.run.machine import RunPolicy
from holdfast.core.value import value
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import encode_json, write_atomic
from holdfast.journal.scratch import CACHE_FOLDER
from holdfast.journal.store import RunFolder
from holdfast.snapshot.keep import Keep

VARIABLES = {
    # Unbuffered, or the last lines before a SIGKILL are lost; a segfault shows its stack.
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    # It would take SIGTERM away from the session, without telling Python.
    "JAX_ENABLE_PREEMPTION_SERVICE": "false",
    "PYTHONBREAKPOINT": "holdfast.session.breakpoints.pass_over",
}


@value
class Command:
    """What the user asked to run, and in what surroundings."""

    argv: Sequence[str]
    working_directory: str
    environment: Mapping[str, str]


@value
class LocalRanks:
    """The ranks of an attempt that run on this host, by their local rank.

    `world_size`: how many there are on all hosts. `meeting`: where they find each other; None: all
    are here, and any two free ports will do.
    """

    ranks: tuple[int, ...]
    world_size: int
    meeting: Meeting | None = None

    @classmethod
    def of(cls, launch: Launch, host: int) -> LocalRanks:
        """Those of the host that has this number in the placement."""
        placement = launch.placement
        return cls(placement.on(host), placement.ranks, launch.meeting)


@value
class Job:
    """What `holdfast run` was asked to do."""

    command: Command
    policy: RunPolicy
    keep: Keep
    grace_ns: int
    chips: int
    store: str
    incarnation: str
    scratch: Path
    memory: MemoryJob | None = None
    standby: StandbyJob = StandbyJob()
    cache_bytes: int | None = None  # how much is kept of compiled programs; None: nothing
    cache_seal: FileSealer | None = None  # what they bear in a store that others may write
    declared: Declared = Declared()
    host: int | None = None  # which of several hosts this is; None: there is one
    tells_frameworks: bool = True  # that they train with so many processes

    def local_ranks(self, host: int) -> LocalRanks:
        """Those that an attempt has on that host, as far as is known before any is launched."""
        placement = place(self.policy.ranks, range(self.policy.hosts))
        return LocalRanks(placement.on(host), placement.ranks)

    @property
    def ranks_of_a_host(self) -> int:
        """How many run on the fullest one, as a rule."""
        return -(-self.policy.ranks // self.policy.hosts)

    def guess_imports(self, ranks: Sequence[int]) -> None:
        """Say what these ranks will import, where no run has told it yet; where it can be said."""
        paths = [imports_path(self.scratch, rank) for rank in ranks]
        if any(not path.exists() for path in paths):
            guessed = guess(self.command.argv, self.command.working_directory)
            with contextlib.suppress(StoreUnavailable):  # then they start cold
                for path in paths:
                    write_atomic(path, encode_json(guessed))

    @property
    def cache(self) -> Path | None:
        """Where they are kept."""
        return None if self.cache_bytes is None else self.scratch / CACHE_FOLDER

    def rank_commands(
        self,
        folder: RunFolder,
        outputs: Sequence[RankOutput],
        attempt: int,
        local: LocalRanks,
        *,
        memory: MemoryPlace,
        resume: Resume = SCRATCH,
        gate: Path | None = None,
    ) -> list[RankCommand]:
        """One command per rank of this host.

        `gate`: where the ranks wait until they are told what they resume from; not `resume`, then.
        """
        scratch, command = attempt_folder(self.scratch, attempt), self.command
        meeting = local.meeting or Meeting(LOOPBACK, *free_ports(2))
        commands = []
        for local_rank, output in enumerate(outputs):
            rank = output.rank
            environment = RankEnvironment(
                run=folder.name,
                run_id=folder.identity.run_id,
                store=self.store,
                attempt=attempt,
                incarnation=f"{self.incarnation}-{attempt}-{rank}",
                journal=str(scratch / journal_name(rank)),
                resume_set=resume.set_name,
                resume_step=resume.step,
                resume_parent=resume.parent,
                skip_batches=resume.skip_batches,
                ended_until=resume.ended_until,
                resume_from=memory.buffer(resume.buffer),
                gate=None if gate is None else str(gate),
                ram=memory.folder,
                ram_buffers=memory.buffers,
                imports=str(imports_path(self.scratch, rank)),
                chips=self.chips,
                rank=rank,
                local_rank=local_rank,
                world_size=local.world_size,
                local_world_size=len(local.ranks),
                master_addr=meeting.address,
                master_port=meeting.port,
                coordinator_port=meeting.coordinator_port,
                cache=None if self.cache is None else str(self.cache),
            )
            variables = {**VARIABLES, **command.environment, **environment.to_environ()}
            variables |= environment.launcher_variables() if self.tells_frameworks else {}
            variables |= host_mark(self.host)
            commands.append(
                RankCommand(
                    rank, command.argv, variables, command.working_directory, output.write_fd
                )
            )
        return commands
