"""Going on with fewer slices: a table of cases, and a count by hand of what each way costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.elastic import (
    LaunchNow,
    Stay,
    TakeIn,
    View,
    WaitForSlices,
    before_launch,
    while_training,
)

MIN = 60_000_000_000
FIVE = {"wanted": 8, "least": 4, "restart_ns": 5 * MIN, "save_ns": MIN, "between_ns": 180 * MIN}


@pytest.mark.parametrize(
    ("there", "waits", "expected", "reason"),
    [
        (8, (), LaunchNow(), "all 8 slices are there"),
        (7, (60,), LaunchNow(), "on 7 of 8 slices: the next is expected in 60 min"),
        (
            7,
            (4,),
            WaitForSlices(4 * MIN),
            "7 of 8 slices are there, 8 in 4 min: a restart takes 5 min",
        ),
        (7, (), LaunchNow(), "on 7 of 8 slices: no more are expected"),
        (
            6,
            (2, 60),
            WaitForSlices(2 * MIN),
            "6 of 8 slices are there, 7 in 2 min: a restart takes 5 min",
        ),
        (
            3,
            (30, 20),
            WaitForSlices(20 * MIN),
            "3 of 8 slices are there, 4 in 20 min: 4 are needed",
        ),
        (3, (), WaitForSlices(None), "3 slices are there, and 4 are needed"),
        (2, (9,), WaitForSlices(None), "2 slices are there, and 4 are needed"),
    ],
)
def test_before_a_launch(there, waits, expected, reason) -> None:
    view = View(there=there, waits_ns=tuple(wait * MIN for wait in waits), **FIVE)
    assert before_launch(view) == (expected, reason)


@pytest.mark.parametrize(
    ("training", "there", "waits", "between", "expected", "reason"),
    [
        (7, 7, (60,), 180, Stay(), "no slice is back"),
        (7, 8, (), 180, TakeIn(), "a slice is back, and the run trains on 7"),
        (7, 8, (), 40, Stay(), "a slice is back; a restart with its save takes 6 min, and one"),
        (6, 8, (), 40, TakeIn(), "2 slices are back, and the run trains on 6"),
        (6, 7, (10,), 180, Stay(), "a slice is back, and more are expected in 10 min"),
        (6, 7, (90,), 180, TakeIn(), "a slice is back, and the run trains on 6"),
        (6, 7, (200,), 180, TakeIn(), "a slice is back, and the run trains on 6"),
    ],
)  # fmt: skip
def test_while_it_trains(training, there, waits, between, expected, reason) -> None:
    """8 slices that restart for 6 min lose 48 min of a slice: as much as one in 48 min."""
    known = {**FIVE, "between_ns": between * MIN}
    waits_ns = tuple(wait * MIN for wait in waits)
    decision, why = while_training(View(there=there, waits_ns=waits_ns, training=training, **known))
    assert (decision, why[: len(reason)]) == (expected, reason)


def views(*, runs: bool, is_free: bool = False) -> st.SearchStrategy[View]:
    @st.composite
    def drawn(draw: st.DrawFn) -> View:
        wanted = draw(st.integers(1, 6))
        there = draw(st.integers(0, wanted))
        waits = st.lists(st.integers(1, 40), max_size=wanted - there)
        cost = st.just(0) if is_free else st.integers(0, 12)
        return View(
            wanted=wanted,
            least=draw(st.integers(1, wanted)),
            there=there,
            waits_ns=tuple(draw(waits)),
            training=draw(st.integers(0, there)) if runs else 0,
            restart_ns=draw(cost),
            save_ns=draw(cost),
            between_ns=draw(st.integers(0, 200)),
        )

    return drawn()


def price(view: View, begins_ns: int, trains: int) -> int:
    """What it costs to begin then, on so many: every choice of later restarts is gone through.

    Nanosecond by nanosecond, of each slice that has come and does not train. `again_at`: the
    restarts; those who come after the last of them idle for as long as it takes on average.
    """
    comes = [0] * view.there + sorted(view.waits_ns)
    moments = sorted({max(begins_ns, at) for at in comes[trains:]})
    prices = []
    for chosen in range(2 ** len(moments)):
        again_at = [at for n, at in enumerate(moments) if chosen >> n & 1]
        cost = 0
        for number, at in enumerate(comes):
            taken = begins_ns
            if number >= trains:
                later = [again for again in again_at if again >= at]
                taken = later[0] if later else None
            if taken is None:
                cost += max(0, begins_ns - at) + view.between_ns
            else:
                cost += sum(1 for now in range(taken) if now >= at)
        for again in again_at:
            there = sum(max(begins_ns, at) <= again for at in comes)
            cost += there * (view.restart_ns + view.save_ns)
        prices.append(cost)
    return min(prices)


@given(views(runs=False))
def test_no_other_way_to_begin_costs_less(view: View) -> None:
    comes = [0] * view.there + sorted(view.waits_ns)
    ways = range(max(view.there, view.least), len(comes) + 1)
    prices = {
        trains: price(view, comes[trains - 1] + view.restart_ns, trains)
        for trains in ways
        if trains == view.there or comes[trains - 1] > 0
    }
    decision, _ = before_launch(view)
    if view.there == view.wanted:
        assert decision == LaunchNow()
    elif not prices:
        assert decision == WaitForSlices(None)
    elif isinstance(decision, LaunchNow):
        assert prices[view.there] == min(prices.values())
    else:
        least = min(prices, key=lambda trains: prices[trains])
        assert decision == WaitForSlices(comes[least - 1])


@given(views(runs=True))
def test_slices_are_taken_in_only_if_that_costs_no_more_than_to_stay(view: View) -> None:
    """A restart now, against none, if nothing more is expected."""
    decision, _ = while_training(View(**{**as_dict(view), "waits_ns": ()}))
    back = view.there - view.training
    now = view.there * (view.restart_ns + view.save_ns)
    assert isinstance(decision, TakeIn) == (back > 0 and now <= back * view.between_ns)


@given(views(runs=True, is_free=True))
def test_where_restarts_cost_nothing_nobody_waits(view: View) -> None:
    if view.there > view.training:
        assert isinstance(while_training(view)[0], TakeIn)
    if view.there >= view.least:
        assert isinstance(before_launch(View(**{**as_dict(view), "training": 0}))[0], LaunchNow)


def as_dict(view: View) -> dict[str, object]:
    return {name: getattr(view, name) for name in View.__slots__}


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 9},
        {"least": 0},
        {"there": 9},
        {"there": 3, "training": 4},
        {"waits_ns": (1,)},
        {"there": 7, "waits_ns": (-1,)},
        {"restart_ns": -1},
    ],
)
def test_what_cannot_be(wrong) -> None:
    with pytest.raises(ValueError, match=r"slices|not a time"):
        View(**{**FIVE, "there": 8, **wrong})


def test_what_only_all_slices_together_have_in_memory_is_worth_a_wait() -> None:
    view = View(there=7, waits_ns=(20 * MIN,), **FIVE)
    assert before_launch(view)[0] == LaunchNow()
    view = View(there=7, waits_ns=(20 * MIN,), redo_ns=15 * MIN, **FIVE)
    assert before_launch(view)[0] == WaitForSlices(20 * MIN)
    view = View(there=7, waits_ns=(500 * MIN,), redo_ns=15 * MIN, **FIVE)
    assert before_launch(view)[0] == LaunchNow()
