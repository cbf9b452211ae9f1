"""Virtual time: what is to happen, in order of time, then in the order in which it was asked."""

from __future__ import annotations

import heapq
from collections.abc import Callable

NS_PER_S = 1_000_000_000
NEVER_NS = 1 << 62


def to_ns(seconds: float) -> int:
    """Whole nanoseconds; what is longer than a century is never."""
    return min(round(seconds * NS_PER_S), NEVER_NS) if seconds < NEVER_NS else NEVER_NS


class Clock:
    """Time passes only when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    @property
    def next_ns(self) -> int:
        """When the next thing is due."""
        return self._due[0][0] if self._due else NEVER_NS

    def at(self, at_ns: int, do: Callable[[], None]) -> None:
        """Do this then, or now, if that is past."""
        self._asked += 1
        heapq.heappush(self._due, (max(at_ns, self.now_ns), self._asked, do))

    def advance(self) -> None:
        """Do the next thing."""
        self.now_ns, _, do = heapq.heappop(self._due)
        do()
