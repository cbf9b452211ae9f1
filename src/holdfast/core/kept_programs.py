"""When a kept program is compared with its function: as often as costs next to nothing."""

from __future__ import annotations

SETTLE_S = 2.0  # after its first call: the other ranks and the caches are busy until then
SHARE = 1000  # of the time between two comparisons one takes at most one part in so many
LONGEST_S = 600.0  # of training without one


def compare_in_s(trace_s: float, traced_ago_s: float | None) -> float:
    """Seconds from a program's first call until its function is traced beside the training.

    `trace_s`: what tracing and lowering took when it was compiled. `traced_ago_s`: how long ago
    this host did that, or compared; None: never with the environment variables that there are now.
    A clock that was set back counts as never.
    """
    if traced_ago_s is None or traced_ago_s < 0:
        return SETTLE_S
    return max(SETTLE_S, min(SHARE * trace_s, LONGEST_S) - traced_ago_s)
