"""How fast a part of a set is copied beside the training: as fast as it must be, and no faster.

A copy is to be there in three eighths of the time between two sets. Then it rests for as long, so
that half of the time the network is free (`core.save.replicas`), and the last quarter is for what
comes late. Its process pauses after each block for so
long that it uses a share of one core. A twelfth is taken in any case, as by a flush that nobody
waits for; more only while it waits for a core no longer than it runs.
"""

from __future__ import annotations

from typing import NamedTuple

LEAST, MOST = 1 / 12, 1 / 2  # of one core


class CopySeen(NamedTuple):
    """A copy under way. Times in nanoseconds.

    `used_ns`: of processor time, for `done` bytes of `of`. `left_ns`: until it is to be there.
    `ran_ns`, `waited_ns`: how long its thread has lately run, and waited for a core.
    """

    used_ns: int
    done: int
    of: int
    left_ns: int
    ran_ns: int
    waited_ns: int


def copy_share(seen: CopySeen) -> tuple[float, str]:
    """The share of one core that it may use from now on, and why."""
    if not seen.ran_ns:
        return LEAST, "nobody knows whether others want the cores"
    if seen.waited_ns > seen.ran_ns:  # beside one other on each core it waits as long, or longer
        return LEAST, "others want the cores"
    if seen.left_ns <= 0:
        return MOST, "it is late"
    needed = seen.used_ns * (seen.of - seen.done) / seen.done / seen.left_ns
    if needed > MOST:
        return MOST, "it will be late"
    return max(LEAST, needed), "it will be there in time"
