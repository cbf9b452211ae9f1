"""Who takes a lost machine's place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.spares import Instead, Repaired, SparePool


def test_a_spare_first_then_another_machine_and_where_there_is_none_the_same_one():
    spares = SparePool(ready=1)
    assert spares.lost() == (Instead.SPARE, "a spare takes its place")
    assert spares.lost() == (Instead.ANOTHER, "no spare is left: another machine is asked for")
    assert spares.lost(is_there_another=False)[0] is Instead.ITSELF


def test_a_repaired_machine_fills_a_place_and_else_is_a_spare_again():
    spares = SparePool(ready=1)
    spares.lost()
    assert spares.repaired(is_waited_for=False) == (Repaired.SPARE, "nobody waits for it")
    assert spares.ready == 1
    spares.lost(is_there_another=True)
    spares.lost(is_there_another=False)
    assert spares.repaired(is_waited_for=True)[0] is Repaired.PLACED


def test_a_machine_too_many_is_given_back():
    spares = SparePool()
    spares.lost()
    assert spares.repaired(is_waited_for=False) == (
        Repaired.GIVEN_BACK,
        "another one does its work",
    )
    assert (spares.ready, spares.asked_for) == (0, 0)


@given(st.integers(0, 3), st.lists(st.booleans(), max_size=30), st.integers(1, 8))
def test_there_are_never_more_machines_than_at_the_start(ready, moves, places):
    """Each lost machine is repaired at some time; those that wait are repaired or replaced."""
    spares, lost, waiting = (
        SparePool(ready),
        0,
        0,
    )  # waiting: for a machine that only a repair brings
    for is_loss in moves:
        if is_loss and lost < places:
            lost += 1
            waiting += spares.lost(is_there_another=False)[0] is Instead.ITSELF
        elif not is_loss and lost:
            lost -= 1
            waiting -= spares.repaired(is_waited_for=waiting > 0)[0] is Repaired.PLACED
        assert spares.ready + lost - waiting == ready
