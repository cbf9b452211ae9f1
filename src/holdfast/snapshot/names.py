"""The names of sets and of the files that lie beside and inside them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.errors import StoreUnavailable

FIRST_COMMIT = "first-commit.json"
_DOOMED = re.compile(r"doomed-([0-9]{6,12})")
_NAME = re.compile(r"([0-9]{4,9})-([0-9]{12,13})")


def set_name(attempt: int, step: int) -> str:
    """The folder of a set: sorts by attempt, then step."""
    return f"{attempt:04d}-{step:012d}"


def parse_set_name(name: str) -> tuple[int, int] | None:
    """(attempt, step) of a set's folder name; None when it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    attempt, step = int(found.group(1)), int(found.group(2))
    return (attempt, step) if set_name(attempt, step) == name else None


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
