"""Which part of a stretch of time belongs to what: intervals, united and taken from one another.

Pure. Intervals are pairs of whole nanoseconds, the end outside. A moment that several layers claim
belongs to the first of them, so that the parts always sum up to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

Interval = tuple[int, int]


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as intervals that are apart from one another, in order."""
    found: list[Interval] = []
    for start, end in sorted(one for one in intervals if one[0] < one[1]):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def without(intervals: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """What of `intervals` is in none of `taken`; both are in order and apart (`united`)."""
    found: list[Interval] = []
    place = 0
    for start, end in intervals:
        while place < len(taken) and taken[place][1] <= start:
            place += 1
        at = place
        while at < len(taken) and taken[at][0] < end:
            if start < taken[at][0]:
                found.append((start, taken[at][0]))
            start = taken[at][1]
            at += 1
        if start < end:
            found.append((start, end))
    return found


def divided(
    edges: Sequence[int], layers: Mapping[str, Iterable[Interval]], rest: str
) -> list[dict[str, int]]:
    """The time between each two edges, by layer; what no layer claims is `rest`.

    `edges`: in order. Of several layers at a moment the first counts. The values of each stretch
    sum up to its length exactly.
    """
    found = [dict.fromkeys((*layers, rest), 0) for _ in edges[1:]]
    taken: list[Interval] = []
    for name, intervals in layers.items():
        layer = united(intervals)
        for number, ns in _lengths(edges, without(layer, taken)):
            found[number][name] += ns
        taken = united([*taken, *layer])
    for stretch, (start, end) in zip(found, pairwise(edges), strict=True):
        stretch[rest] += end - start - sum(stretch.values())
    return found


def _lengths(edges: Sequence[int], intervals: Sequence[Interval]) -> Iterable[tuple[int, int]]:
    """How much of each stretch is in the intervals, as (number of the stretch, nanoseconds)."""
    number = 0
    for start, end in intervals:
        while number + 1 < len(edges) and edges[number + 1] <= start:
            number += 1
        at = number
        while at + 1 < len(edges) and edges[at] < end:
            inside = min(end, edges[at + 1]) - max(start, edges[at])
            if inside > 0:
                yield at, inside
            at += 1


def self_times(events: Sequence[Interval]) -> list[int]:
    """Of events that nest, as on one thread: how long each lasted without those inside of it."""
    order = sorted(range(len(events)), key=lambda one: (events[one][0], -events[one][1]))
    own = [end - start for start, end in events]
    open_: list[int] = []
    for one in order:
        start, end = events[one]
        while open_ and events[open_[-1]][1] <= start:
            open_.pop()
        if open_:
            outer = open_[-1]
            own[outer] -= min(end, events[outer][1]) - start
        open_.append(one)
    return [max(0, ns) for ns in own]
