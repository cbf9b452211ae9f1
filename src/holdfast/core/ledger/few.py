"""Attempts of few rows, cut into stretches of one kind each.

A run that fails all the time has tens of thousands of attempts with a handful of rows each. To go
through all stretches of such an attempt takes less time than the binary searches by which longer
ones answer, and nothing has to be remembered for the next question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from holdfast.core.ledger.kinds import LOST, STEP

NO_STEPS = -1

# Start, end, kind, and of own time of steps, kept or lost, the part that they are of.
Cut: TypeAlias = tuple[int, int, str, int]


def cut(spans: Iterable[Cut], steps: Iterable[Cut], zones: Iterable[Cut]) -> list[Cut]:
    """Where a span shows it counts, else a step, else the zone. Each is disjoint and by time."""
    covered = list(spans)
    taken = sorted(chain(covered, _left_over(steps, covered)))
    return sorted(chain(taken, _left_over(zones, taken)))


def _left_over(cuts: Iterable[Cut], taken: Sequence[Cut]) -> list[Cut]:
    """What nothing takes of the cuts."""
    found: list[Cut] = []
    low, count = 0, len(taken)
    for start_ns, end_ns, kind, part in cuts:
        while low < count and taken[low][1] <= start_ns:
            low += 1
        at = low
        while at < count and taken[at][0] < end_ns:
            if start_ns < taken[at][0]:
                found.append((start_ns, taken[at][0], kind, part))
            start_ns = taken[at][1]
            at += 1
        if start_ns < end_ns:
            found.append((start_ns, end_ns, kind, part))
    return found


def time_of(
    cuts: Iterable[Cut], start_ns: int, end_ns: int, kept_until: Sequence[int]
) -> dict[str, int]:
    """Nanoseconds from one moment to a later one, by kind.

    `kept_until` as of `AttemptView.time_between`.
    """
    time: dict[str, int] = {}
    for begin_ns, finish_ns, kind, part in cuts:
        if finish_ns <= start_ns:
            continue
        if begin_ns >= end_ns:
            break
        low_ns, high_ns = max(begin_ns, start_ns), min(finish_ns, end_ns)
        if part == NO_STEPS:
            time[kind] = time.get(kind, 0) + high_ns - low_ns
            continue
        kept_ns = max(0, min(high_ns, kept_until[part]) - low_ns)
        time[STEP] = time.get(STEP, 0) + kept_ns
        time[LOST] = time.get(LOST, 0) + high_ns - low_ns - kept_ns
    return time
