"""How many spares, and what one more would bring."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.sim.plan_away import HostLoss, fleetwide
from holdfast.sim.plan_changes import with_spares
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import (
    Outlook,
    losses_of,
    mean_away,
    waiting,
    waits_for_repairs,
)

MOST_ROWS = 6
MOST_SPARES = 1 << 20


@dataclass(frozen=True, slots=True)
class SparesAnswer:
    """With so many spares: goodput, and what one more would add to it.

    `enough` is the probability that no more hosts are away than there are spares, `wait_s` how long
    the run waits for a host after a loss on average, those that find a spare included.
    """

    spares: int
    scheduling_goodput: float
    goodput: float
    gain_of_one_more: float
    wait_s: float
    enough: float


def spares_table(question: Question, view: Outlook) -> tuple[SparesAnswer, ...]:
    """From none to the best count, and one more; the question's own count is among them.

    Empty where spares change nothing: no host is lost, or another one is there at once.
    """
    best = best_spares(question)
    if best is None:
        return ()
    own = question.scenario.fleet.spares
    last = max(best, own) + 1
    counts = sorted({*range(0, last + 1, -(-last // MOST_ROWS)), best, own, last})
    return tuple(_row(question, view, count) for count in counts)


def best_spares(question: Question) -> int | None:
    """The count with the most goodput per host paid for, idle ones included; None: all are alike.

    One more is worth its price while scheduling goodput grows by more than its share of all hosts.
    From the mean number of hosts that are away on, each gains less than the one before it, so that
    the last one that is worth it is found by halving; or none at all is best.
    """
    hosts = question.scenario.fleet.hosts
    if not question.scenario.fleet.elastic and (together := losses_of(question)):
        return _best_of_all(together, question)
    if scheduling_goodput(question, 1) <= scheduling_goodput(question, 0):
        return None

    def is_worth_it(count: int) -> bool:
        """Whether there should be one more than `count`."""
        now, more = (scheduling_goodput(question, count + i) for i in (0, 1))
        return more > now * (1 + 1 / (hosts + count))

    low = int(mean_away(question))
    high = low + 1
    while high < MOST_SPARES and is_worth_it(high - 1):
        low, high = high, 2 * high - low + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_worth_it(middle - 1) else (low, middle)
    none, some = scheduling_goodput(question, 0), scheduling_goodput(question, low)
    return low if some > none * (1 + low / hosts) else 0


def _best_of_all(together: tuple[HostLoss, ...], question: Question) -> int | None:
    """Where racks or slices are lost, a few spares may gain nothing and some more a lot."""
    import numpy as np

    scenario = question.scenario
    all_of = fleetwide(together, scenario.recovery.repair, scenario.duration_s)
    there = all_of.enough if waits_for_repairs(scenario.recovery) else all_of.there
    if there.max() <= there[0]:
        return None
    return int(np.argmax(there / (scenario.fleet.hosts + np.arange(len(there)))))


def scheduling_goodput(question: Question, count: int) -> float:
    """With that many spares."""
    return waiting(with_spares(question, count)).scheduling_goodput


def _row(question: Question, view: Outlook, count: int) -> SparesAnswer:
    there, rg = waiting(with_spares(question, count)), view.runtime_goodput
    gain = scheduling_goodput(question, count + 1) - there.scheduling_goodput
    return SparesAnswer(
        count,
        there.scheduling_goodput,
        there.scheduling_goodput * rg,
        gain * rg,
        there.per_loss_s,
        there.enough,
    )
