"""What of which sets lies in the memory of a run's hosts, and where a host gets its part. Pure.

    copies = {"a": (HeldPart(0, 40, (0, 1), 4, buffer=2),), "b": (…)}
    restorable(copies, placement) == (SealedSet(0, 40, buffer=2),)
    source(copies, SealedSet(0, 40, 2), ranks=(2, 3)) == "b"

Each host seals the shards of its own ranks, its *part* of a set, in the buffer of the number that
is the same on all hosts, and may hold copies of other hosts' parts. A set restores if some host
that is there has each part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.core.hosts.placement import Placement
from holdfast.core.save.choose import SealedSet
from holdfast.core.value import value


class HeldPart(NamedTuple):
    """Sealed shards of one set, in the memory of one host: those of `ranks`, of `world_size`.

    `buffer`: which of the host's own they lie in; None: they are a copy for another host.
    """

    attempt: int
    step: int
    ranks: tuple[int, ...]
    world_size: int
    buffer: int | None = None
    tags: tuple[str, ...] = ()


class CopyServer(NamedTuple):
    """Where a host's parts can be had."""

    address: str
    port: int


class CopyPlaces(NamedTuple):
    """Where one host gets parts. `own`: its own one, of the set that its attempt starts from.

    `neighbour`: that of the host whose parts it keeps copies of. None: nowhere.
    """

    own: CopyServer | None = None
    neighbour: CopyServer | None = None


NOWHERE = CopyPlaces()


@value
class InMemory:
    """What a controller that takes over must not have overwritten.

    `sealed`: every host has its own part, in that buffer. `replicated`: the newest of these of
    which each part is on a second host, too; None: none is.
    """

    sealed: tuple[SealedSet, ...] = ()
    replicated: SealedSet | None = None


NOTHING_IN_MEMORY = InMemory()

Copies = Mapping[str, Sequence[HeldPart]]
"""By host, what it holds."""


def restorable(copies: Copies, placement: Placement) -> tuple[SealedSet, ...]:
    """The sets of which each host of the placement can have its part, the oldest first."""
    parts: dict[tuple[int, int], dict[tuple[int, ...], list[HeldPart]]] = {}
    for held in copies.values():
        for one in held:
            if one.world_size == placement.ranks:
                there = parts.setdefault((one.attempt, one.step), {})
                there.setdefault(one.ranks, []).append(one)
    wanted = [placement.on(host) for host in dict.fromkeys(placement.hosts)]
    return tuple(
        _as_set(*name, [one for ranks in wanted for one in there[ranks]])
        for name, there in sorted(parts.items())
        if all(ranks in there for ranks in wanted)
    )


def _as_set(attempt: int, step: int, parts: Sequence[HeldPart]) -> SealedSet:
    """It is in the buffer in which most hosts have it: the others get it there."""
    buffers = Counter(one.buffer for one in parts if one.buffer is not None)
    buffer = min(buffers, key=lambda one: (-buffers[one], one)) if buffers else 0
    return SealedSet(attempt, step, buffer, parts[0].tags)


def in_memory(copies: Copies, placement: Placement, holders: Mapping[int, str]) -> InMemory:
    """What the hosts of a placement hold themselves; `holders`: by slot, who has it."""
    sealed = tuple(
        one
        for one in restorable(copies, placement)
        if all(
            has_own(copies.get(holder, ()), one, placement.on(slot))
            for slot, holder in holders.items()
        )
    )
    copied = [
        one
        for one in sealed
        if all(
            any(
                (held.attempt, held.step, held.ranks) == (one.attempt, one.step, placement.on(slot))
                for other, parts in copies.items()
                if other != holder
                for held in parts
            )
            for slot, holder in holders.items()
        )
    ]
    return InMemory(sealed, copied[-1] if copied else None)


def has_own(held: Sequence[HeldPart], wanted: SealedSet, ranks: tuple[int, ...]) -> bool:
    """Whether a host with these ranks has its part of that set where it is to be."""
    return any(
        (one.attempt, one.step, one.ranks, one.buffer)
        == (wanted.attempt, wanted.step, ranks, wanted.buffer)
        for one in held
    )


def source(copies: Copies, wanted: SealedSet, ranks: tuple[int, ...]) -> str | None:
    """Which host has the part of these ranks; None: none has."""
    for host, held in copies.items():
        for one in held:
            if (one.attempt, one.step, one.ranks) == (wanted.attempt, wanted.step, ranks):
                return host
    return None
