"""A question's goodput by the closed forms: the exact ones, where there is one.

Goodput is scheduling × runtime goodput, and the second factor does not depend on the waits for
hosts: what fails while the run waits makes it wait longer, and undoes no training.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil, exp, expm1

from holdfast.core.notices.plan import SaveTime
from holdfast.core.plan import spares
from holdfast.core.plan.optimum import exact_interval_s
from holdfast.core.plan.pattern import Costs, Pattern, Rates, Shares, best_pattern, shares
from holdfast.core.plan.renewal import mean_until_s, renewal_efficiency, renewal_interval_s
from holdfast.core.plan.replaced import whole
from holdfast.core.run.state import RunPolicy
from holdfast.core.save.policy import IN_MEMORY, Optimal, SaveView, Tier
from holdfast.sim import plan_away
from holdfast.sim.clock import SECOND, to_ns
from holdfast.sim.laws import Exponential, Fixed, Law
from holdfast.sim.model import Recovery
from holdfast.sim.plan_elastic import Losses, needs_s, presence
from holdfast.sim.plan_input import Question

LONGEST = 1e-12  # this share of the waits, the longest, is left out
QUANTILES = 12  # that stand for a law
SEEN = 1_000_000  # failures after which a policy knows how often they come
NEVER = 1e-12  # failures per second


@dataclass(frozen=True, slots=True)
class HostWaiting:
    """For hosts: the share of the time in which they are there, and what a loss costs.

    `lost`: the share of failures that take a host; `chance`: that such a loss finds no spare.
    `per_loss_s`: how long the run waits after a loss on average, with a spare or without. `enough`:
    the probability that no more hosts are away than there are spares.

    Of an elastic fleet that goes on, scheduling goodput weighs the slices that train. `present`: of
    the run's failures so many concern those; `taken_in_per_s`: restarts that only take slices in.
    """

    scheduling_goodput: float
    lost: float
    chance: float
    per_loss_s: float
    enough: float
    present: float = 1.0
    taken_in_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a question comes to, with one pattern of saves.

    `shares` counts as training what goes on between saves, `idle` of which is no step. It is of the
    time in which the run has its hosts, and so is `hanging`: what it hangs before that is noticed.
    Together they are 1.
    """

    pattern: Pattern
    shares: Shares
    waiting: HostWaiting
    idle: float = 0.0
    hanging: float = 0.0

    @property
    def runtime_goodput(self) -> float:
        """Kept steps / the time in which the run has its hosts."""
        return self.shares.kept * (1 - self.idle)

    @property
    def goodput(self) -> float:
        """Kept steps / all time."""
        return self.runtime_goodput * self.waiting.scheduling_goodput


def outlook(question: Question, *, best: bool = False) -> Outlook:
    """With the intervals that are given, or with the best ones."""
    pattern, all_but_hanging = _pattern(question, best=best)
    hanging = mean_hang_s(question) / question.between.mean_s
    part = 1 / (1 + hanging)
    found = (getattr(all_but_hanging, field.name) * part for field in fields(Shares))
    return Outlook(pattern, Shares(*found), waiting(question), question.scenario.idle, 1 - part)


def as_run(question: Question) -> Question:
    """The same with the intervals that `holdfast run` chooses, of its own policies.

    It has seen by then how often the run fails, and measured what these saves cost. It counts from
    when the last set was durable; that it copies more often soon after a failure is left out.
    """
    costs, rates, saves = costs_of(question), rates_of(question), question.scenario.saves
    step_s, written_s = question.scenario.step_s, costs.write_s

    def chosen_s(
        policy: Optimal, tier: Tier, blocked_s: float, total_s: float, rate: float
    ) -> float:
        view = SaveView(
            now_ns=0,
            step=0,
            last_committed_step=0,
            last_committed_ns=0,
            save_blocked_ns=to_ns(blocked_s),
            save_total_ns=to_ns(total_s),
            failures_seen=SEEN if rate else 0,
            observed_ns=round(SECOND * SEEN / max(rate, NEVER)),
            tier=tier,
        )
        return step_s * max(1, ceil(policy.interval_s(view) / step_s))

    copy_s, all_of = costs.copy_s, rates.failures
    if copy_s is None:
        total_s = costs.save_s + written_s
        durable_s = chosen_s(Optimal(), Tier.ALONE, costs.save_s, total_s, all_of)
        changed = replace(saves, interval_s=durable_s + written_s)
    else:
        losses = rates.host + rates.announced
        durable_s = chosen_s(Optimal(), Tier.DURABLE, 0.0, written_s, losses)
        memory_s = chosen_s(IN_MEMORY, Tier.MEMORY, copy_s, copy_s, all_of)
        changed = replace(saves, interval_s=durable_s + written_s, memory_interval_s=memory_s)
    return replace(question, scenario=replace(question.scenario, saves=changed))


