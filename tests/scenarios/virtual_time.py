"""A virtual clock: what is to happen, in order of time, then in the order in which it was asked."""

from __future__ import annotations

import heapq
from collections.abc import Callable

MS = 1_000_000
SECOND = 1_000_000_000


class Clock:
    """Time passes only when `advance` is called."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def later(self, delay_ns: int, do: Callable[[], None]) -> None:
        """Do this in so many nanoseconds."""
        self._asked += 1
        heapq.heappush(self._due, (self.now_ns + max(0, delay_ns), self._asked, do))

    def suspend(self, gap_ns: int) -> None:
        """The clock goes on and nothing else does: all that was to happen happens later."""
        self.now_ns += gap_ns
        self._due = [(at_ns + gap_ns, asked, do) for at_ns, asked, do in self._due]

    def advance(self, limit_ns: int) -> bool:
        """Do the next thing if it is due by `limit_ns`; False (and it is then) if there is none."""
        if not self._due or self._due[0][0] > limit_ns:
            self.now_ns = max(self.now_ns, limit_ns)
            return False
        self.now_ns, _, do = heapq.heappop(self._due)
        do()
        return True
