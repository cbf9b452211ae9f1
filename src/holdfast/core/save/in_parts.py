"""When each rank of a host copies its part alone of what the framework keeps equal on all of them.

That is never assumed. The first sets of an attempt are whole: each rank copies all of its state,
and who seals the set compares. Once nothing differed in a few sets in a row, the ranks copy in
parts; but every sixteenth set is whole again, and so is the next one after each that began to be
flushed. So every replica is compared within sixteen sets, and of the sets on disk only the
newest can be newer than the last comparison.

What differs before that was never equal: it is no replica, and the attempt copies whole sets. What
differs after it was changed by something that is no training, and the run goes back to a set from
before. Where the ranks differ again after that, a script does it on purpose: nobody is sent back a
second time, and sets stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PROVEN = 3  # whole sets in a row in which nothing differs
EVERY = 16  # one of so many is whole


class Equality(Enum):
    """What a comparison has shown that was not known before."""

    NOTHING = "nothing new"
    NO_REPLICAS = "what differs was not equal for long enough to be known as replicas"
    CORRUPTION = "what was equal is not any more"
    ON_PURPOSE = "that once more, after the run has gone back on account of it"


@dataclass(slots=True)
class InParts:
    """What the comparisons of a run have shown."""

    # Of the run.
    has_gone_back: bool = False

    # Of the attempt.
    is_off: bool = False
    alike: int = 0  # comparisons in a row that found nothing
    is_told: bool = False  # that something differs
    since_whole: int = 0  # sets that were copied in parts
    flushes_at_whole: int = 0  # that had begun when the newest whole set was copied

    def begin(self) -> None:
        """Another attempt: its ranks are others."""
        self.is_off, self.is_told = self.has_gone_back, False
        self.alike = self.since_whole = 0

    def may(self, flushes: int) -> bool:
        """Whether the next set may be copied in parts. `flushes`: that have begun in this run."""
        is_due = self.since_whole >= EVERY - 1 or flushes > self.flushes_at_whole
        return self.alike >= PROVEN and not is_due and not self.is_off

    def copied(self, flushes: int, *, in_parts: bool) -> None:
        """All ranks have copied a set."""
        if in_parts:
            self.since_whole += 1
        else:
            self.since_whole, self.flushes_at_whole = 0, flushes

    def not_sealed(self) -> None:
        """A set did not become one; perhaps because its parts did not make a whole."""
        self.is_off = True

    def compared(self, *, is_equal: bool) -> Equality:
        """Take in what was seen of a whole set."""
        if is_equal:
            self.alike += 1
            return Equality.NOTHING
        was_proven, was_told = self.alike >= PROVEN, self.is_told
        self.alike, self.is_off, self.is_told = 0, True, True
        if was_proven and not self.has_gone_back:
            self.has_gone_back = True
            return Equality.CORRUPTION
        if was_told:
            return Equality.NOTHING
        return Equality.ON_PURPOSE if self.has_gone_back else Equality.NO_REPLICAS
