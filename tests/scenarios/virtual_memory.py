"""The memory of the host on which virtual ranks run: buffers, what is sealed in them, and flushes.

It outlives ranks and supervisors, not the host. Whoever breaks the rule of the buffers is told at
once: nothing is overwritten that is being sealed, flushed or read, nor the newest sealed set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.snapshot.sets import SetInfo, set_name


@dataclass(frozen=True)
class Shard:
    """What one rank has copied into a buffer."""

    attempt: int
    epoch: int
    step: int


@dataclass
class Memory:
    """`shards` by buffer and rank, `sealed` by buffer, `busy`: why a buffer must stay as it is."""

    ranks: int
    buffers: int
    shards: dict[tuple[int, int], Shard] = field(default_factory=dict)
    sealed: dict[int, Shard] = field(default_factory=dict)
    busy: dict[int, list[str]] = field(default_factory=dict)
    counting: list[Shard] = field(default_factory=list)  # sealed, and of the lineage
    attempt: int = 0  # the newest that was launched
    has_vanished: bool = False  # under a run that went on
    ever: set[tuple[int, int]] = field(default_factory=set)  # (attempt, step) that was ever sealed

    def lose(self) -> None:
        """The host is gone, or gives its memory back."""
        self.shards, self.sealed, self.counting = {}, {}, []

    def launch(self, attempt: int, buffer: int | None) -> None:
        """An attempt starts from what is in that buffer, or from the disk: all else is void."""
        self.attempt = attempt
        self.counting = [] if buffer is None else [self.sealed[buffer]]

    def copying(self, rank: int, buffer: int) -> None:
        """A rank begins to overwrite its shard."""
        assert not self.busy.get(buffer), f"buffer {buffer}: {self.busy[buffer]}, and overwritten"
        here = self.sealed.get(buffer)
        if here is not None and self.buffers > 1 and self.counting:
            newest = max(self.counting, key=lambda one: (one.attempt, one.step))
            assert here != newest, f"the newest set in memory ({here}) is overwritten"
        self.sealed.pop(buffer, None)
        self.shards.pop((buffer, rank), None)

    def copied(self, rank: int, buffer: int, shard: Shard) -> None:
        """It has."""
        self.shards[buffer, rank] = shard

    def holds(self, buffer: int, shard: Shard) -> bool:
        """Whether every rank's shard there is of that save."""
        return all(self.shards.get((buffer, rank)) == shard for rank in range(self.ranks))

    def pin(self, buffer: int, why: str) -> None:
        """From now on it must stay as it is."""
        self.busy.setdefault(buffer, []).append(why)

    def unpin(self, buffer: int, why: str) -> None:
        """For this reason no more."""
        self.busy[buffer].remove(why)

    def seal(self, buffer: int, shard: Shard) -> None:
        """It has its checksums."""
        assert self.holds(buffer, shard), (
            f"{shard} is sealed, and buffer {buffer} holds no such set"
        )
        self.sealed[buffer] = shard
        if shard.attempt >= self.attempt:  # else it came too late for the choice
            self.counting.append(shard)
        self.ever.add((shard.attempt, shard.step))

    def sets(self) -> list[tuple[int, SetInfo]]:
        """What restores from memory."""
        return [
            (
                buffer,
                SetInfo(Path(set_name(s.attempt, s.step)), s.attempt, s.step, self.ranks, 0, 0, ()),
            )
            for buffer, s in sorted(self.sealed.items())
        ]
