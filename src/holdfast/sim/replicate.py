"""Many runs of one scenario, each with luck of its own: what they came to, and how far apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from time import perf_counter

from holdfast.core.restart import DEFAULT, RestartPolicy
from holdfast.core.run import RunPolicy
from holdfast.core.saves import IN_MEMORY, EverySeconds, Never, Optimal, SavePolicy
from holdfast.sim.clock import to_ns
from holdfast.sim.drawn import Drawn
from holdfast.sim.faults import FaultStream
from holdfast.sim.model import Scenario
from holdfast.sim.story import Story
from holdfast.sim.world import World

WORTH_A_PROCESS_S = 0.5  # of work, for each
LOW, HIGH = 0.05, 0.95  # what lies between is nine runs of ten


@dataclass(frozen=True, slots=True)
class Outcome:
    """One simulated run.

    `kinds`: shares of its chip time. `stops`: how often its supervisor gave up and left it to a
    person, who started it again at once.
    """

    goodput: float
    scheduling_goodput: float
    runtime_goodput: float
    disruptions: int
    lost_steps: int
    events: int
    kinds: dict[str, float]
    stops: int


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


def policy_of(scenario: Scenario, restart: RestartPolicy = DEFAULT) -> RunPolicy:
    """What `holdfast run` would be told: intervals where they are given, else its own choice."""
    saves = scenario.saves
    save: SavePolicy = Optimal()
    if saves.interval_s is not None:
        save = EverySeconds(saves.interval_s)
    in_memory: SavePolicy = IN_MEMORY if saves.memory else Never()
    if saves.memory_interval_s is not None:
        in_memory = EverySeconds(saves.memory_interval_s)
    return RunPolicy(ranks=1, save=save, save_in_memory=in_memory, restart=restart)


def simulate(
    scenario: Scenario, seed: int, faults: FaultStream | None = None
) -> tuple[Story, World]:
    """One run; without `faults` they are drawn."""
    faults = Drawn(scenario, seed) if faults is None else faults
    world = World(scenario, faults, policy_of(scenario), seed=seed)
    return world.run(), world


def outcome(scenario: Scenario, seed: int, faults: FaultStream | None = None) -> Outcome:
    """What one run came to, by the ordinary ledger's account of it."""
    story, world = simulate(scenario, seed, faults)
    account = story.account(to_ns(scenario.duration_s))
    return Outcome(
        goodput=account.goodput or 0.0,
        scheduling_goodput=account.scheduling_goodput or 0.0,
        runtime_goodput=account.runtime_goodput or 0.0,
        disruptions=len(account.disruptions),
        lost_steps=account.lost_steps,
        events=world.events,
        kinds={kind: ns / account.elapsed for kind, ns in account.kinds.items() if ns},
        stops=len(world.stops),
    )


def replicate(
    scenario: Scenario,
    *,
    replications: int,
    seed: int,
    faults: Callable[[int], FaultStream] | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """So many runs, on all cores where that pays; the same for the same seed on any machine.

    `told` is called with how many are done. `faults` makes the stream of one run of its seed.
    """
    one = partial(_one, scenario, faults)
    seeds = [seed + number for number in range(replications)]
    began_s = perf_counter()
    outcomes = [one(seeds[0])]
    told(1)
    left_s = (perf_counter() - began_s) * (replications - 1)
    workers = min(os.cpu_count() or 1, replications - 1, int(left_s / WORTH_A_PROCESS_S))
    for found in _each(one, seeds[1:], workers):
        outcomes.append(found)
        told(len(outcomes))
    return outcomes


def _each(one: Callable[[int], Outcome], seeds: Sequence[int], workers: int) -> Iterator[Outcome]:
    if workers < 2:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(workers, get_context("forkserver")) as pool:
        yield from pool.map(one, seeds)


def _one(scenario: Scenario, faults: Callable[[int], FaultStream] | None, seed: int) -> Outcome:
    return outcome(scenario, seed, None if faults is None else faults(seed))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
