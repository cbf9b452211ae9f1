"""What strikes, and when: the same for every system.

A schedule is drawn from a seed alone. A fault that is due while the system is down waits until it
steps again: every system suffers as many, and none is spared for being slow. The processes are
known from the ruler's lines, never from a launcher.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_S = 0.5
# Left alone at the end, so that what the last kill cost can be seen.
LAST_S = 2.0


@dataclass(frozen=True)
class Fault:
    """One blow: seconds after the race began, and the rank it hits."""

    at_s: float
    rank: int


def kills(seed: int, seconds: float, ranks: int, every_s: float = 20.0) -> list[Fault]:
    """SIGKILLs of one rank: one in each `every_s`, at a moment that knows nothing of the others.

    Two may follow within an instant, or stand almost twice `every_s` apart. A shorter race is the
    beginning of a longer one with the same seed, so that rows of different lengths compare. Purely
    random times (a Poisson process) would also change how many there are from seed to seed.
    """
    draw = random.Random(seed)
    schedule = []
    for block in range(max(1, round(seconds / every_s))):
        at_s = every_s * (block + draw.random())
        rank = draw.randrange(ranks)
        schedule.append(Fault(round(min(max(at_s, FIRST_S), max(seconds - LAST_S, 1.0)), 3), rank))
    return schedule


def one_after_another(seed: int, count: int, ranks: int, gap_s: float) -> Iterator[Fault]:
    """Kills that each wait for the run to be back: `at_s` counts from then, half to one and a half
    times the gap. Random, so that they meet everything that goes on after a restart."""
    draw = random.Random(seed)
    for _ in range(count):
        yield Fault(round(gap_s * (0.5 + draw.random()), 3), draw.randrange(ranks))
