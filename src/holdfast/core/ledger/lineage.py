"""Which parts of which attempts lie on the kept lineage, and when the others left it for good.

Each part of an attempt continues an earlier part from its resume step. The chain of parents of the
last part is what is kept. Colour is not stored: of each part, the steps up to some step are kept,
and stretches of the others left with some later part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.core.ledger.facts import RestoreFact
from holdfast.core.ledger.steps import StepColumns

ALL_STEPS = 2**62  # above every step number


class Part(NamedTuple):
    """Rows low..high of an attempt's completed steps, from one starting point on.

    `first_step` is the number of its first step, the one under way included; None: it has none.
    """

    attempt: int
    opens_attempt: bool
    restore: RestoreFact | None
    first_step: int | None
    steps: StepColumns
    low: int
    high: int

    def completed(self, step: int) -> bool:
        """Whether this part finished that step."""
        return self.low < self.high and self.steps.has(self.low, self.high, step)


class Stretch(NamedTuple):
    """Steps of `part` above `above`, up to `until`: they left with part `left_with`, for good."""

    part: int
    above: int
    until: int
    left_with: int


def parts_of(
    attempt: int,
    steps: StepColumns,
    under_way: tuple[int, int] | None,
    restores: Sequence[RestoreFact],
) -> tuple[Part, ...]:
    """Cut an attempt where a restore follows steps, or where the step number falls back.

    `under_way` is number and start of the step that has not ended; `restores` are by start.
    """
    parts: list[Part] = []
    bounds = [0, *(steps.start.left(restore.start_ns) for restore in restores), len(steps)]
    for i, restore in enumerate([None, *restores]):  # the steps after this restore, up to the next
        low, high = bounds[i], bounds[i + 1]
        number = None
        if under_way is not None and (restore is None or restore.start_ns <= under_way[1]):
            ends_here = i == len(restores) or under_way[1] < restores[i].start_ns
            number = under_way[0] if ends_here else None
        if low == high and number is None and (restore is None or i < len(restores)):
            continue  # no step followed, and the next restore takes its place
        begins = [low, *(row for row in steps.breaks if low < row < high)]
        for begin, end in pairwise([*begins, high]):
            first = steps.first[begin] if begin < end else number
            source = restore if begin == low else None
            parts.append(Part(attempt, not parts, source, first, steps, begin, end))
        if number is not None and low < high and number <= steps.last[high - 1]:
            parts.append(Part(attempt, False, None, number, steps, high, high))
    return tuple(parts)


def trace(parts: Sequence[Part]) -> tuple[dict[int, int], list[Stretch]]:
    """From parts in time's order: the last kept step of each kept part, and what left when.

    It walks the chains from the last part's backwards. A part's steps up to `safe` are on some
    later chain; what a chain adds to that was on it, and on none after. Where a chain adds nothing,
    it adds nothing further down either, for resume steps only narrow it.
    """
    parents = _parents(parts)
    safe = [0] * len(parts)
    kept: dict[int, int] = {}
    stretches: list[Stretch] = []
    for k in range(len(parts) - 1, -1, -1):
        link: int | None = k
        until = ALL_STEPS
        while link is not None and until > safe[link]:
            if k == len(parts) - 1:
                kept[link] = until
            else:
                stretches.append(Stretch(link, safe[link], until, k + 1))
            safe[link] = until
            link, resume = parents[link]
            until = min(until, resume)
    return kept, stretches


def _parents(parts: Sequence[Part]) -> list[tuple[int | None, int]]:
    """For each part, the one that it continues, and its resume step."""
    with_steps: list[int] = []  # latest first: the only ones that can have completed a step
    of_attempt: dict[int, list[int]] = {}
    parents: list[tuple[int | None, int]] = []
    for k, part in enumerate(parts):
        parents.append(_parent(parts, part, with_steps, of_attempt))
        of_attempt.setdefault(part.attempt, []).append(k)
        if part.low < part.high:
            with_steps.append(k)
    return parents


def _parent(
    parts: Sequence[Part],
    part: Part,
    with_steps: Sequence[int],
    of_attempt: dict[int, list[int]],
) -> tuple[int | None, int]:
    restore = part.restore
    resume = restore.step if restore is not None else (part.first_step or 1) - 1
    if resume == 0:
        return None, 0
    if restore is not None and restore.source is not None:
        of_source = of_attempt.get(restore.source, [])
        if of_source:
            wrote_it = (j for j in reversed(of_source) if parts[j].completed(resume))
            return next(wrote_it, of_source[-1]), resume
    return next((j for j in reversed(with_steps) if parts[j].completed(resume)), None), resume
