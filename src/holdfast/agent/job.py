"""What `holdfast run` was asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.agent.launch import Command, MemoryPlace, rank_commands
from holdfast.agent.memory import MemoryJob
from holdfast.agent.output import RankOutput
from holdfast.agent.tree import RankCommand
from holdfast.cache.seal import FileSealer
from holdfast.core.events import Resume
from holdfast.core.run.machine import RunPolicy
from holdfast.journal.scratch import CACHE_FOLDER
from holdfast.journal.store import RunFolder
from holdfast.snapshot.keep import Keep


@dataclass(frozen=True, slots=True)
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
    standby: Sequence[str] | None = None
    """What the interpreters that wait for the next attempt are started as; None: there are none."""
    is_hot: bool = False  # they run the script at once, and wait where it restores
    cache_bytes: int | None = None  # how much is kept of compiled programs; None: nothing
    cache_seal: FileSealer | None = None  # what they bear in a store that others may write
    ideal_step_ns: int = 0  # what a step would take at best; 0: nobody said

    @property
    def cache(self) -> Path | None:
        """Where they are kept."""
        return None if self.cache_bytes is None else self.scratch / CACHE_FOLDER

    def rank_commands(
        self,
        folder: RunFolder,
        outputs: Sequence[RankOutput],
        scratch: Path,
        *,
        memory: MemoryPlace,
        attempt: int,
        resume: Resume,
        gate: Path | None = None,
    ) -> list[RankCommand]:
        """What an attempt's ranks are started as; see `launch.rank_commands`."""
        return rank_commands(
            self.command,
            folder,
            outputs,
            scratch,
            store=self.store,
            attempt=attempt,
            incarnation=self.incarnation,
            ranks=self.policy.ranks,
            chips=self.chips,
            resume=resume,
            memory=memory,
            cache=self.cache,
            gate=gate,
        )
