"""Intervals, against a dumb oracle that paints every nanosecond."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.profiles.divide import Interval, divided, self_times, united, without

MOMENTS = 60
moment = st.integers(0, MOMENTS)
intervals = st.lists(st.tuples(moment, moment), max_size=8)
layers = st.fixed_dictionaries({"a": intervals, "b": intervals, "c": intervals})


def painted(found: list[Interval]) -> set[int]:
    return {at for start, end in found for at in range(start, end)}


@given(intervals)
def test_united_intervals_are_the_same_moments_apart_and_in_order(found: list[Interval]) -> None:
    together = united(found)
    assert painted(together) == painted(found)
    assert all(one[1] < two[0] for one, two in pairwise(together))


@given(intervals, intervals)
def test_what_is_taken_away_is_away(found: list[Interval], taken: list[Interval]) -> None:
    left = without(united(found), united(taken))
    assert painted(left) == painted(found) - painted(taken)
    assert left == united(left)


@given(st.lists(moment, min_size=2, max_size=6).map(sorted), layers)
def test_each_moment_belongs_to_the_first_layer_that_claims_it(
    edges: list[int], claims: dict[str, list[Interval]]
) -> None:
    sets = {name: painted(found) for name, found in claims.items()}
    expected = []
    for start, end in pairwise(edges):
        sums = dict.fromkeys((*claims, "rest"), 0)
        for at in range(start, end):
            sums[next((name for name, found in sets.items() if at in found), "rest")] += 1
        expected.append(sums)
    assert divided(edges, claims, "rest") == expected


@given(st.lists(moment, min_size=2, max_size=6).map(sorted), layers, st.randoms())
def test_the_order_of_events_does_not_matter_and_the_sum_is_the_window(
    edges: list[int],
    claims: dict[str, list[Interval]],
    chance: object,
) -> None:
    found = divided(edges, claims, "rest")
    assert [sum(one.values()) for one in found] == [end - start for start, end in pairwise(edges)]
    for one in claims.values():
        chance.shuffle(one)  # type: ignore[attr-defined]
    assert divided(edges, claims, "rest") == found


def test_an_exposed_collective_is_what_no_computation_covers() -> None:
    claims = {"compute": [(0, 10), (14, 20)], "collective": [(5, 16), (22, 24)]}
    assert divided([0, 30], claims, "idle") == [{"compute": 16, "collective": 6, "idle": 8}]


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = MOMENTS, depth: int = 3) -> list[Interval]:
    """Events as on one thread: one inside of another, or apart."""
    found, at = [], start
    while at < end and draw(st.booleans()):
        first = draw(st.integers(at, end - 1))
        last = draw(st.integers(first + 1, end))
        found.append((first, last))
        if depth:
            found += draw(nested(first, last, depth - 1))
        at = last
    return found


@given(nested())
def test_own_times_of_nested_events_sum_up_to_the_time_in_which_any_ran(
    events: list[Interval],
) -> None:
    assert sum(self_times(events)) == len(painted(events))


def test_what_is_inside_is_taken_from_what_is_right_around_it() -> None:
    assert self_times([(0, 100), (10, 60), (20, 30), (70, 80)]) == [40, 40, 10, 10]
