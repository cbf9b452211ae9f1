"""What would raise goodput, by how much, and what no choice of interval can reach."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from holdfast.sim.durations import in_words
from holdfast.sim.laws import Exponential, Fixed
from holdfast.sim.plan_changes import (
    min_mean,
    scaled,
    with_elastic,
    with_failures,
    with_idle,
    with_notices,
    with_recovery,
    with_replace,
    with_restart,
    with_saves,
    with_spares,
    with_stall,
)
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import (
    Outlook,
    costs_of,
    is_memoryless,
    loses_hosts,
    notice_needs_s,
    outlook,
)
from holdfast.sim.plan_spares import best_spares, scheduling_goodput

LEAST_GAIN = 0.0005
MOST_WHAT_IFS = 8
COPY_S = 1.0  # of a memory tier that is not there yet
LEAD_S = 120.0
HALF = 0.5  # of the time kept: the least that may be called progress
MOST = 1e4  # times: no lever is pulled further


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change, the goodput with it, and how much that is more."""

    change: str
    goodput: float
    gain: float


def what_ifs(question: Question, view: Outlook) -> tuple[WhatIf, ...]:
    """What would raise goodput, most first. Intervals that are given stay; the others are best."""
    found = []
    for change, changed in _changes(question):
        goodput = outlook(changed).goodput
        if goodput - view.goodput >= LEAST_GAIN:
            found.append(WhatIf(change, goodput, goodput - view.goodput))
    return tuple(sorted(found, key=lambda one: -one.gain)[:MOST_WHAT_IFS])


def _changes(question: Question) -> Iterator[tuple[str, Question]]:
    scenario = question.scenario
    saves, failures, recovery = scenario.saves, scenario.failures, scenario.recovery
    restart_s, wait_s = recovery.restart.mean_s, recovery.replace.mean_s
    if saves.interval_s is not None or saves.memory_interval_s is not None:
        yield (
            "save at the best interval",
            with_saves(question, interval_s=None, memory_interval_s=None),
        )
    yield f"halve the restart, to {in_words(restart_s / 2)}", with_restart(question, restart_s / 2)
    yield "half as many failures", with_failures(question, 2.0)
    if saves.stall_s and not saves.memory:
        half_s = saves.stall_s / 2
        yield f"halve what a save blocks, to {in_words(half_s)}", with_stall(question, half_s)
        yield "saves that block nothing", with_stall(question, 0.0)
    if saves.write_s:
        half_s = saves.write_s / 2
        yield (
            f"halve the writing of a save, to {in_words(half_s)}",
            with_saves(question, write_s=half_s),
        )
    if scenario.idle:
        yield "no waiting for data, evaluation and the like", with_idle(question, 0.0)
    if not saves.memory and failures.host_share < 1:
        words = f"copies to memory that block for {in_words(COPY_S)}"
        yield words, with_saves(question, memory=True, copy_s=COPY_S)
    if saves.memory and not saves.peers and failures.host_share:
        yield "keep each copy in memory on another host too", with_saves(question, peers=True)
    if not scenario.fleet.elastic and can_drop_slices(question):
        words = "go on without the slices that are not whole"
        yield words, with_elastic(question, elastic=True)
    if failures.host_share:
        yield _noticed(question)
    if failures.hang_share and failures.host_share < 1:
        half_s = failures.hang_detect_s / 2
        changed = replace(failures, hang_detect_s=half_s)
        yield (
            f"notice a hang after {in_words(half_s)}",
            replace(question, scenario=replace(scenario, failures=changed)),
        )
    if wait_s and loses_hosts(question):
        yield "one more spare", with_spares(question, scenario.fleet.spares + 1)
        if recovery.repair is None or wait_s < recovery.repair.mean_s:
            half_s = wait_s / 2
            yield f"get another host in {in_words(half_s)}", with_replace(question, half_s)
        if recovery.repair is not None:
            half = scaled(recovery.repair, 0.5)
            words = f"repair a host in {in_words(half.mean_s)}"
            yield (
                words,
                with_recovery(question, repair=half, replace=min_mean(recovery.replace, half)),
            )


