"""Patterns of saves: against Daly, a plain walk through drawn failures, and first orders."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.plan.first_order import (
    TwoIntervals,
    linear_efficiency,
    predicted_interval_s,
    predicted_waste,
    two_level_intervals,
    two_level_waste,
)
from holdfast.core.plan.optimum import efficiency, exact_interval_s
from holdfast.core.plan.pattern import Costs, Pattern, Rates, best_pattern, shares

M = 11_124.0  # of 16,384 H100 at 3.79 interruptions per 1000 node-days, arXiv:2407.21783


@given(st.floats(1, 1e5), st.floats(0, 600), st.floats(0, 5000), st.floats(100, 1e6))
def test_one_interval_is_dalys_exact_form(tau_s, save_s, restart_s, mtbf_s):
    """Daly 2006, equation 20."""
    found = shares(Pattern(tau_s), Costs(save_s, restart_s), Rates(host=1 / mtbf_s))
    assert found.kept == pytest.approx(efficiency(tau_s, save_s, restart_s, mtbf_s), abs=1e-12)
    assert found.kept + found.saves + found.restarts + found.lost == pytest.approx(1)


@given(st.floats(0.1, 600), st.floats(300, 1e6))
def test_its_best_interval_is_lamberts(save_s, mtbf_s):
    found = best_pattern(
        Costs(save_s, 300.0), Rates(host=1 / mtbf_s), least_s=1e-3, least_copy_s=1e-3
    )
    assert found.copies == 1
    assert found.interval_s == pytest.approx(exact_interval_s(save_s, mtbf_s), rel=2e-3)


def drawn(pattern: Pattern, costs: Costs, rates: Rates, failures: int, seed: int) -> list[float]:
    """Shares (kept, restarts) of a run that is walked through second by second, failure by failure.

    Written to be read, and with nothing in common with the recursion.
    """
    rng = Random(seed)
    causes = [("process", rates.process), ("host", rates.host), ("announced", rates.announced)]
    causes.append(("false", rates.false))
    time_s = kept_s = in_restarts_s = 0.0
    unkept = 0  # intervals that are in memory alone
    segment = 0

    def next_event(false_too: bool) -> tuple[float, str]:
        events = [(rng.expovariate(r), c) for c, r in causes if r and (false_too or c != "false")]
        return min(events, default=(inf, ""))

    while failures > 0:
        costs_copy_s = costs.copy_s or 0.0
        is_last = segment == pattern.copies - 1
        period_s = pattern.interval_s + (costs.save_s if is_last else costs_copy_s)
        at_s, cause = next_event(false_too=True)
        if at_s >= period_s:
            time_s += period_s
            segment += 1
            unkept += 1
            if is_last:
                kept_s += unkept * pattern.interval_s
                segment = unkept = 0
            continue
        time_s += at_s
        if cause in ("announced", "false"):
            kept_s += unkept * pattern.interval_s + min(at_s, pattern.interval_s)
            time_s += costs.notice_save_s if cause == "announced" else costs.save_s
            if cause == "announced":  # and trains on; whole intervals would be kept
                rest_s = max(0.0, costs.notice_lead_s - costs.notice_save_s)
                time_s += rest_s % (pattern.interval_s + (costs.copy_s or costs.save_s))
            segment = unkept = 0
        if cause == "false":
            continue
        if cause == "host":
            segment = unkept = 0
        while True:  # the restart, and all that strikes it
            failures -= 1
            from_memory = cause == "process" and costs.copy_s is not None
            needed_s = costs.restart_from_memory_s if from_memory else costs.restart_s
            at_s, strike = next_event(false_too=False)
            time_s += min(at_s, needed_s)
            in_restarts_s += min(at_s, needed_s)
            if at_s >= needed_s:
                break
            if strike != "process":
                segment = unkept = 0
                cause = strike
    return [kept_s / time_s, in_restarts_s / time_s]


@pytest.mark.parametrize(
    ("pattern", "costs", "rates"),
    [
        (Pattern(60, 10), Costs(60, 300, 1, 100), Rates(1 / 1500, 1 / 6000)),
        (Pattern(200, 3), Costs(30, 600, 5, 500), Rates(1 / 1000, 1 / 2000)),
        (
            Pattern(500),
            Costs(60, 600, notice_save_s=80, notice_lead_s=120),
            Rates(0, 1 / 4000, 1 / 4000),
        ),
        (Pattern(500), Costs(60, 600, notice_save_s=60, notice_lead_s=1500), Rates(0, 1e-4, 2e-4)),
        (Pattern(500), Costs(60, 300, notice_save_s=60), Rates(0, 1 / 9000, 1 / 3000, 1 / 3000)),
        (Pattern(100, 5), Costs(60, 300, 2, 50, 70), Rates(1 / 2000, 1 / 9000, 1 / 5000, 1 / 8000)),
    ],
)
def test_a_walk_through_drawn_failures_comes_to_the_same(pattern, costs, rates):
    """40,000 failures: the mean of what each costs is known to about 0.3 points."""
    kept, restarts = drawn(pattern, costs, rates, 40_000, seed=7)
    found = shares(pattern, costs, rates)
    assert found.kept == pytest.approx(kept, abs=0.006)
    assert found.restarts == pytest.approx(restarts, abs=0.006)
    assert found.kept + found.saves + found.restarts + found.lost == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-2, 1e-3])
def test_two_levels_meet_the_published_first_order(scale):
    """Vaidya 1995, Moody et al. 2010, Di et al. 2014: where costs are small against both MTBFs.

    Intervals within 15 % (the optimum is that flat), the waste within 5 % of itself.
    """
    costs = Costs(300 * scale, 60 * scale, 2 * scale, 60 * scale)
    process, host = 1 / 20_000, 1 / 300_000
    rates = Rates(process, host)
    found = best_pattern(costs, rates, least_s=1e-3, least_copy_s=1e-4)
    assert costs.copy_s is not None
    wanted = two_level_intervals(costs.copy_s, costs.save_s, 1 / process, 1 / host)
    assert found.interval_s == pytest.approx(wanted.memory_s, rel=0.15)
    assert found.durable_interval_s == pytest.approx(wanted.durable_s, rel=0.15)
    waste = two_level_waste(
        TwoIntervals(found.interval_s, found.durable_interval_s),
        costs.copy_s, costs.save_s, costs.restart_s, 1 / process, 1 / host,
    )  # fmt: skip
    assert 1 - shares(found, costs, rates).kept == pytest.approx(waste, rel=0.05)


@pytest.mark.parametrize(("recall", "precision"), [(0.3, 0.5), (0.7, 0.4), (0.85, 0.82), (0.9, 1)])
def test_notices_meet_the_published_first_order(recall, precision):
    """Aupy, Robert, Vivien, Zaidouni 2014: √(2δM/(1−r)), for δ and R small against M.

    The predictors (0.7, 0.4) and (0.85, 0.82) are theirs. The interval within 5 %, the waste within
    5 % of itself.
    """
    mtbf_s, save_s, restart_s = 1e6, 10.0, 60.0
    announced = recall / mtbf_s
    rates = Rates(0, (1 - recall) / mtbf_s, announced, announced * (1 - precision) / precision)
    costs = Costs(save_s, restart_s, notice_save_s=save_s)
    found = best_pattern(costs, rates, least_s=1e-3, least_copy_s=1)
    assert found.interval_s == pytest.approx(predicted_interval_s(save_s, mtbf_s, recall), rel=0.05)
    waste = predicted_waste(found.interval_s, save_s, save_s, restart_s, mtbf_s, recall, precision)
    assert 1 - shares(found, costs, rates).kept == pytest.approx(waste, rel=0.05)


def test_where_all_losses_are_announced_no_periodic_save_is_needed():
    assert predicted_interval_s(60, M, 1.0) == inf


def test_memory_saves_what_the_durable_tier_cannot():
    """A copy of a second against processes that fail four times in five."""
    one = best_pattern(Costs(60, 600), Rates(0.8 / M, 0.2 / M), least_s=1, least_copy_s=1)
    both = Costs(60, 600, 1, 600)
    two = best_pattern(both, Rates(0.8 / M, 0.2 / M), least_s=1, least_copy_s=1)
    gained = shares(two, both, Rates(0.8 / M, 0.2 / M)).kept
    assert gained > shares(one, Costs(60, 600), Rates(0.8 / M, 0.2 / M)).kept + 0.03
    assert two.copies > 5


@given(
    st.floats(1, 300), st.floats(0, 900), st.floats(0.1, 5), st.floats(500, 1e5),
    st.floats(0.05, 0.95),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_no_neighbour_of_the_best_pattern_keeps_more(save_s, restart_s, copy_s, mtbf_s, host_share):
    costs = Costs(save_s, restart_s, copy_s, restart_s / 2)
    rates = Rates((1 - host_share) / mtbf_s, host_share / mtbf_s)
    found = best_pattern(costs, rates, least_s=1e-2, least_copy_s=1e-2)
    best = shares(found, costs, rates).kept
    for factor in (0.5, 0.8, 1.25, 2):
        other = Pattern(found.interval_s * factor, found.copies)
        assert shares(other, costs, rates).kept <= best * (1 + 1e-6)
        copies = max(1, round(found.copies * factor))
        assert shares(Pattern(found.interval_s, copies), costs, rates).kept <= best + 2e-4


def test_given_intervals_stay():
    costs, rates = Costs(60, 600, 1, 600), Rates(0.8 / M, 0.2 / M)
    durable = best_pattern(costs, rates, least_s=1, least_copy_s=1, durable_interval_s=3600)
    assert durable.durable_interval_s == pytest.approx(3600)
    assert durable.copies > 1
    memory = best_pattern(costs, rates, least_s=1, least_copy_s=1, memory_interval_s=100)
    assert memory.interval_s == 100
    both = best_pattern(costs, rates, least_s=1, least_copy_s=1, durable_interval_s=3600,
                        memory_interval_s=100)  # fmt: skip
    assert both == Pattern(100, 36)


def test_a_write_in_the_background_is_a_longer_restart():
    """An attempt keeps what was saved so much before its end: S(R + d + i(τ+δ)) = S((R+d) + …)."""
    rates = Rates(host=1 / M)
    late = shares(Pattern(600), Costs(10, 300, write_s=200), rates)
    assert late.kept == pytest.approx(efficiency(600, 10, 500, M))
    assert late.restarts == pytest.approx(shares(Pattern(600), Costs(10, 300), rates).restarts)


def test_the_linear_formula_charges_time_that_is_not_there():
    """M=1080 s, save 1 s, restart 600 s: it says 0.414, and 0.5494 is right (Daly 2006)."""
    tau_s = exact_interval_s(1, 1080)
    assert tau_s == pytest.approx(45.8, abs=0.1)
    assert linear_efficiency(tau_s, 1, 600, 1080) == pytest.approx(0.414, abs=0.0005)
    assert efficiency(tau_s, 1, 600, 1080) == pytest.approx(0.5494, abs=0.0001)
    assert linear_efficiency(tau_s, 1, 2000, 1080) == 0


def test_what_cannot_go_on_keeps_nothing():
    hopeless = shares(Pattern(1e6), Costs(1, 1e6), Rates(host=1.0))
    assert (hopeless.kept, hopeless.lost) == (0, 1)
    assert shares(Pattern(10), Costs(1, 5), Rates()).kept == pytest.approx(10 / 11)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rates(-1.0), "a rate of -1"),
        (lambda: Costs(inf), "a cost of inf s"),
        (lambda: Pattern(0.0), "an interval of 0.0 s"),
        (lambda: Pattern(1.0, 0), "a pattern of 0"),
        (lambda: shares(Pattern(1.0, 2), Costs(), Rates()), "no memory tier"),
        (lambda: predicted_interval_s(1, 1, 2), "a recall of 2"),
        (lambda: predicted_waste(1, 1, 1, 1, 1, 0.5, 0), "a precision of 0"),
        (lambda: linear_efficiency(1, 1, 1, 0), "a time between failures of 0"),
        (lambda: two_level_intervals(-1, 1, 1, 1), "-1 s is not a time"),
    ],
)
def test_the_impossible_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
