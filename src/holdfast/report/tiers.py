"""Checkpoint tiers: what each costs, how old its newest copy is, and what would be lost now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.ledger.step_times import StepTimes
from holdfast.journal.rank_seen import RankSeen
from holdfast.report.findings import Findings


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier, and what its newest set leaves at risk.

    `blocked_ns`, `took_ns`: what a save costs training, and lasts beside it; None: nobody said.
    `at_risk_steps` of `at_risk_ns` would be lost if this were all that is left. `last_ns`: when the
    newest set was complete; None: not known.
    """

    name: str
    survives: str
    saves: int
    blocked_ns: int | None
    took_ns: int | None
    nbytes: int
    last_step: int | None
    last_ns: int | None
    age_ns: int | None
    at_risk_steps: int
    at_risk_ns: int


def tiers(
    findings: Findings, steps: StepTimes, ranks: Sequence[RankSeen], now_ns: int
) -> tuple[Tier, ...]:
    """Memory, where there is that tier, and disk; nothing where no store is known."""
    if findings.store is None:
        return ()
    saves, sets = findings.saves, findings.checkpoints
    newest = max(sets, key=lambda one: (one.attempt, one.step), default=None)
    saved = max([0 if newest is None else newest.step, *(rank.saved for rank in ranks)])
    found = []
    if saves is not None and saves.memory:
        copied = max(min((rank.copied for rank in ranks), default=0), saved)
        found.append(
            Tier(
                "memory",
                "a process",
                saves.memory,
                saves.memory_blocked_ns // saves.memory,
                None,
                0 if newest is None else newest.nbytes,
                copied or None,
                None,
                None,
                *_at_risk(steps, copied),
            )
        )
    blocked_ns = max((rank.blocked_ns for rank in ranks), default=0)
    took_ns = max((rank.took_ns for rank in ranks), default=0)
    if saves is not None and saves.drains:
        blocked_ns, took_ns = 0, saves.drained_ns // saves.drains
    last_ns = None if newest is None else newest.at_ns
    found.append(
        Tier(
            "disk",
            "the host",
            0 if saves is None else saves.disk,
            blocked_ns or (0 if took_ns else None),
            took_ns or None,
            0 if newest is None else newest.nbytes,
            saved or None,
            last_ns,
            None if last_ns is None else max(0, now_ns - last_ns),
            *_at_risk(steps, saved),
        )
    )
    return tuple(found)


def _at_risk(steps: StepTimes, saved: int) -> tuple[int, int]:
    count = max(0, steps.last_step - saved)
    return count, count * steps.usual_ns
