"""How long to wait before the next try of something that failed: with decorrelated jitter.

Each wait is drawn between the shortest and three times the one before, and none is longer than the
cap (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). Many hosts that
lost the same server do not come back to it at the same moment.
"""

from __future__ import annotations

from holdfast.core.durations import SECOND_NS
from holdfast.core.value import value

GROWTH = 3


@value
class Backoff:
    """`shortest_ns` after the first failure, then longer, up to `cap_ns`."""

    shortest_ns: int = SECOND_NS
    cap_ns: int = 60 * SECOND_NS

    def next_ns(self, before_ns: int, jitter: float) -> int:
        """The wait after one of `before_ns` (0: none yet); `jitter` is drawn from [0, 1)."""
        most_ns = min(self.cap_ns, GROWTH * max(before_ns, self.shortest_ns))
        least_ns = min(self.shortest_ns, most_ns)
        return least_ns + int((most_ns - least_ns) * jitter)
