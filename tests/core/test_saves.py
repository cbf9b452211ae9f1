"""Save policies: when they are due, how they compose, what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.plan.optimum import efficiency
from holdfast.core.save.policy import (
    HOUR_S,
    IN_MEMORY,
    SECOND_NS,
    EverySeconds,
    EverySteps,
    Never,
    Optimal,
    SaveView,
    Tier,
)


def view(step=100, committed=0, age_s=0.0, **known) -> SaveView:
    now_ns = round(age_s * SECOND_NS)
    return SaveView(now_ns, step, committed, last_committed_ns=0, **known)


def measured(blocked_s=0.012, total_s=0.9, **known) -> dict[str, int]:
    return {
        "save_blocked_ns": round(blocked_s * SECOND_NS),
        "save_total_ns": round(total_s * SECOND_NS),
        **known,
    }


def test_every_steps_is_due_at_multiples():
    policy = EverySteps(100)
    due = [step for step in range(1, 401) if policy.decide(view(step, (step - 1) // 100 * 100))[0]]
    assert due == [100, 200, 300, 400]


def test_a_missed_multiple_is_made_up_for():
    assert EverySteps(100).decide(view(step=103, committed=99)) == (True, "every 100 steps")
    assert not EverySteps(100).decide(view(step=199, committed=103))[0]


def test_every_seconds():
    assert EverySeconds(60).decide(view(age_s=59.9)) == (False, "every 60 s")
    assert EverySeconds(60).decide(view(age_s=60))[0]


def test_never():
    assert Never().decide(view(age_s=1e9)) == (False, "only when asked")


@pytest.mark.parametrize("policy", [EverySteps(1), EverySeconds(1), Optimal()])
def test_nothing_is_due_where_nothing_is_new(policy):
    assert policy.decide(view(7, 7, age_s=1e6)) == (False, "step 7 is saved")


def test_either_and_both():
    either = EverySteps(1000) | EverySeconds(60)
    both = EverySteps(1000) & EverySeconds(60)
    assert either.decide(view(1000)) == (True, "every 1000 steps")
    assert either.decide(view(10, age_s=60)) == (True, "every 60 s")
    assert either.decide(view(10)) == (False, "every 1000 steps, or every 60 s")
    assert both.decide(view(1000, age_s=60)) == (True, "every 1000 steps, and every 60 s")
    assert both.decide(view(1000)) == (False, "every 60 s")
    assert both.decide(view(10, age_s=60)) == (False, "every 1000 steps")


@given(st.booleans(), st.booleans(), st.booleans())
def test_composition_is_logic(a, b, c):
    def when(due):
        return EverySteps(1) if due else Never()

    policy = (when(a) | when(b)) & when(c)
    assert policy.decide(view())[0] == ((a or b) and c)


def test_the_first_save_comes_early():
    policy = Optimal()
    assert not policy.decide(view(step=1, age_s=300))[0]  # it holds the compilation
    assert not policy.decide(view(step=2, age_s=29))[0]
    assert policy.decide(view(step=2, age_s=30))[0]
    assert not policy.decide(view(step=19, age_s=1))[0]
    due, reason = policy.decide(view(step=20, age_s=1))
    assert due
    assert reason == "the first save, after 30 s or 20 steps: it measures what a save costs"


def test_the_reason_is_the_rule_in_words():
    due, reason = Optimal().decide(view(age_s=40, **measured()))
    assert not due
    assert reason == "every 40 s: a save blocks 12 ms and takes 0.9 s, failures every 4 h"
    assert Optimal().decide(view(age_s=40.3, **measured()))[0]


def test_failures_shorten_the_interval_and_quiet_lengthens_it():
    policy = Optimal()
    hour_ns = 3600 * SECOND_NS
    plain = policy.interval_s(view(**measured()))
    bad = policy.interval_s(view(**measured(failures_seen=5, observed_ns=hour_ns)))
    good = policy.interval_s(view(**measured(failures_seen=0, observed_ns=100 * hour_ns)))
    assert bad < plain < good
    assert policy.mtbf_s(view(failures_seen=1, observed_ns=4 * hour_ns)) == 4 * HOUR_S
    assert policy.mtbf_s(view(failures_seen=5, observed_ns=2 * hour_ns)) == HOUR_S


def test_a_slow_store_is_not_saturated():
    seen = view(**measured(blocked_s=0.001, total_s=200))
    assert Optimal().interval_s(seen) == 800
    assert Optimal().why(seen).endswith("(8.8 min would be best, but writing would not keep up)")


def test_the_bounds_hold_and_are_told():
    cheap = view(**measured(blocked_s=1e-6, total_s=1e-5))
    assert Optimal().interval_s(cheap) == 1
    assert "more would not help" in Optimal().why(cheap)
    dear = view(**measured(blocked_s=60, total_s=100, observed_ns=400 * 3600 * SECOND_NS))
    assert Optimal().interval_s(dear) == HOUR_S
    assert "much to lose" in Optimal().why(dear)


def test_a_store_that_takes_hours_is_not_written_hourly():
    assert Optimal().interval_s(view(**measured(total_s=7200))) == 4 * 7200


@given(
    blocked_s=st.floats(1e-4, 100),
    extra_s=st.floats(0, 100),
    failures=st.integers(0, 50),
    observed_s=st.floats(0, 1e6),
)
def test_inside_the_bounds_no_other_interval_is_better(blocked_s, extra_s, failures, observed_s):
    policy = Optimal()
    total_s = blocked_s + extra_s
    seen = view(
        **measured(blocked_s, total_s),
        failures_seen=failures,
        observed_ns=round(observed_s * SECOND_NS),
    )
    interval_s = policy.interval_s(seen)
    assert interval_s >= total_s / policy.max_duty * (1 - 1e-6)
    mtbf_s = policy.mtbf_s(seen)
    cost_s = blocked_s + policy.background_share * extra_s
    low_s = max(policy.min_s, total_s / policy.max_duty)
    if not low_s * 1.001 < interval_s < policy.max_s * 0.999:
        return
    best = efficiency(interval_s, cost_s, 0, mtbf_s)
    for other_s in (interval_s * 0.8, interval_s * 1.25):
        assert efficiency(other_s, cost_s, 0, mtbf_s) <= best * (1 + 1e-9)


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.integers(0, 50))
def test_what_a_seal_takes_costs_as_much_as_what_a_copy_blocks(blocked_s, taken_s, failures):
    both = measured(blocked_s + taken_s, 3.0, failures_seen=failures)
    apart = measured(blocked_s, 3.0 - taken_s, failures_seen=failures)
    apart |= {"taken_ns": both["save_blocked_ns"] - apart["save_blocked_ns"]}
    plain = Optimal(max_duty=1.0, max_s=1e9)
    assert plain.interval_s(view(**apart)) == pytest.approx(plain.interval_s(view(**both)))


def test_what_a_seal_takes_is_told_where_it_counts():
    seen = view(**measured(0.004, 0.1), tier=Tier.MEMORY, step_time_ns=SECOND_NS)
    assert "checksums" not in IN_MEMORY.pace(seen).because
    because = IN_MEMORY.pace(seen._replace(taken_ns=5 * SECOND_NS // 1000)).because
    assert "a copy blocks 4 ms, its checksums take 5 ms of busy processors and" in because


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 3600), st.integers(0, 3600))
def test_being_due_never_ends_by_waiting(steps, committed, age_s, later_s):
    """The edge relies on it: it looks for the nearest boundary that is due by bisection."""
    for policy in (
        EverySteps(steps % 500 + 1),
        EverySeconds(17),
        Optimal(),
        EverySteps(100) & EverySeconds(9),
    ):
        now = view(committed + steps, committed, age_s=age_s)
        later = view(committed + steps + later_s, committed, age_s=age_s + later_s)
        assert policy.decide(later)[0] or not policy.decide(now)[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EverySteps(0), "every 0 steps"),
        (lambda: EverySeconds(0), "every 0 s"),
        (lambda: EverySeconds(float("nan")), "every nan s"),
        (lambda: Optimal(prior_weight=0), "prior of 0"),
        (lambda: Optimal(max_duty=0), "max_duty is 0"),
        (lambda: Optimal(min_s=10, max_s=1), "between 10 s and 1 s"),
        (lambda: Optimal(first_steps=0), "0 steps"),
    ],
)
def test_impossible_settings_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
