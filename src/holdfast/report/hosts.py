"""Per-rank rows: who is slowest, by how much, and who has not been heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from holdfast.core.visible import clean
from holdfast.journal.facts.attempts import RankSeen

ROWS = 256  # ranks that are shown: the stragglers and the silent first
STRAGGLES = 0.05  # of a step: so much later than most, and the others wait for it
ENOUGH = 8  # steps to compare


@dataclass(frozen=True, slots=True)
class HostRow:
    """A rank: what it has done, how far ahead of the slowest it is, and when it last moved."""

    host: str
    rank: int
    phase: str
    step: int
    behind: int  # steps behind the first
    ahead_ns: int  # it completes its steps so long before the slowest, on average
    alive_ago_ns: int
    step_ago_ns: int | None
    errors: int
    is_straggler: bool


def host_rows(ranks: Sequence[RankSeen], now_ns: int, usual_ns: int) -> tuple[HostRow, ...]:
    """By what matters: stragglers, then the others by number."""
    if not ranks:
        return ()
    done = [rank.complete or rank.step for rank in ranks]
    first = max(done)
    slowest = _straggler(ranks, usual_ns)
    rows = [
        HostRow(
            host=clean(rank.host),
            rank=rank.rank,
            phase=rank.phase.name.lower().replace("_", " "),
            step=step,
            behind=first - step,
            ahead_ns=rank.ahead_ns,
            alive_ago_ns=max(0, now_ns - rank.alive_ns),
            step_ago_ns=None if rank.step_ns is None else max(0, now_ns - rank.step_ns),
            errors=rank.errors,
            is_straggler=rank.rank == slowest,
        )
        for rank, step in zip(ranks, done, strict=True)
    ]
    rows.sort(key=lambda row: (not row.is_straggler, -row.behind, row.rank))
    return tuple(sorted(rows[:ROWS], key=lambda row: (not row.is_straggler, row.rank)))


def _straggler(ranks: Sequence[RankSeen], usual_ns: int) -> int | None:
    """The rank that the others wait for, by more than chance: its number."""
    compared = [rank for rank in ranks if rank.compared >= ENOUGH]
    if len(compared) < 2:
        return None
    slowest = min(compared, key=lambda rank: rank.ahead_ns)
    rest = median(rank.ahead_ns for rank in compared if rank is not slowest)
    return slowest.rank if rest - slowest.ahead_ns > STRAGGLES * max(usual_ns, 1) else None
