"""What each way to buy the machines does to goodput and money, for the same useful work.

The work is what the run as planned does in its time. A way changes how hosts are lost and how
others come; what that comes to is computed as for any plan. Waits for machines are of its own, and
so is what is paid for: see `buying.Way`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log

from holdfast.core.plan.pattern import Costs, Pattern, Rates, shares
from holdfast.sim.buying import ALWAYS, Way
from holdfast.sim.durations import in_words
from holdfast.sim.laws import Exponential, Fixed
from holdfast.sim.model import DAY_S, Failures, Notices
from holdfast.sim.plan_input import Question
from holdfast.sim.plan_model import (
    Outlook,
    by_cause,
    costs_of,
    mean_away,
    notice_needs_s,
    outlook,
    rates_of,
)
from holdfast.sim.window import kept_s

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Bought:
    """One way, and what the work takes and costs; None: it is never done.

    `wall_s`: from the request to the end. `scheduling_goodput`: of that, the share in which all
    hosts are there. `interval_s`: between durable saves. `paid_chip_hours`: idle ones included.
    """

    name: str
    price: float
    goodput: float
    scheduling_goodput: float
    runtime_goodput: float
    interval_s: float
    wall_s: float | None
    paid_chip_hours: float | None
    money: float | None
    money_per_useful_chip_hour: float | None


@dataclass(frozen=True, slots=True)
class Buying:
    """All ways; None: no way gets the work done. `why`: a sentence for each of the two."""

    useful_chip_hours: float
    ways: tuple[Bought, ...]
    cheapest: str | None
    fastest: str | None
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Course:
    """How the work goes: its wall time, and of that when all hosts are there, and what is paid."""

    wall_s: float
    there_s: float
    paid_s: float


def buying(question: Question, view: Outlook) -> Buying | None:
    """None where no way to buy was given."""
    if not question.ways:
        return None
    scenario = question.scenario
    work_s = scenario.duration_s * view.goodput
    useful = work_s * scenario.fleet.chips / HOUR_S
    ways = tuple(_bought(question, way, work_s) for way in question.ways)
    done = [way for way in ways if way.money is not None]
    by_money = sorted(done, key=lambda way: way.money or 0.0)
    by_time = sorted(done, key=lambda way: way.wall_s or 0.0)
    if not done:
        return Buying(useful, ways, None, None, ("No way to buy gets the work done.",))
    why = (_why_cheapest(by_money), _why_fastest(by_time))
    return Buying(useful, ways, by_money[0].name, by_time[0].name, why)


def question_of_way(question: Question, way: Way) -> Question:
    """The question with machines that are bought in that way, but for windows and money.

    Interruptions are losses of hosts at a constant rate; where there are any, failures are taken
    to be exponential. With `provision` each lost host, a spare as well, is there again after that.
    """
    scenario, recovery = question.scenario, question.scenario.recovery
    if way.provision is not None:
        law = way.provision
        repair = law if law.mean_s else None
        recovery = replace(recovery, replace=law, repair=repair)
    failures = scenario.failures
    if way.interruptions:
        failures = _interrupted(question, way)
    changed = replace(scenario, failures=failures, recovery=recovery)
    if not way.interruptions or changed.mtbf_s is None:
        return replace(question, scenario=changed)
    return replace(question, scenario=changed, between=Exponential(changed.mtbf_s))


def _interrupted(question: Question, way: Way) -> Failures:
    """Failures of hosts and interruptions as one law; notices that come in time as one kind."""
    failures, notices = question.scenario.failures, question.scenario.failures.notices
    rate = 1 / failures.between.mean_s if failures.between else 0.0
    lost, taken = rate * failures.host_share, way.interruptions / (1000 * DAY_S)
    need_s = notice_needs_s(question)
    own = lost * notices.recall * notices.lead.survival(max(0.0, need_s - 1e-9))
    announced = taken * way.notice_recall if way.notice_s >= need_s else 0.0
    false = lost * notices.recall * (1 - notices.precision) / notices.precision
    both = own + announced
    merged = Notices()
    if both:
        lead_s = (own * notices.lead.mean_s + announced * way.notice_s) / both
        merged = Notices(both / (lost + taken), both / (both + false), Fixed(lead_s))
    return replace(
        failures,
        between=Exponential(1 / (rate + taken)),
        host_share=(lost + taken) / (rate + taken),
        notices=merged,
    )


def _bought(question: Question, way: Way, work_s: float) -> Bought:
    changed = question_of_way(question, way)
    view = outlook(changed)
    course = _course(changed, way, view, work_s)
    fleet = question.scenario.fleet
    interval_s = view.pattern.durable_interval_s
    if course is None:
        nothing = None, None, None, None
        return Bought(way.name, way.price, 0.0, 0.0, 0.0, interval_s, *nothing)
    chip_hours = _paid_host_s(changed, way, view, course) * fleet.chips_per_host / HOUR_S
    money = way.price * chip_hours
    return Bought(
        way.name,
        way.price,
        goodput=work_s / course.wall_s,
        scheduling_goodput=course.there_s / course.wall_s,
        runtime_goodput=work_s / course.there_s,
        interval_s=interval_s,
        wall_s=course.wall_s,
        paid_chip_hours=chip_hours,
        money=money,
        money_per_useful_chip_hour=money / (work_s * fleet.chips / HOUR_S),
    )


def _course(question: Question, way: Way, view: Outlook, work_s: float) -> _Course | None:
    """None: the work is never done."""
    start_s = way.provision.mean_s if way.provision is not None else 0.0
    there = view.waiting.scheduling_goodput
    if not work_s or view.goodput <= 1e-9:
        return None
    if way.window_s is None or way.gap_s is None:
        running_s = work_s / view.goodput
        return _Course(start_s + running_s, running_s * there, running_s)
    window_s, scale = way.window_s, _scale(question, view)

    def kept(time_s: float) -> float:
        """Of a window that is cut off then; waits for lost hosts make it shorter."""
        return scale * _kept_s(question, view, time_s * there)

    each_s = kept(window_s)
    if each_s <= 1e-9 * window_s:
        return None
    whole = ceil(work_s / each_s) - 1
    last_s = _first_with(kept, work_s - whole * each_s, window_s)
    wall_s = start_s + whole * (window_s + way.gap_s) + last_s
    return _Course(wall_s, (whole * window_s + last_s) * there, (whole + 1) * window_s)


def _kept_s(question: Question, view: Outlook, time_s: float) -> float:
    costs = costs_of(question)
    return kept_s(
        time_s,
        interval_s=view.pattern.durable_interval_s,
        save_s=costs.save_s,
        restart_s=costs.restart_s,
        write_s=costs.write_s,
        failures_per_s=rates_of(question).failures,
    )


def _scale(question: Question, view: Outlook) -> float:
    """How much more is kept than with one tier of the same interval; 1 where that is all there is.

    Memory tiers, notices and hangs change what is kept between the ends of a window, in proportion.
    """
    costs, every = costs_of(question), rates_of(question).failures
    plain = Costs(save_s=costs.save_s, restart_s=costs.restart_s, write_s=costs.write_s)
    one_tier = shares(Pattern(view.pattern.durable_interval_s), plain, Rates(host=every)).kept
    return view.runtime_goodput / one_tier if one_tier else 0.0


def _first_with(kept: Callable[[float], float], wanted_s: float, most_s: float) -> float:
    """The least time in which so much is kept: `kept` never falls."""
    low, high = 0.0, most_s
    while high - low > 1e-6 * most_s:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) >= wanted_s else (middle, high)
    return high


def _paid_host_s(question: Question, way: Way, view: Outlook, course: _Course) -> float:
    """Host-seconds: machines that are away are not held, and a term is paid to its end."""
    fleet = question.scenario.fleet
    hosts = fleet.hosts + fleet.spares
    if way.term_s is not None:
        return hosts * ceil(course.wall_s / way.term_s) * way.term_s
    if way.pays == ALWAYS:
        return hosts * course.wall_s
    if way.window_s is not None:
        return hosts * course.paid_s
    if way.provision is not None:
        away = mean_away(question)
    else:  # of each place that waits for another host
        away = sum(by_cause(question)[1:]) * view.waiting.per_loss_s
    return max(0.0, hosts - away) * course.paid_s


def _why_cheapest(ways: list[Bought]) -> str:
    """The two cheapest: the price, and how much is paid for."""
    best, *others = ways
    if not others:
        return f"Only {best.name} is weighed, or gets the work done."
    other = others[0]
    less = 1 - (best.money or 0.0) / (other.money or 1.0)
    price = best.price / other.price - 1
    hours = (best.paid_chip_hours or 0.0) / (other.paid_chip_hours or 1.0) - 1
    return (
        f"{best.name} is cheapest, {_percent(less)} below {other.name}: its price is "
        f"{_more(price, 'higher', 'lower')}, and it pays for {_more(hours, 'more', 'fewer')} "
        "chip-hours."
    )


def _why_fastest(ways: list[Bought]) -> str:
    """The two fastest: the factor of goodput that tells them apart most."""
    best, *others = ways
    if not others:
        return f"{best.name} takes {in_words(best.wall_s or 0.0)}."
    other = others[0]
    sooner = f"{in_words((other.wall_s or 0.0) - (best.wall_s or 0.0))} sooner than {other.name}"
    if best.wall_s == other.wall_s:
        return f"{best.name} and {other.name} are equally fast."
    scheduling = log(best.scheduling_goodput / other.scheduling_goodput)
    if scheduling >= log(best.runtime_goodput / other.runtime_goodput):
        shares = best.scheduling_goodput, other.scheduling_goodput
        words = "all hosts are there for"
    else:
        shares = best.runtime_goodput, other.runtime_goodput
        words = "of the time that they are there it keeps"
    mine, others_share = (_percent(one) for one in shares)
    return f"{best.name} is fastest, {sooner}: {words} {mine}, and not {others_share}."


def _more(part: float, above: str, below: str) -> str:
    if abs(part) < 5e-4:
        return "the same" if above == "higher" else "as many"
    return f"{_percent(abs(part))} {above if part > 0 else below}"


def _percent(part: float) -> str:
    return f"{part * 100:.3g} %"
