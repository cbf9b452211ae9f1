"""Who does what in a preflight, and what is made of the answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.preflight import (
    ANSWER_LIMIT_NS,
    HostPlace,
    PreflightAnswer,
    judge,
    plan,
)


def places(count: int) -> list[HostPlace]:
    return [HostPlace(n, n, f"i{n}", f"10.0.0.{n}", 100 + n) for n in range(count)]


def test_the_one_that_failed_exchanges_bytes_with_its_neighbours() -> None:
    orders = plan(1, "x", {2}, places(5))
    assert set(orders) == {"i1", "i2", "i3"}
    assert orders["i2"].checks
    assert {(one.index, one.port) for one in orders["i2"].dials} == {(1, 101), (3, 103)}
    assert not orders["i1"].checks
    assert orders["i1"].dials == ()


def test_two_hosts_are_one_pair_and_one_is_none() -> None:
    assert [one.index for one in plan(1, "x", {0}, places(2))["i0"].dials] == [1]
    assert plan(1, "x", {0}, places(1))["i0"].dials == ()


def test_those_that_failed_too_are_no_neighbours_where_others_are() -> None:
    orders = plan(1, "x", {1, 2}, places(4))
    assert {one.index for one in orders["i1"].dials} == {3, 0}
    assert {one.index for one in orders["i2"].dials} == {3, 0}
    both = plan(1, "x", {0, 1}, places(2))
    assert [one.index for one in both["i0"].dials] == [1]
    assert all(order.checks for order in both.values())


def test_a_host_that_has_told_no_address_is_left_out() -> None:
    hosts = [*places(2), HostPlace(2, 2, "i2")]
    assert [one.index for one in plan(1, "x", {0}, hosts)["i0"].dials] == [1]


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_whoever_is_dialled_is_told_to_answer(count: int, suspects: set[int]) -> None:
    orders = plan(1, "x", suspects, places(count))
    checked = {n for n in range(count) if f"i{n}" in orders and orders[f"i{n}"].checks}
    assert checked == suspects & set(range(count))
    for incarnation, order in orders.items():
        assert len(order.dials) <= 2
        for one in order.dials:
            assert f"i{one.index}" != incarnation
            assert f"i{one.index}" in orders


def test_who_says_nothing_has_failed_after_a_while() -> None:
    orders = plan(3, "x", {0, 1, 2}, places(3))
    answers = {
        "i0": PreflightAnswer(3, "", "all", 5),
        "i1": PreflightAnswer(3, "its clock stands still", "", 5),
        "i2": PreflightAnswer(2, "", "of the last one", 5),
    }
    found = judge(0, ANSWER_LIMIT_NS - 1, orders, answers)
    assert (set(found.passed), found.failed, found.waits) == (
        {"i0"},
        {"i1": "its clock stands still"},
        True,
    )
    found = judge(0, ANSWER_LIMIT_NS, orders, answers)
    assert not found.waits
    assert found.failed["i2"] == "it gave no answer within 30 s"
