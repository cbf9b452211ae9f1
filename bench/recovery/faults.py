"""What strikes, and when: the same for every system.

A schedule is drawn from a seed alone. A fault that is due while the system is down waits until it
steps again: every system suffers as many, and none is spared for being slow. The processes are
known from the ruler's lines, never from a launcher.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One blow: seconds after the race began, and the rank it hits."""

    at_s: float
    rank: int


def kills(seed: int, seconds: float, ranks: int, every_s: float = 20.0) -> list[Fault]:
    """SIGKILLs of one rank, one each `every_s` on average, at times that know nothing of another.

    The number is fixed, and the times are independent and uniform: what a Poisson process of that
    rate looks like when it happened to strike that often. The last two seconds are left alone, so
    that what the last one cost can be seen.
    """
    draw = random.Random(seed)
    count = max(1, round(seconds / every_s))
    times = sorted(draw.uniform(0.5, max(seconds - 2.0, 1.0)) for _ in range(count))
    return [Fault(round(at, 3), draw.randrange(ranks)) for at in times]
