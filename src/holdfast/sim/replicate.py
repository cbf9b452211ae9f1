"""Many runs of one scenario, each with draws of its own: what they came to, and how far apart."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from time import perf_counter
from typing import Any

from holdfast.core.hang.deadline import OFF, HangPolicy
from holdfast.core.notices.plan import NoticePolicy, OnNotice
from holdfast.core.run.machine import RunPolicy
from holdfast.core.run.restart import DEFAULT, RestartPolicy
from holdfast.core.save.policy import IN_MEMORY, EverySeconds, Never, Optimal, SavePolicy
from holdfast.sim.clock import to_ns
from holdfast.sim.drawn import Drawn
from holdfast.sim.faults import FaultStream
from holdfast.sim.laws import Law
from holdfast.sim.model import Scenario
from holdfast.sim.story import Story
from holdfast.sim.traces import Replayed, Trace
from holdfast.sim.world import World

WORTH_A_PROCESS_S = 0.5  # of work, for each
LOW, HIGH = 0.05, 0.95  # what lies between is nine runs of ten
STEP = "step"
LONGEST_START = 1e-6  # a restart that takes longer, one in so many, is taken to hang


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One simulated run.

    `kinds`: shares of its chip time. `stops`: how often its supervisor gave up and left it to a
    person, who started it again at once; `why_stopped`: the first time.
    """

    goodput: float
    scheduling_goodput: float
    runtime_goodput: float
    disruptions: int
    lost_steps: int
    events: int
    kinds: dict[str, float]
    stops: int
    why_stopped: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean, and between which two values nine of ten lie."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Quantiles between two values are on the line from one to the other."""
        ordered = sorted(values)
        return cls(sum(ordered) / len(ordered), _quantile(ordered, LOW), _quantile(ordered, HIGH))

    def to_json(self) -> dict[str, float]:
        """Plain."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Found:
    """What several runs came to, the first of them with `seed`, under the policy of that name."""

    name: str
    scenario: Scenario
    seed: int
    outcomes: tuple[SimulatedRun, ...]
    wall_s: float

    @property
    def goodput(self) -> Spread:
        """Kept steps over all time."""
        return Spread.of([one.goodput for one in self.outcomes])

    @property
    def scheduling_goodput(self) -> Spread:
        """Time in which all hosts were there, over all time."""
        return Spread.of([one.scheduling_goodput for one in self.outcomes])

    @property
    def runtime_goodput(self) -> Spread:
        """Kept steps over the time in which all hosts were there."""
        return Spread.of([one.runtime_goodput for one in self.outcomes])

    @property
    def disruptions(self) -> Spread:
        """How often an attempt ended."""
        return Spread.of([one.disruptions for one in self.outcomes])

    @property
    def stops(self) -> Spread:
        """How often a supervisor gave up."""
        return Spread.of([one.stops for one in self.outcomes])

    @property
    def why_stopped(self) -> str:
        """The words of the first that did."""
        return next((one.why_stopped for one in self.outcomes if one.stops), "")

    @property
    def badput(self) -> dict[str, float]:
        """Mean shares of the time that was not kept, by kind."""
        kinds = sorted({kind for one in self.outcomes for kind in one.kinds} - {STEP})
        count = len(self.outcomes)
        return {
            kind: sum(one.kinds.get(kind, 0.0) for one in self.outcomes) / count for kind in kinds
        }

    def to_json(self) -> dict[str, Any]:
        """The answer of `holdfast simulate --json`; times in seconds."""
        return {
            "policy": self.name,
            "goodput": self.goodput.to_json(),
            "scheduling_goodput": self.scheduling_goodput.to_json(),
            "runtime_goodput": self.runtime_goodput.to_json(),
            "badput": self.badput,
            "disruptions": self.disruptions.to_json(),
            "lost_steps": Spread.of([one.lost_steps for one in self.outcomes]).to_json(),
            "gave_up": self.stops.to_json(),
            "replications": len(self.outcomes),
            "seed": self.seed,
            "duration_s": self.scenario.duration_s,
            "chips": self.scenario.fleet.chips,
            "goodput_of_each": [one.goodput for one in self.outcomes],
            "events": sum(one.events for one in self.outcomes),
            "wall_s": self.wall_s,
        }


class OfTheRun(Drawn):
    """Faults of a run that is as good as new after each of them, as if it were one host: 0."""

    def __init__(self, alone: Scenario, seed: int, hosts: int) -> None:
        super().__init__(alone, seed)
        self._of_the_run = hosts

    @property
    def hosts_at_start(self) -> int:
        """All of the run's."""
        return self._of_the_run


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of a scenario, whose faults are drawn, or replayed from `trace`.

    `between`: the law of the time between the failures of the whole run, which is as good as new
    after each of them; None: each host has its own. `drawn`: the same with parameters that may be
    the true ones; the run of each seed is of one of them.
    """

    name: str
    scenario: Scenario
    trace: Trace | None = None
    between: Law | None = None
    drawn: tuple[Runs, ...] = ()

    def faults(self, seed: int) -> FaultStream:
        """What befalls the run of that seed."""
        scenario = self.scenario
        if self.trace is not None:
            return Replayed(self.trace, scenario.fleet, seed, scenario.failures.notices)
        if self.between is None:
            return Drawn(scenario, seed)
        failures = replace(scenario.failures, between=self.between)
        alone = replace(scenario, fleet=replace(scenario.fleet, hosts=1), failures=failures)
        return OfTheRun(alone, seed, scenario.fleet.hosts)

    def world(self, seed: int) -> World:
        """The run of that seed, before it begins."""
        if self.drawn:
            return self.drawn[seed % len(self.drawn)].world(seed)
        scenario = self.scenario
        policy = policy_of(scenario, hangs=None if self.trace is None else self.trace.has_hangs)
        return World(scenario, self.faults(seed), policy, seed=seed)

    def story(self, seed: int) -> Story:
        """The run of that seed, whole."""
        return self.world(seed).run()

    def outcome(self, seed: int) -> SimulatedRun:
        """What it came to, by the ordinary ledger's account of it."""
        with collecting_later():
            story, events, stops = self._played(seed)
        with collecting_later():  # and without what played it
            end_ns = to_ns(self.scenario.duration_s)
            account = story.account(end_ns, with_disruptions=False)
        return SimulatedRun(
            goodput=account.goodput or 0.0,
            scheduling_goodput=account.scheduling_goodput or 0.0,
            runtime_goodput=account.runtime_goodput or 0.0,
            disruptions=story.disruptions,
            lost_steps=account.lost_steps,
            events=events,
            kinds={kind: ns / account.elapsed for kind, ns in account.kinds.items() if ns},
            stops=len(stops),
            why_stopped=stops[0] if stops else "",
        )

    def _played(self, seed: int) -> tuple[Story, int, list[str]]:
        """The run of that seed, how many events its core was fed, and why it was given up."""
        world = self.world(seed)
        return world.run(), world.events, world.stops

    def replicate(
        self,
        replications: int,
        seed: int,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Found:
        """So many runs, on all cores where that pays; on any machine the same for one seed.

        `progress`: how many are done, of how many.
        """
        seeds = [seed + number for number in range(replications)]
        began_s = perf_counter()
        progress(0, replications)
        outcomes = [self.outcome(seeds[0])]
        progress(1, replications)
        left_s = (perf_counter() - began_s) * (replications - 1)
        workers = min(os.cpu_count() or 1, replications - 1, int(left_s / WORTH_A_PROCESS_S))
        for found in self._each(seeds[1:], workers):
            outcomes.append(found)
            progress(len(outcomes), replications)
        wall_s = perf_counter() - began_s
        return Found(self.name, self.scenario, seed, tuple(outcomes), wall_s)

    def _each(self, seeds: Sequence[int], workers: int) -> Iterator[SimulatedRun]:
        if workers < 2:
            yield from map(self.outcome, seeds)
            return
        with ProcessPoolExecutor(workers, get_context("forkserver")) as pool:
            yield from pool.map(self.outcome, seeds)


@contextmanager
def collecting_later() -> Iterator[None]:
    """One search for garbage afterwards, and none meanwhile.

    A run makes a few million objects that stay, and next to no cycles; looking through them again
    and again took a fifth of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.collect(0)  # what is older was there before


def policy_of(
    scenario: Scenario, restart: RestartPolicy = DEFAULT, *, hangs: bool | None = None
) -> RunPolicy:
    """What `holdfast run` would be told: intervals where they are given, else its own choice.

    `hangs`: whether something may hang; None: as the scenario's failures say. Where nothing does,
    nobody need look for it. A run trains on until an announced host is taken. What standbys save is
    in the time that a restart takes.

    There an interval counts from the moment at which the last set was durable, in a scenario from
    the moment at which training went on.
    """
    saves = scenario.saves
    save: SavePolicy = Optimal()
    if saves.interval_s is not None:
        save = EverySeconds(max(saves.interval_s - saves.write_s, scenario.step_s))
    may_hang = scenario.failures.hang_share > 0 if hangs is None else hangs
    in_memory: SavePolicy = IN_MEMORY if saves.memory else Never()
    if saves.memory_interval_s is not None:
        in_memory = EverySeconds(saves.memory_interval_s)
    return RunPolicy(
        ranks=1,
        save=save,
        save_in_memory=in_memory,
        restart=restart,
        hang=_hang_policy(scenario) if may_hang else OFF,
        notice=NoticePolicy(OnNotice.STAY),
        has_standbys=False,
    )


def _hang_policy(scenario: Scenario) -> HangPolicy:
    """Whatever it does, a run that stands still is noticed so late as the scenario says.

    A first step has the time of a restart as well. No limit is below what a step or a save takes:
    it would end what is well.
    """
    fleet, saves, detect_s = scenario.fleet, scenario.saves, scenario.failures.hang_detect_s
    step_s = scenario.step_s * (fleet.slices / fleet.least_slices if fleet.elastic else 1)
    recovery = scenario.recovery
    start_s = recovery.restart.age_at_s(LONGEST_START) * recovery.start_factor(is_cold=True)
    limit_s = max(detect_s, 2 * step_s)
    start_ns = to_ns(start_s + step_s + limit_s)
    return HangPolicy(
        step_ns=to_ns(limit_s),
        untried_ns=start_ns,
        start_floor_ns=start_ns,
        wait_ns=to_ns(max(limit_s, 2 * saves.stall_s, 2 * saves.copy_s)),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