def is_memoryless(question: Question) -> bool:
    """Whether failures are exponential, or are taken to be: two tiers and notices know no other."""
    scenario = question.scenario
    return (
        isinstance(question.between, Exponential)
        or scenario.saves.memory
        or scenario.failures.notices.recall > 0
    )


def least_interval_s(question: Question) -> float:
    """A save is over before the next one begins, and there is one a step at the most."""
    return max(question.scenario.saves.write_s, question.scenario.step_s)


def given_intervals_s(question: Question) -> tuple[float | None, float | None]:
    """To disk and to memory, as asked for; None: nobody did. Saves are between steps."""
    saves, step_s = question.scenario.saves, question.scenario.step_s
    given = (saves.interval_s, saves.memory_interval_s)
    durable_s, copies_s = (None if one is None else max(one, step_s) for one in given)
    return durable_s, copies_s


def rates_of(question: Question) -> Rates:
    """How often what fails, per second of time in which the run has its hosts.

    Where copies are on other hosts too, the loss of one host leaves the memory alone. Notices that
    come too late for a save are none. Slices that do not train end no attempt when they fail; to
    take them in again is a failure that is announced, and loses nothing. A host may be lost while a
    hang is not noticed yet: then that is what ends the attempt.
    """
    saves, notices = question.scenario.saves, question.scenario.failures.notices
    process, losses, domains = by_cause(question)
    overtaken = _hangs(question) * hang_s(question)
    process -= overtaken * (losses + domains)
    overtaken_losses, domains = overtaken * losses, domains + overtaken * domains
    in_time = notices.lead.survival(max(0.0, notice_needs_s(question) - 1e-9))
    announced = losses * notices.recall * in_time
    false = losses * notices.recall * (1 - notices.precision) / notices.precision
    host = losses - announced + overtaken_losses
    if saves.memory and saves.peers:
        process, host = process + host, 0.0
    rates = Rates(process, host + domains, announced, false)
    if not question.scenario.fleet.elastic:
        return rates
    there = waiting(question)
    by_kind = (rates.process, rates.host, rates.announced, rates.false)
    process, host, announced, false = (rate * there.present for rate in by_kind)
    return Rates(process, host, announced + there.taken_in_per_s, false)


def notice_needs_s(question: Question) -> float:
    """How long a save on demand takes until it is durable."""
    return needs_s(question.scenario)


