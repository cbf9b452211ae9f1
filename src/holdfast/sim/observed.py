"""What a recorded run shows of the parameters of a plan: how often, how long, how many.

The ledger's account says where the time went; this adds which attempts failed of what, and each
single duration. Nothing is estimated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.core.exits import LOSS_CAUSES
from holdfast.core.ledger.account import Disruption
from holdfast.core.ledger.facts import AttemptFact, FaultFact, NoticeFact, WaitFact
from holdfast.core.ledger.kinds import (
    BACKOFF,
    COMPILE,
    CUSTOM_PREFIX,
    DATA,
    HANG,
    LOST,
    OTHER,
    RESTORE,
    STARTUP,
    STEP,
)
from holdfast.journal.gathered import Gathered

NS_PER_S = 1_000_000_000
# Ends that somebody wanted: no failures, whatever they cost.
PLANNED = ("stopped", "rolled_back")
ANNOUNCED = "preempted"
# Nobody was left to tell what a supervisor died of: its host, as far as anybody could see.
OF_HOSTS = (*LOSS_CAUSES, "supervisor_lost", ANNOUNCED)


@dataclass(frozen=True, slots=True)
class Observed:
    """Times in seconds. `hosts`: 0 where nobody said.

    `there_s`: how long the run had its resources, in which `processes`, `hangs` and `hosts` failed;
    `announced` of the hosts' were. `planned`: ends that somebody asked for. `restarts_s`: from a
    failure to the first new step, without waits for hosts, hangs that nobody had noticed, and
    back-offs by policy; `restarts_from_memory_s` those that restored from there, and
    `cold_restarts_s` those without standbys where others had them. `standbys_s`: how old attempts
    were when their standbys were ready. `first_start_s`: what the first attempt took from its
    launch to its first step; 0: it came to none. `start_s`: what
    an attempt took on average from its launch to its first step. `waits_s`: for hosts, of the
    losses after which one was waited for.
    `saves_s`: what each blocked training; `to_memory`: they were copies to memory. `writes`,
    `writing_s`: sets taken to disk from there, and what that took in sum. `step_s`: the median; 0:
    no step. `idle`: the share of the time between saves that is no step: data, evaluation.
    """

    hosts: int
    chips: int
    elapsed_s: float
    there_s: float
    processes: int
    hangs: int
    lost_hosts: int
    announced: int
    planned: int
    hangs_s: tuple[float, ...]
    restarts_s: tuple[float, ...]
    restarts_from_memory_s: tuple[float, ...]
    cold_restarts_s: tuple[float, ...]
    standbys_s: tuple[float, ...]
    first_start_s: float
    start_s: float
    waits_s: tuple[float, ...]
    saves_s: tuple[float, ...]
    to_memory: bool
    writes: int
    writing_s: float
    notices: int
    leads_s: tuple[float, ...]
    steps: int
    step_s: float
    idle: float

    @property
    def failures(self) -> int:
        """All of them."""
        return self.processes + self.hangs + self.lost_hosts


def observe(run: Gathered) -> Observed:
    """Read it off."""
    account, kinds = run.account, run.account.kinds
    causes = [one.cause for one in account.disruptions if one.cause not in PLANNED]
    lost_hosts = sum(cause in OF_HOSTS for cause in causes)
    hangs = causes.count(HANG)
    notices = [fact for fact in run.facts if isinstance(fact, NoticeFact)]
    step_s, steps = _step_s(run)
    training = sum(kinds.get(kind, 0) for kind in (STEP, LOST))
    idle = sum(ns for kind, ns in kinds.items() if kind in (DATA, OTHER) or _is_custom(kind))
    saved = run.saved
    restarts, pauses = list(_restarts(run)), _pauses(run)
    return Observed(
        hosts=run.hosts,
        chips=account.chips,
        elapsed_s=account.elapsed_ns / NS_PER_S,
        there_s=account.in_seconds(account.available),
        processes=len(causes) - lost_hosts - hangs,
        hangs=hangs,
        lost_hosts=lost_hosts,
        announced=causes.count(ANNOUNCED),
        planned=len(account.disruptions) - len(causes),
        hangs_s=tuple(
            (fault.detected_ns - fault.at_ns) / NS_PER_S
            for fault in run.facts
            if isinstance(fault, FaultFact) and fault.cause == HANG
        ),
        restarts_s=_those(restarts, "disk"),
        restarts_from_memory_s=_those(restarts, "memory"),
        cold_restarts_s=_those(restarts, "cold"),
        standbys_s=tuple(
            one.ready_ns / NS_PER_S for one in run.standbys.values() if one.ready_ns is not None
        ),
        first_start_s=_first_start_s(run),
        start_s=_seconds(run, STARTUP, RESTORE, COMPILE) / max(1, len(run.steps)),
        waits_s=tuple(
            waited_ns / NS_PER_S
            for one in account.disruptions
            if one.cause in OF_HOSTS and (waited_ns := pauses.get(one.attempt, (0, 0))[1])
        ),
        saves_s=tuple(took_s for attempt in run.saves for took_s in _saves_s(run, attempt)),
        to_memory=saved is not None and saved.memory > 0,
        writes=0 if saved is None else saved.flushes,
        writing_s=0.0 if saved is None else saved.flushed_ns / NS_PER_S,
        notices=len(notices),
        leads_s=tuple(
            (one.deadline_ns - one.at_ns) / NS_PER_S
            for one in notices
            if one.deadline_ns is not None and one.deadline_ns > one.at_ns
        ),
        steps=steps,
        step_s=step_s,
        idle=idle / (idle + training) if training else 0.0,
    )


def _is_custom(kind: str) -> bool:
    return kind.startswith(CUSTOM_PREFIX)


def _seconds(run: Gathered, *kinds: str) -> float:
    return sum(run.account.seconds(kind) for kind in kinds)


def _pauses(run: Gathered) -> dict[int, tuple[int, int]]:
    """After each attempt, until the next one: for how long it was backed off, and waited else."""
    attempts = {fact.attempt: fact for fact in run.facts if isinstance(fact, AttemptFact)}
    waits = [fact for fact in run.facts if isinstance(fact, WaitFact) and fact.kind == BACKOFF]
    found = {}
    for number, fact in attempts.items():
        after = attempts.get(number + 1)
        if fact.end_ns is None or after is None:
            continue
        own = (w for w in waits if fact.end_ns <= w.start_ns < after.start_ns)
        ends = ((w.start_ns, after.start_ns if w.end_ns is None else w.end_ns) for w in own)
        back_off_ns = sum(min(end_ns, after.start_ns) - start_ns for start_ns, end_ns in ends)
        found[number] = back_off_ns, max(0, after.start_ns - fact.end_ns - back_off_ns)
    return found


def _those(restarts: Iterable[tuple[float, str]], what: str) -> tuple[float, ...]:
    return tuple(took_s for took_s, kind in restarts if kind == what)


def _first_start_s(run: Gathered) -> float:
    first = min(run.steps, default=None)
    facts = [f for f in run.facts if isinstance(f, AttemptFact) and f.attempt == first]
    if first is None or not facts:
        return 0.0
    return max(0, int(run.steps[first][2].min()) - facts[-1].start_ns) / NS_PER_S


def _restarts(run: Gathered) -> Iterator[tuple[float, str]]:
    """How long each restart after a failure took that came to a step, and what kind it was.

    It is cold if some rank had no standby, where others had them; else from memory, or from disk.
    One that was struck itself is left out, and so are waits for hosts, and the policy's back-off:
    after an attempt without a new step it waits on purpose.
    """
    pauses = _pauses(run)
    had_standbys = any(one.ready_ns is not None for one in run.standbys.values())
    highest = {attempt: int(last.max()) for attempt, (_, last, *_) in run.steps.items()}
    for one in run.account.disruptions:
        after = one.attempt + 1
        if one.cause in PLANNED or one.resumed_ns is None or after not in highest:
            continue
        stretch_ns = sum(one.waterfall_ns.values())  # from the last that was done, to a step's end
        first_step_ns = stretch_ns - (one.downtime_ns or 0)
        broke_ns, unnoticed_ns = _broke(run, one, one.resumed_ns - stretch_ns)
        back_off_ns, waited_ns = pauses[one.attempt]
        took_ns = one.resumed_ns - first_step_ns - broke_ns - unnoticed_ns
        if one.cause in OF_HOSTS:
            took_ns -= waited_ns  # for another one: see `waits_s`
        before = max((step for n, step in highest.items() if n < one.attempt), default=0)
        if highest.get(one.attempt, 0) <= before:
            took_ns -= back_off_ns
        note = run.standbys.get(one.attempt)
        is_cold = had_standbys and note is not None and note.is_cold
        kind = "cold" if is_cold else "memory" if after in run.from_memory else "disk"
        yield max(0, took_ns) / NS_PER_S, kind


def _broke(run: Gathered, of: Disruption, since_ns: int) -> tuple[int, int]:
    """When an attempt broke, and for how long it hung then; without a fault, when it was over.

    Faults after which it still did something tell of something else.
    """
    faults = [
        fact
        for fact in run.facts
        if isinstance(fact, FaultFact) and fact.attempt == of.attempt and fact.at_ns >= since_ns
    ]
    fault = min(faults, key=lambda one: one.at_ns, default=None)
    if fault is None:
        return of.at_ns, 0
    return fault.at_ns, fault.detected_ns - fault.at_ns if fault.cause == HANG else 0


def _step_s(run: Gathered) -> tuple[float, int]:
    """The median time of a step, and how many there were. A row of equal ones counts as so many."""
    if not run.steps:
        return 0.0, 0
    first, last, start, end = np.concatenate([*run.steps.values()], axis=1)
    counts = last - first + 1
    each_ns = (end - start) / counts
    order = np.argsort(each_ns)
    steps = int(counts.sum())
    middle = int(np.searchsorted(np.cumsum(counts[order]), steps / 2))
    return float(each_ns[order][middle]) / NS_PER_S, steps


def _saves_s(run: Gathered, attempt: int) -> Iterator[float]:
    """What each save of an attempt blocked; those of several ranks after one step are one save."""
    if attempt not in run.steps:
        return
    start, end = run.saves[attempt]
    ends = np.sort(run.steps[attempt][3])
    after = np.searchsorted(ends, start, "right")
    order = np.argsort(after, kind="stable")
    begins = np.flatnonzero(np.diff(after[order], prepend=-1))
    blocked_ns = np.maximum.reduceat(end[order], begins) - np.minimum.reduceat(start[order], begins)
    yield from (blocked_ns / NS_PER_S).tolist()
