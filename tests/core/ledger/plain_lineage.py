"""The plain ledger, part two: which steps were kept, and which disruption cost the others.

Progress is a lineage. Each *part* of an attempt (it has one, or one more after each restore that
follows steps) continues some earlier part from some resume step. What lies on the chain of parents
of the last part is kept. This module spells the chain out for every part, to see when each step
left it for good: quadratic, and easy to check by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from plain_story import Execution, Life

from holdfast.core.ledger.facts import RestoreFact
from holdfast.core.ledger.kinds import is_disruption


@dataclass(slots=True)
class Part:
    """A stretch of one attempt that continues from one place. `steps`: the one under way too."""

    life: int  # position of its attempt in time
    attempt: int
    opens_attempt: bool
    restore: RestoreFact | None
    steps: list[Execution] = field(default_factory=list)

    def completed(self, step: int) -> bool:
        """Whether this part finished that step."""
        return any(e.step == step and e.end_ns is not None for e in self.steps)


@dataclass(frozen=True, slots=True)
class Fates:
    """`kept`: indices of kept executions. `blame`: of each lost one, its disruption's position."""

    kept: frozenset[int]
    blame: dict[int, int | None]


def fates_of(lives: Sequence[Life]) -> Fates:
    """What became of every completed step; `lives` by time."""
    parts = [part for position, life in enumerate(lives) for part in _parts_of(position, life)]
    chains = [_chain(parts, k) for k in range(len(parts))]
    kept: list[int] = []
    blame: dict[int, int | None] = {}
    for p, part in enumerate(parts):
        for e in part.steps:
            if e.end_ns is None:
                continue
            on_chain = [k for k, chain in enumerate(chains) if e.step <= chain.get(p, 0)]
            if on_chain[-1] == len(parts) - 1:
                kept.append(e.index)
            else:
                blame[e.index] = _disruption_before(lives, parts[on_chain[-1] + 1])
    return Fates(frozenset(kept), blame)


def _parts_of(position: int, life: Life) -> list[Part]:
    """Cut an attempt where a restore follows steps, or where the step number falls back."""
    under_way = [life.under_way] if life.under_way is not None else []
    happened: list[tuple[int, int, RestoreFact | Execution]] = [
        (restore.start_ns, 0, restore) for restore in life.restores
    ]
    happened += [(e.row_ns, 1, e) for e in life.completed + under_way]
    happened.sort(key=lambda item: item[:2])  # a restore goes before a step of the same instant
    parts: list[Part] = []
    for _, _, event in happened:
        part = parts[-1] if parts else None
        if isinstance(event, RestoreFact):
            if part is None or part.steps:
                parts.append(Part(position, life.attempt, not parts, event))
            else:
                part.restore = event  # the one before it failed, or was thought better of
        else:
            if part is None or (part.steps and event.step <= part.steps[-1].step):
                part = Part(position, life.attempt, not parts, None)
                parts.append(part)
            part.steps.append(event)
    return parts


def _parent(parts: Sequence[Part], k: int) -> tuple[int | None, int]:
    """The part that part `k` continues, and the last step that it took over from it."""
    part, earlier = parts[k], range(k - 1, -1, -1)
    if part.restore is not None:
        resume, source = part.restore.step, part.restore.source
        if source is not None and resume > 0:
            of_source = [j for j in earlier if parts[j].attempt == source]
            wrote_it = [j for j in of_source if parts[j].completed(resume)]
            if of_source:
                return (wrote_it or of_source)[0], resume
    else:
        resume = part.steps[0].step - 1
    if resume == 0:
        return None, 0
    return next((j for j in earlier if parts[j].completed(resume)), None), resume


def _chain(parts: Sequence[Part], k: int) -> dict[int, float]:
    """The parts on the chain of part `k`, each with the last step that counts of it."""
    chain: dict[int, float] = {}
    link, limit = k, inf
    while True:
        chain[link] = limit
        parent, resume = _parent(parts, link)
        if parent is None:
            return chain
        link, limit = parent, min(limit, resume)


def _disruption_before(lives: Sequence[Life], part: Part) -> int | None:
    """The disruption right before the attempt that this part opens, by its attempt's position."""
    if not part.opens_attempt or part.life == 0:
        return None
    before = lives[part.life - 1]
    return part.life - 1 if is_disruption(before.end_ns, before.cause) else None
