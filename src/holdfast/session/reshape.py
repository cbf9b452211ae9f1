"""A checkpoint of another number of ranks: what each rank makes of what all of them stored.

The state is the run's, and is cut anew. Random generators and data positions belong to the ranks
that stored them; here are the rules by which other ranks take them over. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from holdfast.core.value import value
from holdfast.errors import DataTopologyChanged

SHARED = ("state", "parts")
"""Sections that are read as they are; a part that differs between ranks is refused there."""

OWN = ("data", "rng", "session")
"""Sections of which each rank has stored its own."""

BEGAN = "began"
"""In a position: what the order of the epoch follows from, this rank's random generators."""

Reshard = Literal["same"] | Callable[[list[Any], int, int], Any]
"""How a data stream goes on with another number of ranks.

"same": its position means the same for any number of them (each takes its part of one global
batch). A function gets the positions of all ranks that were, this rank's number and the number of
ranks now, and returns this rank's position: the source's own state, or a number of batches.
"""


@value
class Positions:
    """Where each of the ranks that were stood in one data stream; this is rank `rank` of now."""

    by_rank: tuple[dict[str, Any], ...]
    rank: int
    world_size: int


def reshape(by_rank: Sequence[dict[str, Any]], rank: int, world_size: int) -> dict[str, Any]:
    """The own sections for `rank` of `world_size`, from those of all ranks that were."""
    streams = by_rank[0].get("data", {})
    data = {
        number: Positions(
            tuple(one.get("data", {}).get(number, {}) for one in by_rank), rank, world_size
        )
        for number in streams
    }
    return {
        "data": data,
        "rng": _generators([one.get("rng", {}) for one in by_rank], rank),
        "session": by_rank[0].get("session", {}),  # what all ranks have been told alike
    }


def _generators(by_rank: list[Any], rank: int) -> Any:
    """A rank that was there keeps its own; a new one starts as the script has seeded it.

    Unless all ranks drew the same numbers: then all go on with them.
    """
    if all(same(one, by_rank[0]) for one in by_rank):
        return by_rank[0]
    return by_rank[rank] if rank < len(by_rank) else {}


def resharded(positions: Positions, rule: Reshard | None, number: int) -> dict[str, Any]:
    """The position of this rank in data stream `number`; DataTopologyChanged without a rule."""
    were, now = len(positions.by_rank), positions.world_size
    who = f"the checkpoint was written by {were} ranks and is read by {now}"
    if rule is None:
        raise DataTopologyChanged(
            f"{who}, and each has a position of its own in data stream {number}: start with as "
            "many ranks, or say how it goes on with run.data(source, reshard=…)"
        )
    first = positions.by_rank[0]
    if rule == "same":
        if all(same(one, first) for one in positions.by_rank):
            return first
        plain = [{k: v for k, v in one.items() if k != BEGAN} for one in positions.by_rank]
        if not all(same(one, plain[0]) for one in plain):
            raise DataTopologyChanged(
                f'{who}; reshard="same" was given for data stream {number}, but its positions '
                "differ from rank to rank: give a function that makes a new one of them"
            )
        return plain[0]
    has_state = "state" in first
    key = "state" if has_state else "consumed"
    made = rule([one[key] for one in positions.by_rank], positions.rank, now)
    consumed = max(int(one["consumed"]) for one in positions.by_rank)
    return first | {"consumed": consumed, "state": made} if has_state else {"consumed": int(made)}


def same(one: Any, other: Any) -> bool:
    """Whether two restored trees hold the same values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "dtype") and hasattr(one, "shape"):
        return bool(one.dtype == other.dtype and one.shape == other.shape and (one == other).all())
    return bool(one == other)
