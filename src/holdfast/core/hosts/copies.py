"""What of which sets lies in the memory of a run's hosts, and where a host gets its part. Pure.

    copies = {"a": (HeldPart(0, 40, (0, 1), 4, buffer=2),), "b": (…)}
    restorable(copies, placement, holders) == (SealedSet(0, 40, buffer=2),)
    sources(copies, SealedSet(0, 40, 2), placement, holders) == {1: "b"}

Each host seals the shards of its own ranks, its *part* of a set, in the buffer of the number that
is the same on all hosts, and may hold copies of other hosts' parts. A set restores if some host
that is there has each part of it, and still has it when that is wanted: a host that gets its part
writes over what lies in that buffer.
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


NOBODY: Mapping[int, str] = {}


def restorable(
    copies: Copies, placement: Placement, holders: Mapping[int, str] = NOBODY
) -> tuple[SealedSet, ...]:
    """The sets of which each host of the placement can have its part, the oldest first.

    `holders`: by slot, who has it; nobody has anything in the others.
    """
    parts: dict[tuple[int, int], dict[tuple[int, ...], list[HeldPart]]] = {}
    for held in copies.values():
        for one in held:
            if one.world_size == placement.ranks:
                there = parts.setdefault((one.attempt, one.step), {})
                there.setdefault(one.ranks, []).append(one)
    wanted = [placement.on(host) for host in dict.fromkeys(placement.hosts)]
    found = (
        _as_set(*name, [one for ranks in wanted for one in there[ranks]])
        for name, there in sorted(parts.items())
        if all(ranks in there for ranks in wanted)
    )
    return tuple(one for one in found if sources(copies, one, placement, holders) is not None)


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


def sources(
    copies: Copies, wanted: SealedSet, placement: Placement, holders: Mapping[int, str]
) -> dict[int, str] | None:
    """By slot, which host has the part that its holder lacks; None: some part is to be had nowhere.

    Not from a host that gets a part itself into that very buffer: what is there is written over,
    and so is what its copies have of it (`snapshot.part`). Its other buffers stay.
    """
    lacking = {
        slot: ranks
        for slot, ranks in placement.by_host.items()
        if not has_own(copies.get(holders.get(slot, ""), ()), wanted, ranks)
    }
    written = {holders[slot] for slot in lacking if slot in holders}
    found: dict[tuple[int, ...], str] = {}
    for host, held in copies.items():
        for one in held:
            stays = host not in written or one.buffer not in (None, wanted.buffer)
            if stays and (one.attempt, one.step) == (wanted.attempt, wanted.step):
                found.setdefault(one.ranks, host)
    if any(ranks not in found for ranks in lacking.values()):
        return None
    return {slot: found[ranks] for slot, ranks in lacking.items()}
