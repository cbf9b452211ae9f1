"""A plan's curves: through the plan's own point, and what an independent plan says elsewhere."""

from __future__ import annotations

from math import expm1
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sim.plan import plan
from holdfast.sim.plan_curves import Curves, at_scale, curves
from holdfast.sim.plan_input import Question, parsed, question_of
from holdfast.sim.plan_model import outlook

DAY_H = 24


def asked(**given: Any) -> Question:
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return question_of(parsed(named.items(), "--"))


def drawn(**given: Any) -> Curves:
    return curves(asked(**given))


FLEET = {"hosts": 2048, "chips_per_host": 8, "failures_per_1000_node_days": 3.79}
TIERS = {
    **FLEET, "host_share": 0.8, "memory_copy": 2, "save_write": "30s", "restart": "5min",
    "repair": "1d", "reschedule": "1h", "spares": 8,
}  # fmt: skip


def test_goodput_against_the_interval_by_the_formulas_themselves():
    """Daly's exact one, and the linear one, written down anew."""
    mtbf_s, save_s, restart_s = 11_124.0, 60.0, 600.0
    (curve,) = drawn(mtbf=mtbf_s, save_stall=save_s, restart=restart_s).intervals
    for point in curve.points:
        tau_s = point.interval_s
        exact = tau_s / (
            mtbf_s * (1 + expm1(restart_s / mtbf_s)) * expm1((tau_s + save_s) / mtbf_s)
        )
        period_s = tau_s + save_s
        linear = tau_s / period_s * (1 - (restart_s + period_s / 2) / mtbf_s)
        assert point.goodput == pytest.approx(exact, rel=1e-9)
        assert point.first_order == pytest.approx(max(0.0, linear), abs=1e-9)
    assert curve.best.interval_s == pytest.approx(1115.7, rel=0.03)
    assert curve.points[0].interval_s < curve.best.interval_s / 20
    assert curve.points[-1].interval_s > curve.best.interval_s * 20


@pytest.mark.parametrize(
    "question",
    [
        asked(mtbf="3h", save_stall=60, interval="1h"),
        asked(mtbf="3h", save_stall=0, restart=60),
        asked(mtbf="3h", save_stall=60, weibull=0.7),
        asked(**TIERS),
        asked(**TIERS, memory_interval="10min", interval="1h"),
        asked(mtbf="5min", restart="10min", save_stall=5),
    ],
)
def test_every_curve_goes_through_the_plan(question):
    answer, found = plan(question), curves(question)
    for curve, best_s, planned_s in zip(
        found.intervals,
        (answer.best_interval_s, answer.best_memory_interval_s),
        (answer.interval_s, answer.memory_interval_s),
        strict=False,
    ):
        assert curve.planned.interval_s == planned_s
        assert curve.planned.goodput == pytest.approx(answer.goodput, abs=1e-6)
        if planned_s == best_s:
            assert curve.best.goodput == pytest.approx(answer.best_goodput, abs=1e-6)
        assert {curve.best, curve.planned} <= set(curve.points)
        assert max(point.goodput for point in curve.points) <= curve.best.goodput + 1e-3
        assert [p.interval_s for p in curve.points] == sorted({p.interval_s for p in curve.points})
    (here,) = (point for point in found.scale if point.factor == 1)
    assert here.goodput == pytest.approx(answer.best_goodput, abs=1e-6)
    assert here.goodput_as_planned == pytest.approx(answer.goodput, abs=1e-6)
    (cost,) = (point for point in found.cost if point.factor == 1)
    lost = (1 - answer.goodput) * answer.chips * DAY_H
    assert cost.by_failures + cost.save == pytest.approx(lost, rel=1e-6)
    for point in found.spares:
        for row in answer.spares:
            if row.spares == point.spares:
                assert point.goodput == pytest.approx(row.goodput, abs=1e-9)


@given(factor=st.integers(1, 8), spares=st.integers(0, 12))
@settings(max_examples=25)
def test_more_hosts_are_what_a_plan_for_them_says(factor, spares):
    """As many times the hosts and spares, planned for by their own number."""
    given_ = {**TIERS, "spares": spares}
    larger = {**given_, "hosts": 2048 * factor, "spares": spares * factor}
    scaled = at_scale(asked(**given_), factor)
    assert scaled.goodput == pytest.approx(outlook(asked(**larger)).goodput, rel=1e-9)


def test_what_rare_failures_cost_grows_with_the_square_of_the_scale():
    found = drawn(mtbf="300d", hosts=512, save_stall=1, restart="10min", interval="1h")
    (one,) = (point for point in found.cost if point.factor == 1)
    (two,) = (point for point in found.cost if point.factor == 2)
    assert two.by_failures / one.by_failures == pytest.approx(4, rel=0.01)
    assert two.save / one.save == pytest.approx(2, rel=0.01)


def test_a_part_of_a_spare_is_worth_its_part():
    """With one spare to four times the scale, goodput bends at whole spares and never jumps."""
    question = asked(**{**TIERS, "spares": 1})
    near = [at_scale(question, factor).goodput for factor in (0.999, 1, 1.001)]
    assert near[0] > near[1] > near[2]
    assert near[0] - near[2] < 0.01
    goodputs = [point.goodput_as_planned for point in curves(question).scale]
    assert goodputs == sorted(goodputs, reverse=True)


def test_idle_hosts_are_paid_for():
    found = drawn(**TIERS)
    best = plan(asked(**TIERS)).best_spares
    for point in found.spares:
        assert point.per_host_paid_for == pytest.approx(
            point.goodput * 2048 / (2048 + point.spares)
        )
    assert max(found.spares, key=lambda p: p.per_host_paid_for).spares == best
    assert drawn(mtbf="3h").spares == ()
