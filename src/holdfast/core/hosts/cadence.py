"""How often an agent of several hosts speaks where nothing new has happened.

A controller hears all of them, so the more hosts a run has, the less often each speaks. What is
new is told at once, and how far the ranks are is asked before each order: these are for people, for
the measuring of clocks and for finding stragglers.
"""

from __future__ import annotations

from holdfast.core.durations import SECOND_NS


def progress_ns(hosts: int) -> int:
    """Between two words on how far the ranks are."""
    return max(SECOND_NS, hosts * SECOND_NS // 500)


def again_ns(hosts: int) -> int:
    """Between two messages where nothing is new: each measures the clocks anew."""
    return max(5 * SECOND_NS, hosts * SECOND_NS // 200)
