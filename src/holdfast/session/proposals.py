"""What an attempt of ranks that nobody supervises starts from: proposed until all have read it.

The scripts run already when the set is chosen. So the attempt is put on record once every rank has
read what it starts from: a set that turns out corrupt costs a sentence, and not a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.core.events import Resume


class Proposal(NamedTuple):
    """What the ranks are to read. `number`: counts the proposals, from 1; 0: there is none yet."""

    number: int = 0
    resume: Resume = Resume(None, 0, None)


class Proposals:
    """For the controller's thread; the script's reads `newest`, `why` and `has_begun`.

    `refuse(words)`: a rank cannot read the newest one.
    """

    def __init__(self, ranks: int, refuse: Callable[[str], None]) -> None:
        self.newest = Proposal()
        self.why = ""  # the last one was refused
        self.has_begun = False  # the attempt from the newest one is on record
        self._ranks = ranks
        self._refuse = refuse
        self._read: set[int] = set()
        self._create: Callable[[], None] | None = None

    def propose(self, resume: Resume, create: Callable[[], None]) -> None:
        """Another one; `create` puts the attempt on record once all have read it."""
        self._read, self._create = set(), create
        self.newest = Proposal(self.newest.number + 1, resume)

    def answer(self, rank: int, number: int, refused: str | None) -> None:
        """A rank has read that one, or cannot."""
        create = self._create
        if number != self.newest.number or create is None:
            return
        if refused is not None:
            self._create, self.why = None, refused
            self._refuse(refused)
            return
        self._read.add(rank)
        if len(self._read) == self._ranks:
            self._create = None
            create()

    @property
    def unread(self) -> tuple[int, ...]:
        """The ranks that have not answered the newest one."""
        return tuple(rank for rank in range(self._ranks) if rank not in self._read)
