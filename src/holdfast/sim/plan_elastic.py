"""An elastic fleet's goodput by formula: what goes on without the slices that are not whole.

Goodput weighs chips: a slice that does not train is scheduling badput, as in the ledger. That a
slice is lost costs the restart that any failure costs. That it comes back costs another one, after
an agreed save, which is a failure that is announced in time: nothing is lost by it. Where that does
not pay, the slice waits for the next failure. Which it is, is asked of `core.hosts.elastic`, for a
state as it is on average: so a plan and a run have one policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

from holdfast.core.hosts.elastic import LaunchNow, TakeIn, View, before_launch, while_training
from holdfast.core.plan.slices_away import at_least, share_training, share_training_beyond
from holdfast.sim.clock import to_ns
from holdfast.sim.model import Scenario


@dataclass(frozen=True, slots=True)
class Losses:
    """Of hosts, racks and slices, each of which takes one slice out.

    `per_s`: how often. `chance`: that one finds no spare. `wait_s`: then it waits so long.
    `between_s`: the time between failures of all kinds. `repairs_s`: where only repairs bring hosts
    back, their mean; else 0, and for how many such losses there are `spares`.
    """

    per_s: float
    chance: float
    wait_s: float
    between_s: float
    repairs_s: float = 0.0
    spares: int = 0


@dataclass(frozen=True, slots=True)
class Presence:
    """Of the slices, in the long run.

    `training`: the share of all chip time. `present`: the share of the slices that a chip which
    trains has around it on average, itself included: so many of the run's failures concern it.
    `taken_in_per_s`: restarts that only take slices in.
    """

    training: float
    present: float
    taken_in_per_s: float


def presence(scenario: Scenario, losses: Losses) -> Presence | None:
    """What the policy comes to; None: it waits, as if the fleet were not elastic."""
    fleet = scenario.fleet
    per_slice = losses.per_s / fleet.slices
    there, training = _there(scenario, losses), _training(scenario, losses)
    trains = min(fleet.slices - 1, max(1, round(there * fleet.slices)))
    between_s = losses.between_s / there if there else losses.between_s
    save_s, restart_s = needs_s(scenario), scenario.recovery.restart.mean_s
    state = View(
        fleet.slices,
        fleet.least_slices,
        trains,
        (to_ns(losses.wait_s),),
        restart_ns=to_ns(restart_s),
        save_ns=to_ns(save_s),
        between_ns=to_ns(between_s),
    )
    if not isinstance(before_launch(state)[0], LaunchNow):
        return None
    state = replace(state, there=trains + 1, waits_ns=(), training=trains)
    takes_in = isinstance(while_training(state)[0], TakeIn)
    if not takes_in:  # it is away for longer, until something ends an attempt anyway
        used = 1 / (1 + there * per_slice * losses.chance * between_s)  # of a slice that is whole
        return Presence(training * used, _around(fleet.slices, there * used), 0.0)
    # A whole slice is lost, the others can go on without it, and it comes back.
    without = at_least(fleet.slices - 1, fleet.least_slices, there)
    taken_in_per_s = losses.per_s * losses.chance * there * without
    return Presence(training, _around(fleet.slices, there), taken_in_per_s)


def needs_s(scenario: Scenario) -> float:
    """How long a save on demand takes until it is durable."""
    saves = scenario.saves
    return (saves.copy_s if saves.memory else saves.stall_s) + saves.write_s


def _around(slices: int, there: float) -> float:
    """E[K²] / (n·E[K]), K binomial."""
    return there + (1 - there) / slices


def _there(scenario: Scenario, losses: Losses) -> float:
    """The probability that a slice is whole."""
    slices = scenario.fleet.slices
    if losses.repairs_s:
        return share_training_beyond(slices, 1, losses.spares, _load(losses))
    return 1 - losses.chance + losses.chance * exp(-losses.per_s / slices * losses.wait_s)


def _training(scenario: Scenario, losses: Losses) -> float:
    fleet = scenario.fleet
    if losses.repairs_s:
        return share_training_beyond(fleet.slices, fleet.least_slices, losses.spares, _load(losses))
    whole = exp(-losses.per_s / fleet.slices * losses.wait_s)
    training = share_training(fleet.slices, fleet.least_slices, whole)
    return 1 - losses.chance + losses.chance * training


def _load(losses: Losses) -> float:
    return losses.per_s * losses.repairs_s
