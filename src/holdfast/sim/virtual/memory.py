"""The memory of the hosts on which virtual ranks run: buffers, and what is sealed in them.

It outlives ranks and supervisors, not its host. Whoever breaks the rule of the buffers is told at
once: nothing is overwritten that is being sealed, flushed or read, nor the newest sealed set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.sim.virtual.broken import require
from holdfast.snapshot.sets import SetInfo, set_name

RanksByHost = tuple[tuple[int, ...], ...]  # the ranks of each host


@dataclass(frozen=True)
class CopiedShard:
    """What one rank has copied into a buffer."""

    attempt: int
    epoch: int
    step: int


@dataclass
class VirtualMemory:
    """`shards` by buffer and rank; `seals`, and why one is `busy`, by host and buffer.

    A set is there when it is sealed on every host.
    """

    placement: RanksByHost
    buffers: int
    shards: dict[tuple[int, int], CopiedShard] = field(default_factory=dict)
    seals: dict[tuple[int, int], CopiedShard] = field(default_factory=dict)
    busy: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    counting: list[CopiedShard] = field(default_factory=list)  # sets, and of the lineage
    attempt: int = 0  # the newest that was launched
    has_vanished: bool = False  # under a run that went on
    ever: set[tuple[int, int]] = field(default_factory=set)  # (attempt, step) that was ever sealed

    def lose(self) -> None:
        """Every host is gone, or gives its memory back."""
        self.shards, self.seals, self.counting = {}, {}, []

    def lose_host(self, host: int) -> None:
        """That host is gone."""
        mine = self.placement[host]
        self.shards = {at: one for at, one in self.shards.items() if at[1] not in mine}
        self.seals = {at: one for at, one in self.seals.items() if at[0] != host}
        self.let_go(host)
        self.counting = []

    def let_go(self, host: int) -> None:
        """Nothing is sealed or flushed there any more."""
        self.busy = {at: why for at, why in self.busy.items() if at[0] != host}

    def launch(self, attempt: int, buffer: int | None) -> None:
        """An attempt starts from what is in that buffer, or from the disk: all else is void."""
        self.attempt = attempt
        here = None if buffer is None else self.sealed(buffer)
        self.counting = [] if here is None else [here]

    def copying(self, host: int, rank: int, buffer: int) -> None:
        """A rank begins to overwrite its shard."""
        why = self.busy.get((host, buffer))
        require(not why, f"buffer {buffer}: {why}, and overwritten")
        here = self.sealed(buffer)
        if here is not None and self.buffers > 1 and self.counting:
            newest = max(self.counting, key=lambda one: (one.attempt, one.step))
            require(here != newest, f"the newest set in memory ({here}) is overwritten")
        self.seals.pop((host, buffer), None)
        self.shards.pop((buffer, rank), None)

    def copied(self, rank: int, buffer: int, shard: CopiedShard) -> None:
        """A rank has overwritten its shard."""
        self.shards[buffer, rank] = shard

    def holds(self, host: int, buffer: int, shard: CopiedShard) -> bool:
        """Whether the shard of every rank there is of that save."""
        return all(self.shards.get((buffer, rank)) == shard for rank in self.placement[host])

    def pin(self, host: int, buffer: int, why: str) -> None:
        """From now on it must stay as it is."""
        self.busy.setdefault((host, buffer), []).append(why)

    def unpin(self, host: int, buffer: int, why: str) -> None:
        """It may change again, as far as this reason goes."""
        self.busy[host, buffer].remove(why)

    def seal(self, host: int, buffer: int, shard: CopiedShard) -> None:
        """The set in the buffer has its checksums on that host."""
        is_held = self.holds(host, buffer, shard)
        require(is_held, f"{shard} is sealed, and buffer {buffer} holds no such set")
        self.seals[host, buffer] = shard
        if self.sealed(buffer) is None:
            return  # other hosts are not so far
        if shard.attempt >= self.attempt:  # else it came too late for the choice
            self.counting.append(shard)
        self.ever.add((shard.attempt, shard.step))

    def sealed(self, buffer: int) -> CopiedShard | None:
        """The set in that buffer."""
        found = [self.seals.get((host, buffer)) for host in range(len(self.placement))]
        return found[0] if found.count(found[0]) == len(found) else None

    def sets(self) -> list[tuple[int, SetInfo]]:
        """What restores from memory."""
        ranks = sum(map(len, self.placement))
        return [
            (
                buffer,
                SetInfo(Path(set_name(s.attempt, s.step)), s.attempt, s.step, ranks, 0, 0, ()),
            )
            for buffer in range(self.buffers)
            if (s := self.sealed(buffer)) is not None
        ]
