"""The names of sets and of the files that lie beside and inside them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.save.choose import parse_set_name, set_name
from holdfast.errors import StoreUnavailable

__all__ = ["FIRST_COMMIT", "doing", "doomed_by", "doomed_name", "given_up", "is_committed",
           "parse_set_name", "set_name"]  # fmt: skip

FIRST_COMMIT = "first-commit.json"
_DOOMED = re.compile(r"doomed-([0-9]{6,12})")


def doomed_name(epoch: int) -> str:
    """The file in a set that says: the holder of that lease is removing it. It is empty.

    Its name is all, so that a full disk takes it too.
    """
    return f"doomed-{epoch:06d}"


def doomed_by(files: Iterable[str]) -> int | None:
    """The newest lease that is removing the set of these files; None: none is."""
    epochs = [int(found[1]) for name in files if (found := _DOOMED.fullmatch(name))]
    return max(epochs, default=None)


def doing(name: str) -> str:
    """What is being done when a shard of this set is written, for an error's sentence."""
    known = parse_set_name(name)
    return f"save {name}" if known is None else f"save step {known[1]}"


def is_committed(name: str, place: str) -> StoreUnavailable:
    """The error for a shard that comes after its set's manifest."""
    return StoreUnavailable(
        f"cannot {doing(name)}: {place} is a committed checkpoint already; "
        "every attempt saves a step once"
    )


def given_up(name: str) -> StoreUnavailable:
    """The error for a write that somebody stopped."""
    return StoreUnavailable(f"cannot {doing(name)}: it was given up before it was written")
