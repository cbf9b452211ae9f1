"""What is seen of a run's checkpoints when the next attempt's is chosen: facts that an edge reads.

`core.save.choose` decides on them. They are journaled with the choice, so that it can be made
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.core.value import value

Chain = Sequence[tuple[int, int | None]]
"""The lineage, newest attempt first: (attempt, the last step of it that counts; None: all)."""

_NAME = re.compile(r"([0-9]{4,9})-([0-9]{12,13})")


def set_name(attempt: int, step: int) -> str:
    """What a set is called: sorts by attempt, then step."""
    return f"{attempt:04d}-{step:012d}"


def parse_set_name(name: str) -> tuple[int, int] | None:
    """(attempt, step) of a set's name; None when it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    attempt, step = int(found.group(1)), int(found.group(2))
    return (attempt, step) if set_name(attempt, step) == name else None


@value
class StoredSet:
    """A set in the run store: it has its manifest, and every shard has its size."""

    attempt: int
    step: int
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique in the run."""
        return set_name(self.attempt, self.step)


@value
class SealedSet:
    """A set in this host's memory, in the buffer of that number: it is sealed."""

    attempt: int
    step: int
    buffer: int
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique in the run."""
        return set_name(self.attempt, self.step)


@value
class Skip:
    """An attempt of the lineage that passes over batches from the set that it started from."""

    restore_set: str | None
    resume_step: int
    batches: int


@value
class SeenSets:
    """All of it.

    `bad`: a set's name, and why it cannot be chosen: it is damaged, or being removed. `bad_copies`:
    the same of buffers, in words. `pins`: a tag, and the name of its set. `unread`: an attempt that
    wrote a set, or is the newest, whose record cannot be read, and where that lies.
    """

    run: str
    newest_attempt: int  # -1: there was none
    chain: tuple[tuple[int, int | None], ...] = ()
    stored: tuple[StoredSet, ...] = ()
    sealed: tuple[SealedSet, ...] = ()
    bad: tuple[tuple[str, str], ...] = ()
    bad_copies: tuple[str, ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    skips: tuple[Skip, ...] = ()
    unread: tuple[tuple[int, str], ...] = ()