def can_drop_slices(question: Question) -> bool:
    """Whether there are several slices, whole ones, and each is worth as much as another."""
    fleet = question.scenario.fleet
    if not isinstance(question.between, Exponential) or fleet.slices < 2:
        return False
    return fleet.hosts % fleet.hosts_per_slice == 0 and fleet.least_slices < fleet.slices


def _noticed(question: Question) -> tuple[str, Question]:
    notices = question.scenario.failures.notices
    lead_s = max(notices.lead.mean_s, LEAD_S, notice_needs_s(question))
    recall = (1 + notices.recall) / 2
    words = f"a notice {in_words(lead_s)} ahead of {recall:.0%} of the losses of hosts"
    better = replace(notices, recall=recall, lead=Fixed(lead_s))
    return words.replace("%", " %"), with_notices(question, better)


def can_progress(question: Question, best: Outlook) -> bool:
    """Whether restarts last less than the mean time between failures, and anything is kept."""
    costs = costs_of(question)
    least_s = costs.restart_s if costs.copy_s is None else costs.restart_from_memory_s
    return best.goodput > 0 and least_s <= question.between.mean_s


def notes(question: Question, view: Outlook, best: Outlook) -> tuple[str, ...]:
    """What cannot be reached and what that would take, and where the closed forms stop."""
    return tuple(_notes(question, view, best))


def _notes(question: Question, view: Outlook, best: Outlook) -> Iterator[str]:
    scenario, saves = question.scenario, question.scenario.saves
    if not can_progress(question, best):
        yield _stuck(question, best)
    elif best.goodput < question.target:
        yield _out_of_reach(question, best)
    elif view.goodput < question.target:
        yield (
            f"Saves every {in_words(view.pattern.durable_interval_s)} keep "
            f"{_percent(view.goodput)}; every {in_words(best.pattern.durable_interval_s)} "
            f"they would keep {_percent(best.goodput)}."
        )
    for given_s in (saves.interval_s, saves.memory_interval_s):
        if given_s is not None and given_s < scenario.step_s:
            yield (
                f"An interval of {in_words(given_s)} is one of {in_words(scenario.step_s)}: "
                "nothing is saved within a step."
            )
    if saves.interval_s is not None and saves.interval_s < saves.write_s:
        yield (
            f"A save takes {in_words(saves.write_s)} to become durable, longer than the interval "
            f"of {in_words(saves.interval_s)}: writing would not keep up."
        )
    if saves.memory and saves.stall_s:
        yield (
            f"With a memory tier a durable save is a copy that is flushed while training goes on: "
            f"the {in_words(saves.stall_s)} that a save blocks otherwise do not count."
        )
    if saves.memory and not saves.write_s:
        yield (
            "Writing a copy to disk is taken to last no time, so that holdfast run would make one "
            "for the disk each second: say how long a write takes (save-write)."
        )
    yield from _approximate(question)
    notices, need_s = scenario.failures.notices, notice_needs_s(question)
    if notices.recall and notices.lead.mean_s < need_s:
        yield (
            f"Notices come {in_words(notices.lead.mean_s)} ahead, and a save takes "
            f"{in_words(need_s)}: they are of no use."
        )
    if not isinstance(question.between, Exponential) and is_memoryless(question):
        yield (
            "With a memory tier or notices the closed forms know exponential failures only: the "
            "law's shape counts for the interval of what one run sees, and for nothing else."
        )


def _approximate(question: Question) -> Iterator[str]:
    """Where kinds of failures that were asked for are counted to the first order only."""
    scenario = question.scenario
    early, law = scenario.failures.early, question.between
    if early is not None:
        lost = scenario.early_losses_per_s * scenario.duration_s
        yield (
            f"Some {lost:,.0f} hosts are lost early, most of them in the first "
            f"{in_words(3 * early.life_s)}: the plan spreads them evenly over the run; "
            "holdfast simulate does not."
        )
    if scenario.failures.hang_share and not isinstance(law, Exponential):
        yield (
            "Hangs are counted to the first order: after one that is noticed late the law of the "
            "failures is taken to begin anew."
        )


