"""Who takes a lost machine's place, and what becomes of one that is well again. Pure.

    spares = SparePool(ready=1)
    spares.lost() == (Instead.SPARE, "a spare takes its place")
    spares.lost() == (Instead.ANOTHER, "no spare is left: another machine is asked for")

There are never more spares than at the start: a machine that was asked for, for want of a spare, is
given back as soon as a repaired one can do its work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Instead(StrEnum):
    """What comes in a lost machine's place."""

    SPARE = "spare"
    ANOTHER = "another"  # asked for now
    ITSELF = "itself"  # once it is repaired: no other is to be had


class Repaired(StrEnum):
    """What becomes of a machine that is well again."""

    PLACED = "placed"  # where one was waited for
    SPARE = "spare"
    GIVEN_BACK = "given back"


@dataclass(slots=True)
class SparePool:
    """`ready`: machines that only wait. `asked_for`: got for want of a spare, or on their way."""

    ready: int = 0
    asked_for: int = 0

    def lost(self, *, is_there_another: bool = True) -> tuple[Instead, str]:
        """A machine is gone. `is_there_another`: whether one can be asked for."""
        if self.ready:
            self.ready -= 1
            return Instead.SPARE, "a spare takes its place"
        if not is_there_another:
            return Instead.ITSELF, "no spare is left, and no other is to be had"
        self.asked_for += 1
        return Instead.ANOTHER, "no spare is left: another machine is asked for"

    def repaired(self, *, is_waited_for: bool) -> tuple[Repaired, str]:
        """A machine is well again. `is_waited_for`: whether it would fill a place sooner."""
        if self.asked_for:
            self.asked_for -= 1
            if is_waited_for:
                return Repaired.PLACED, "it is there sooner than the one that was asked for"
            return Repaired.GIVEN_BACK, "another one does its work"
        if is_waited_for:
            return Repaired.PLACED, "it goes back to work"
        self.ready += 1
        return Repaired.SPARE, "nobody waits for it"
