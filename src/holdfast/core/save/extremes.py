"""The least and the greatest of a number that each rank has, known at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Extremes:
    """Each rank has one number, which changes; it is counted how many have which.

    Ranks that train together are within a few steps of one another, so there are few numbers. The
    next least is looked for among them only when the last rank that had the least has moved on.
    """

    ranks: dict[int, int]  # by number: how many have it
    least: int
    greatest: int

    @classmethod
    def start(cls, number: int, ranks: int) -> Extremes:
        """All have that one."""
        return cls({number: ranks}, number, number)

    def copy(self) -> Extremes:
        """The same, to go on from apart."""
        return Extremes(dict(self.ranks), self.least, self.greatest)

    def move(self, before: int, after: int) -> None:
        """A rank had the one and has the other now."""
        ranks = self.ranks
        ranks[after] = ranks.get(after, 0) + 1
        if after > self.greatest:
            self.greatest = after
        elif after < self.least:
            self.least = after
        left = ranks[before] - 1
        if left:
            ranks[before] = left
            return
        del ranks[before]
        if before == self.least:
            self.least = min(ranks)
        if before == self.greatest:
            self.greatest = max(ranks)