def _stuck(question: Question, best: Outlook) -> str:
    mean_s, restart_s = question.between.mean_s, costs_of(question).restart_s
    struck = 1 - question.between.survival(restart_s)
    words = (
        f"The run cannot progress: it fails every {in_words(mean_s)} on average and a restart "
        f"takes {in_words(restart_s)}, so that {_percent(struck)} of the restarts are struck "
        "before they end"
    )
    if best.goodput > 0:
        words += f", and chance leaves {_percent(best.goodput)} of the time at the most"
    return f"{words}. {_what_it_takes(question, HALF)}" if best.goodput < HALF else f"{words}."


def _out_of_reach(question: Question, best: Outlook) -> str:
    return (
        f"{_percent(question.target)} cannot be reached with {_worst(question, best)}: "
        f"{_percent(best.goodput)} is the most, at any interval. "
        f"{_what_it_takes(question, question.target)}"
    )


def _worst(question: Question, best: Outlook) -> str:
    """What costs most, as far as the interval cannot help it."""
    saves, fleet = question.scenario.saves, question.scenario.fleet
    there, runs = best.waiting.scheduling_goodput, best.shares
    saving = there * (runs.saves + runs.lost) if saves.stall_s and not saves.memory else 0.0
    if 1 - there > max(saving, there * runs.restarts):
        spares = "1 spare" if fleet.spares == 1 else f"{fleet.spares or 'no'} spares"
        return f"{spares} and {in_words(best.waiting.per_loss_s)} of waiting for each lost host"
    if saving > there * runs.restarts:
        return f"saves that block for {in_words(saves.stall_s)}"
    return f"restarts of {in_words(costs_of(question).restart_s)}"


def _what_it_takes(question: Question, target: float) -> str:
    """Each lever alone, and how far it would have to go."""
    found = list(_levers(question, target))
    goal = f"For {_percent(target)} it would take"
    if not found:
        return f"{goal} several changes at once; none is enough alone."
    return f"{goal} {', or '.join(found)}."


def _levers(question: Question, target: float) -> Iterator[str]:
    saves, recovery = question.scenario.saves, question.scenario.recovery

    def most(change: Callable[[Question, float], Question], now: float, counts: bool) -> float:
        """How far a lever may stand; 0: it does not count, or is not enough."""
        return _reaches(question, change, now, target) if counts and now else 0.0

    if stall_s := most(with_stall, saves.stall_s, not saves.memory):
        yield f"saves that block for {in_words(stall_s)} at most"
    if restart_s := most(with_restart, recovery.restart.mean_s, True):
        yield f"restarts of {in_words(restart_s)} at most"
    if (least := _spares_for(question, target)) is not None:
        yield f"{least} spares"
    is_soon = recovery.repair is None or recovery.replace.mean_s < recovery.repair.mean_s
    if wait_s := most(with_replace, recovery.replace.mean_s, is_soon):
        yield f"another host within {in_words(wait_s)}"
    if share := most(lambda q, part: with_failures(q, 1 / part), 1.0, True):
        yield f"failures {in_words(question.between.mean_s / share)} or more apart"


def _spares_for(question: Question, target: float) -> int | None:
    """The least number of spares with which the target is reached; None: no number is enough."""
    own = question.scenario.fleet.spares
    most = 2 * max(best_spares(question) or 0, own)
    kept = outlook(question, best=True).runtime_goodput
    if not most or kept * scheduling_goodput(question, most) < target:
        return None
    return bisect_left(
        range(most), True, lo=own, key=lambda n: kept * scheduling_goodput(question, n) >= target
    )


def _reaches(
    question: Question,
    change: Callable[[Question, float], Question],
    now: float,
    target: float,
) -> float:
    """A value of a lever, below what it is now, with which the target is just reached.

    0: there is none, or it is reached as things are. The value is a little less than it might be,
    so that three digits of it are not too much.
    """

    def reaches(value: float) -> bool:
        return outlook(change(question, value), best=True).goodput >= target

    low, high = now / MOST, now
    if not low or not reaches(low) or reaches(high):
        return 0.0
    while high / low > 1.001:
        middle = low * (high / low) ** 0.5
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low * 0.995


def _percent(share: float) -> str:
    return "<0.001 %" if 0 < share < 1e-5 else f"{share * 100:.3g} %"
