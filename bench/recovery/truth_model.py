"""What a fitted simulator says of faults at given times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from holdfast.core.ledger.incremental import Ledger
from holdfast.journal.attempts import attempts
from holdfast.journal.gathered import gathered_run
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.sim.faults import Fault, FaultCause
from holdfast.sim.fitted import Fit, fit
from holdfast.sim.model import DAY_S, Scenario
from holdfast.sim.observed import observe
from holdfast.sim.plan_input import scenario_of
from holdfast.sim.replicate import Spread, policy_of
from holdfast.sim.world import World

NS_PER_S = 1_000_000_000
RUNS = 20


@dataclass(frozen=True)
class Course:
    """When the run was struck, and when it will be; what is asked of it is from one to the other.

    Nanoseconds since it trained. `due`: a kill waits while the run is down.
    """

    struck: Sequence[int]
    due: Sequence[int]
    from_ns: int
    to_ns: int


@dataclass(frozen=True)
class Parameters:
    """Those of a run so far, and its restarts, in their order.

    `in_turn`: restarts last as long as these, one after another, instead of by the fitted law.
    """

    fit: Fit
    restarts_s: tuple[float, ...] = ()
    in_turn: tuple[float, ...] = ()

    def scenario(self, course: Course, number: int | None = None) -> Scenario:
        """The most likely ones, or a draw."""
        # The kills are told: how often it fails counts for nothing.
        given = {"mtbf": DAY_S, "host-share": 0.0, "days": course.to_ns / NS_PER_S}
        known = self.fit.values(given) if number is None else self.fit.drawn(given, number)
        scenario = scenario_of(known)
        if self.in_turn:
            recovery = replace(scenario.recovery, restart=InTurn(self.in_turn), cold_s=None)
            scenario = replace(scenario, recovery=recovery)
        return scenario

    def to_json(self) -> dict[str, Any]:
        return {
            "fitted": [asdict(one) for one in self.fit.used({})],
            "assumed": list(self.fit.assumed({})),
        }


@dataclass(frozen=True)
class Prediction:
    """Goodput: its mean, and between which two nine runs of ten with drawn parameters end."""

    mean: float
    low: float
    high: float


class InTurn:
    """These times, one after another; a run's first start takes as long as the first of them."""

    def __init__(self, times_s: Sequence[float]) -> None:
        self.mean_s = statistics.fmean(times_s)
        self._left = [times_s[0], *times_s]

    def sample_s(self, _: Random) -> float:
        return self._left.pop(0) if self._left else self.mean_s

    def survival(self, age_s: float) -> float:
        raise NotImplementedError  # nobody asks it of restarts

    def age_at_s(self, survival: float) -> float:
        raise NotImplementedError


class Kills:
    """Processes that are killed when it is said. Each waits until the run is back from the last."""

    tells_arrivals = False
    hosts_at_start = 1

    def __init__(self, at_ns: Sequence[int], back_ns: Callable[[int], int]) -> None:
        self._faults = [Fault(at, FaultCause.PROCESS, (0,)) for at in apart(at_ns, back_ns)]

    def next_ns(self) -> int | None:
        return self._faults[0].at_ns if self._faults else None

    def pop(self) -> Fault:
        return self._faults.pop(0)

    def renewed(self, host: int, at_ns: int) -> None:
        """They come when it is said."""


def apart(at_ns: Sequence[int], back_ns: Callable[[int], int]) -> Iterator[int]:
    """These times, each so late that the run is back from the one before it.

    `back_ns(age_ns)`: when it is, after a failure so long after the one before.
    """
    last_ns = free_ns = None
    for at in sorted(at_ns):
        now = at if free_ns is None else max(at, free_ns)
        free_ns = now + back_ns(now if last_ns is None else now - last_ns)
        last_ns = now
        yield now


def back_ns_of(scenario: Scenario) -> Callable[[int], int]:
    """A restart and a step; longer where no standby is ready yet."""
    recovery, mean_s = scenario.recovery, scenario.recovery.restart.mean_s

    def back_ns(age_ns: int) -> int:
        is_young = age_ns / NS_PER_S - mean_s < recovery.standby_ready_s
        factor = recovery.start_factor(is_cold=is_young)
        return round((mean_s * factor + scenario.step_s) * NS_PER_S)

    return back_ns


def parameters_of(store: Path, name: str = "race") -> Parameters:
    """As `holdfast plan --from-run` fits them, from what is recorded now."""
    folder = RunStore.at(str(store)).get(name)
    from_memory = [one.attempt for one in attempts(folder).records if one.from_memory]
    run = gathered_run(load_run(folder.path, live_journals(folder)), from_memory, folder)
    seen = observe(run)
    restarts_s = seen.restarts_from_memory_s + seen.restarts_s + seen.cold_restarts_s
    return Parameters(fit(seen), restarts_s)


def predicted(parameters: Parameters, course: Course, runs: int = RUNS) -> Prediction:
    """The mean of runs with the most likely parameters; the spread of runs with drawn ones."""
    likely = [goodput(parameters.scenario(course), course, seed) for seed in range(runs)]
    drawn = [goodput(parameters.scenario(course, seed), course, seed) for seed in range(runs)]
    spread = Spread.of(drawn)
    return Prediction(statistics.fmean(likely), spread.low, spread.high)


def goodput(scenario: Scenario, course: Course, seed: int) -> float:
    """Of one simulated run, between the two moments, by the ordinary ledger."""
    kills = Kills([*course.struck, *course.due], back_ns_of(scenario))
    story = World(scenario, kills, policy_of(scenario), seed=seed).run()
    ledger = Ledger()
    ledger.add(story.history())
    return ledger.account(course.to_ns, course.to_ns - course.from_ns).goodput or 0.0
