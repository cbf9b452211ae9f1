"""Checkpoint tiers: what each costs, how old its newest copy is, and what would be lost now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.ledger.step_times import StepTimes
from holdfast.journal.facts.attempts import RankSeen
from holdfast.journal.facts.lines import DISK, MEMORY
from holdfast.report.findings import Findings


class Newest(NamedTuple):
    """The newest set of a tier that is on the lineage: since when, and how far apart they came."""

    step: int
    at_ns: int
    interval_ns: int | None


@dataclass(frozen=True, slots=True)
class TierRisk:
    """A tier, and what its newest set leaves at risk.

    `blocked_ns`, `took_ns`: what a save costs training, and lasts beside it; None: nobody said.
    `every_ns`: between the last few sets. `at_risk_steps` of `at_risk_ns` would be lost if this
    were all that is left. `last_ns`: when the newest set was complete; None: not known.
    """

    name: str
    survives: str
    saves: int
    blocked_ns: int | None
    took_ns: int | None
    every_ns: int | None
    nbytes: int
    last_step: int | None
    last_ns: int | None
    at_risk_steps: int
    at_risk_ns: int


class _Cost(NamedTuple):
    saves: int
    blocked_ns: int | None
    took_ns: int | None


def tiers(
    findings: Findings,
    steps: StepTimes,
    ranks: Sequence[RankSeen],
    newest: Mapping[str, Newest],
) -> tuple[TierRisk, ...]:
    """Memory, where there is that tier, and disk; nothing where no store is known.

    `newest`: of each tier as its supervisor told; what it did not, the sets in the store tell.
    """
    if findings.store is None:
        return ()
    saves = findings.saves
    on_disk = max(findings.checkpoints, key=lambda one: (one.attempt, one.step), default=None)
    nbytes = 0 if on_disk is None else on_disk.nbytes
    disk = newest.get(DISK)
    if disk is None and on_disk is not None and on_disk.at_ns is not None:
        disk = Newest(on_disk.step, on_disk.at_ns, None)
    found = []
    if saves is not None and saves.memory:
        cost = _Cost(saves.memory, saves.memory_blocked_ns // saves.memory, None)
        memory = newest.get(MEMORY)
        if disk is not None and (
            memory is None or memory[:2] < disk[:2]
        ):  # it is as safe from a process
            interval_ns = None if memory is None else memory.interval_ns
            memory = disk._replace(interval_ns=interval_ns)
        found.append(_tier(MEMORY, "a process", cost, nbytes, memory, steps))
    blocked = max((rank.blocked_ns for rank in ranks), default=0)
    took = max((rank.took_ns for rank in ranks), default=0)
    if saves is not None and saves.flushes:
        blocked, took = 0, saves.flushed_ns // saves.flushes
    cost = _Cost(
        len(findings.checkpoints) if saves is None else saves.disk,
        blocked or (0 if took else None),
        took or None,
    )
    return (*found, _tier(DISK, "the host", cost, nbytes, disk, steps))


def _tier(
    name: str,
    survives: str,
    cost: _Cost,
    nbytes: int,
    newest: Newest | None,
    steps: StepTimes,
) -> TierRisk:
    at_risk = max(0, steps.last_step - (0 if newest is None else newest.step))
    return TierRisk(
        name,
        survives,
        *cost,
        None if newest is None else newest.interval_ns,
        nbytes,
        None if newest is None else newest.step,
        None if newest is None else newest.at_ns,
        at_risk,
        at_risk * steps.usual_ns,
    )