def by_cause(question: Question) -> tuple[float, float, float]:
    """Failures per second: of processes, of single hosts, of whole racks or slices."""
    failures, fleet = question.scenario.failures, question.scenario.fleet
    domains = sum(
        -(-fleet.hosts // size) / law.mean_s
        for law, size in (
            (failures.rack_between, fleet.hosts_per_rack),
            (failures.slice_between, fleet.hosts_per_slice),
        )
        if law is not None and size
    )
    early = question.scenario.early_losses_per_s
    single = max(0.0, 1 / question.between.mean_s - domains - early)
    return single * (1 - failures.host_share), single * failures.host_share + early, domains


def _hangs(question: Question) -> float:
    """How often processes hang, per second of time in which nothing does."""
    return by_cause(question)[0] * question.scenario.failures.hang_share


def mean_hang_s(question: Question) -> float:
    """What hangs cost a failure of any kind on average."""
    hangs = _hangs(question)
    return hangs * hang_s(question) * question.between.mean_s if hangs else 0.0


def hang_s(question: Question) -> float:
    """How long a hang lasts on average: until it is noticed, or something else fails before.

    Nothing is lost meanwhile that was not lost before: attempts are as they are without hangs, and
    only the time between two of them is longer. For an exponential law that is exact.
    """
    law, failures = question.between, question.scenario.failures
    if not isinstance(law, Exponential):
        return mean_until_s(law.survival, failures.hang_detect_s)
    others = 1 / law.mean_s - _hangs(question)
    passed = others * failures.hang_detect_s
    return -expm1(-passed) / others if passed > 0 else failures.hang_detect_s


def costs_of(question: Question) -> Costs:
    """What saving and coming back take; of laws their means.

    With a memory tier every save is a copy, and a durable one is flushed while training goes on.
    """
    saves, recovery = question.scenario.saves, question.scenario.recovery
    restart_s = recovery.restart.mean_s
    save_s = saves.copy_s if saves.memory else saves.stall_s
    lead_s = min(question.scenario.failures.notices.lead.mean_s, _ahead_s(question))
    announced = rates_of(question).announced
    if announced and question.scenario.fleet.elastic:  # an agreed stop leaves as soon as it can
        share = waiting(question).taken_in_per_s / announced
        lead_s = (1 - share) * lead_s + share * notice_needs_s(question)
    return Costs(
        save_s=save_s,
        restart_s=restart_s,
        copy_s=saves.copy_s if saves.memory else None,
        restart_from_memory_s=recovery.from_memory_s,
        notice_save_s=save_s,
        notice_lead_s=lead_s,
        write_s=saves.write_s,
    )


def _ahead_s(question: Question) -> float:
    """So long before an announced loss the core has the run saved: as late as is safe."""
    scenario = question.scenario
    saves = scenario.saves
    save_s, flush_s = saves.stall_s, 0.0
    if saves.memory:  # what lies in memory is written first
        save_s, flush_s = saves.copy_s, saves.write_s
    written_s = saves.write_s + (0.0 if saves.memory else save_s)
    needs = SaveTime(*map(to_ns, (scenario.step_s, save_s, written_s, flush_s)))
    return replace(needs, leaving_ns=RunPolicy(ranks=1).margin_ns).ahead_ns / SECOND


def waiting(question: Question) -> HostWaiting:
    """Scheduling goodput: hosts that are lost, spares that take their place, and the wait else.

    Hosts are lost while the run waits, too. Where another one comes after a wait of w, the run has
    them all if none was lost within the last w: e^(−λw), for any law of the wait. Of the losses a
    share p finds no spare; spares that are used up change slowly against the waits, so that the run
    has its hosts for 1 − p + p·e^(−λw) of the time. Where hosts are repaired, too:
    `core.plan.replaced`. Of racks and slices, which take several spares at once: `plan_away`.
    """
    scenario, recovery = question.scenario, question.scenario.recovery
    count, rate = scenario.fleet.spares, sum(by_cause(question)[1:])
    wait_s, repair = replace_s(question), recovery.repair
    if together := losses_of(question):
        all_of = plan_away.fleetwide(together, repair, scenario.duration_s)
        count = min(count, len(all_of.there) - 1)
        chance, enough = float(all_of.chance[count]), float(all_of.enough[count])
        there = float(all_of.there[count])
    elif repair is None:
        losses = rate * scenario.duration_s
        chance = spares.beyond(count, losses) / losses if losses else 0.0
        enough = spares.enough(count, losses)
    else:
        enough = spares.enough(count, rate * repair.mean_s)
        chance = 1 - spares.enough(count - 1, rate * repair.mean_s) if count else 1.0
    if recovery.replace == repair:
        there = enough
    elif not together and repair is not None:
        there = whole(count, rate, repair.mean_s, orders_s(recovery.replace))
    elif not together:
        there = 1 - chance + chance * exp(-rate * wait_s)
    elif waits_for_repairs(recovery):
        there = enough
    there *= exp(-rate * recovery.swap.mean_s)
    per_loss_s = (1 / there - 1) / rate if rate and there else 0.0
    found = HostWaiting(there, rate * question.between.mean_s, chance, per_loss_s, enough)
    return _going_on(question, found, rate, wait_s) if scenario.fleet.elastic else found


def _going_on(question: Question, waits: HostWaiting, rate: float, wait_s: float) -> HostWaiting:
    """The same with the slices that are whole, where the policy does not wait."""
    recovery, between_s = question.scenario.recovery, question.between.mean_s
    spares, repairs_s = question.scenario.fleet.spares, 0.0
    if recovery.repair is not None and waits_for_repairs(recovery) and rate:
        wait_s = repairs_s = recovery.repair.mean_s
        spares = round(spares * rate * repairs_s / mean_away(question))  # so many losses' worth
    losses = Losses(rate, waits.chance, wait_s, between_s, repairs_s, spares)
    found = presence(question.scenario, losses) if rate else None
    if found is None:
        return waits
    there, hits = found.training * exp(-rate * recovery.swap.mean_s), rate * found.present
    return replace(
        waits,
        scheduling_goodput=there,
        lost=hits / (found.present / between_s + found.taken_in_per_s),
        per_loss_s=(1 / there - 1) / hits if there else 0.0,
        present=found.present,
        taken_in_per_s=found.taken_in_per_s,
    )


def waits_for_repairs(recovery: Recovery) -> bool:
    """Whether another host is never there sooner than one that is repaired."""
    repair = recovery.repair
    return repair is not None and recovery.replace.mean_s >= repair.mean_s


def replace_s(question: Question, hosts: int = 1) -> float:
    """The mean wait for as many hosts as were lost at once, where no spare is left.

    Each comes when its repair ends, or when another is there: ∫ 1 − (1 − S(t))^n dt.
    """
    recovery = question.scenario.recovery
    law, repair = recovery.replace, recovery.repair
    if repair == law:
        repair = None
    if isinstance(law, Fixed) and (repair is None or isinstance(repair, Fixed)):
        return law.mean_s

    def is_waited(age_s: float) -> float:
        alone = law.survival(age_s) * (repair.survival(age_s) if repair else 1.0)
        return 1 - (1 - alone) ** hosts

    until_s = law.mean_s if isinstance(law, Fixed) else law.age_at_s(LONGEST)
    return mean_until_s(is_waited, until_s)


def orders_s(law: Law) -> tuple[float, ...]:
    """How long hosts take that are ordered: quantiles, all of them equally likely."""
    if isinstance(law, Fixed):
        return (law.mean_s,)
    return tuple(law.age_at_s((i + 0.5) / QUANTILES) for i in range(QUANTILES))


def losses_of(question: Question) -> tuple[plan_away.HostLoss, ...]:
    """How many hosts are lost at once how often, where whole racks or slices are; else nothing."""
    fleet, failures = question.scenario.fleet, question.scenario.failures
    found = []
    for law, size in (
        (failures.rack_between, fleet.hosts_per_rack),
        (failures.slice_between, fleet.hosts_per_slice),
    ):
        if law is not None and size:
            whole, rest = divmod(fleet.hosts, size)
            if whole:
                found.append((whole / law.mean_s, size))
            if rest:
                found.append((1 / law.mean_s, rest))
    if found and (single := by_cause(question)[1]):
        found.append((single, 1))
    return tuple(
        plan_away.HostLoss(per_s, hosts, replace_s(question, hosts)) for per_s, hosts in found
    )


def loses_hosts(question: Question) -> bool:
    """Whether any failure takes a host along."""
    return any(by_cause(question)[1:])


def mean_away(question: Question) -> float:
    """How many hosts are being repaired on average; 0 where none ever is."""
    repair, together = question.scenario.recovery.repair, losses_of(question)
    if repair is None:
        return 0.0
    if together:
        return sum(loss.per_s * loss.hosts for loss in together) * repair.mean_s
    return sum(by_cause(question)[1:]) * repair.mean_s


def _pattern(question: Question, *, best: bool) -> tuple[Pattern, Shares]:
    step_s = question.scenario.step_s
    costs, rates, least_s = costs_of(question), rates_of(question), least_interval_s(question)
    given_s, copies_s = (None, None) if best else given_intervals_s(question)
    if not is_memoryless(question):
        return _renewed(question, costs, given_s, least_s)
    if costs.copy_s is None and given_s is None and not rates.announced and not rates.false:
        given_s = max(least_s, exact_interval_s(costs.save_s, 1 / rates.failures))
    pattern = best_pattern(
        costs,
        rates,
        least_s=least_s,
        least_copy_s=step_s,
        durable_interval_s=given_s,
        memory_interval_s=copies_s,
    )
    return pattern, shares(pattern, costs, rates)


def _renewed(
    question: Question, costs: Costs, given_s: float | None, least_s: float
) -> tuple[Pattern, Shares]:
    """One tier, no notices, any law."""
    law, mean_s = question.between, question.between.mean_s
    interval_s = given_s or renewal_interval_s(
        costs.save_s,
        costs.restart_s,
        law.survival,
        mean_s,
        durable_s=costs.write_s,
        least_s=least_s,
    )
    kept = renewal_efficiency(
        interval_s, costs.save_s, costs.restart_s, law.survival, mean_s, durable_s=costs.write_s
    )
    saving = kept * costs.save_s / interval_s
    restarts = mean_until_s(law.survival, costs.restart_s) / mean_s
    return Pattern(interval_s), Shares(kept, saving, restarts, max(0, 1 - kept - saving - restarts))
