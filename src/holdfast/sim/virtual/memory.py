"""The memory of the hosts on which virtual ranks run: buffers, and what is sealed in them.

It outlives ranks and supervisors, not its host. Whoever breaks the rule of the buffers is told at
once: nothing is overwritten that is being sealed, flushed or read, nor the newest sealed set, nor
the newest one that is on two hosts each. Each host keeps copies for the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core import events as ev
from holdfast.sim.virtual.broken import require
from holdfast.snapshot.part import COPIES
from holdfast.snapshot.sets import SetInfo, set_name

RanksByHost = tuple[tuple[int, ...], ...]  # the ranks of each host


@dataclass(frozen=True)
class CopiedShard:
    """What one rank has copied into a buffer."""

    attempt: int
    epoch: int
    step: int

    @property
    def name(self) -> tuple[int, int]:
        """Of the set that it is of."""
        return self.attempt, self.step


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
    copies: dict[int, list[CopiedShard]] = field(default_factory=dict)  # by who keeps them
    replicated: CopiedShard | None = None  # the newest on two hosts each, as the controller heard
    wanted: tuple[int, int] | None = None  # of what the controller waits to hear that it is

    def lose(self) -> None:
        """Every host is gone, or gives its memory back."""
        self.shards, self.seals, self.counting = {}, {}, []
        self.copies, self.replicated = {}, None

    def lose_host(self, host: int) -> None:
        """That host is gone."""
        mine = self.placement[host]
        self.shards = {at: one for at, one in self.shards.items() if at[1] not in mine}
        self.seals = {at: one for at, one in self.seals.items() if at[0] != host}
        self.copies.pop(host, None)
        self.let_go(host)
        self.counting = []

    def let_go(self, host: int) -> None:
        """Nothing is sealed or flushed there any more."""
        self.busy = {at: why for at, why in self.busy.items() if at[0] != host}

    def launch(self, attempt: int, buffer: int | None, of: tuple[int | None, int]) -> None:
        """An attempt starts from the set `of` in that buffer, or from the disk: all else is void.

        A host that has not its part fetches it from where the copy is.
        """
        self.attempt, self.wanted = attempt, None
        if buffer is None:
            self.counting, self.replicated = [], None
            return
        for host in range(len(self.placement)):
            self._fetch(host, buffer, of)
        here = self.sealed(buffer)
        self.counting = [] if here is None else [here]
        if self.replicated is not None and self.replicated.step > of[1]:
            self.replicated = None

    def _fetch(self, host: int, buffer: int, of: tuple[int | None, int]) -> None:
        here = self.seals.get((host, buffer))
        if here is not None and here.name == of:
            return
        copy = next((one for one in self._copies_of(host) if one.name == of), None)
        if copy is not None:
            self.seals[host, buffer] = copy
            self.shards.update({(buffer, rank): copy for rank in self.placement[host]})
        elif len(self.placement) > 1:
            self.seals.pop((host, buffer), None)

    def _copies_of(self, host: int) -> list[CopiedShard]:
        return self.copies.get((host + 1) % len(self.placement), [])

    def replicate(
        self, host: int, buffer: int, name: tuple[int, int], kept: tuple[int, int] | None
    ) -> bool:
        """Keep a copy of the part of the host before this one; whether that could be."""
        shard = self.seals.get(((host - 1) % len(self.placement), buffer))
        if shard is None or shard.name != name:
            return False
        mine = self.copies.setdefault(host, [])
        if all(one.name != shard.name for one in mine):
            if len(mine) == COPIES:
                mine.remove(next(one for one in mine if one.name != kept))
            mine.append(shard)
        return True

    def hear(self, event: ev.Replicated | ev.NotReplicated) -> None:
        """The controller knows what became of this set; it may have been ordered twice."""
        name = event.of_attempt, event.step
        if name != self.wanted:
            return  # by an order from before the newest launch: nobody waits for that
        self.wanted = None
        if isinstance(event, ev.Replicated) and self._is_on_two_hosts(name):
            self.replicated = CopiedShard(event.of_attempt, event.epoch, event.step)

    def _is_on_two_hosts(self, name: tuple[int, int]) -> bool:
        return all(
            any(one.name == name for one in self._copies_of(host))
            for host in reversed(range(len(self.placement)))  # the last one answers last
        )

    def copying(self, host: int, rank: int, buffer: int) -> None:
        """A rank begins to overwrite its shard."""
        why = self.busy.get((host, buffer))
        require(not why, f"buffer {buffer}: {why}, and overwritten")
        here = self.sealed(buffer)
        if here is not None and self.buffers > 1 and self.counting:
            newest = max(self.counting, key=lambda one: (one.attempt, one.step))
            require(here != newest, f"the newest set in memory ({here}) is overwritten")
        mine, safe = self.seals.get((host, buffer)), self.replicated
        if mine is not None and safe is not None and mine.name == safe.name:
            is_needed = self._is_on_two_hosts(safe.name)
            require(not is_needed, f"{safe} is overwritten, the newest on two hosts")
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
        hosts = reversed(range(len(self.placement)))  # the last one answers last
        first = self.seals.get((0, buffer))
        are_alike = all(self.seals.get((host, buffer)) == first for host in hosts)
        return first if are_alike else None

    def sets(self) -> list[tuple[int, SetInfo]]:
        """What restores from memory, by the buffer that it is read from."""
        whole = [(b, one.name) for b in range(self.buffers) if (one := self.sealed(b)) is not None]
        names = {name for _, name in whole}
        whole += [one for one in self._in_parts() if one[1] not in names]
        ranks = sum(map(len, self.placement))
        return [
            (buffer, SetInfo(Path(set_name(*name)), *name, ranks, 0, 0, ()))
            for buffer, name in whole
        ]

    def _in_parts(self) -> list[tuple[int, tuple[int, int]]]:
        """Sets of which some host has each part: in the buffer in which most have their own."""
        found: dict[tuple[int, int], list[int]] = {}
        for (_, buffer), one in self.seals.items():
            found.setdefault(one.name, []).append(buffer)
        for one in [one for kept in self.copies.values() for one in kept]:
            found.setdefault(one.name, [])
        whole = []
        for name, buffers in sorted(found.items()):
            own = {host for (host, _), one in self.seals.items() if one.name == name}
            copied = {
                host
                for host in range(len(self.placement))
                if any(one.name == name for one in self._copies_of(host))
            }
            if len(own | copied) == len(self.placement):
                whole.append((max(sorted(set(buffers)), key=buffers.count, default=0), name))
        return whole
