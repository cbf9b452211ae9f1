"""Virtual time: what is to happen, in order of time, then in the order in which it was asked."""

from __future__ import annotations

import heapq
from collections.abc import Callable

MS = 1_000_000
SECOND = 1_000_000_000
NEVER_NS = 1 << 62


def to_ns(seconds: float) -> int:
    """Whole nanoseconds; what is longer than a century is never."""
    return min(round(seconds * SECOND), NEVER_NS) if seconds < NEVER_NS else NEVER_NS


class VirtualClock:
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
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        heapq.heappush(self._due, (at_ns, self._asked, do))

    def later(self, delay_ns: int, do: Callable[[], None]) -> None:
        """Do this in so many nanoseconds."""
        self.at(self.now_ns + delay_ns, do)

    def pass_to(self, at_ns: int) -> None:
        """It is then, unless it is later already; what is due by then is left to `advance`."""
        self.now_ns = max(self.now_ns, at_ns)

    def advance(self, limit_ns: int = NEVER_NS) -> bool:
        """Do the next thing if it is due by `limit_ns`; False (and it is then) if there is none."""
        due = self._due
        if not due or due[0][0] > limit_ns:
            self.now_ns = max(self.now_ns, limit_ns)
            return False
        self.now_ns, _, do = heapq.heappop(due)
        do()
        return True

    def suspend(self, gap_ns: int) -> None:
        """The clock goes on and nothing else does: all that was to happen happens later."""
        self.now_ns += gap_ns
        self._due = [(at_ns + gap_ns, asked, do) for at_ns, asked, do in self._due]
