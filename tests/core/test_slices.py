"""Hosts of one slice train together or not at all: who takes whose part when one is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.membership import (
    Assign,
    HostLimits,
    Lose,
    Membership,
    MemberState,
    Move,
    Tell,
)

S = 1_000_000_000
LIMITS = HostLimits(suspect_ns=2 * S, lost_ns=10 * S, gather_ns=60 * S)


def acts(moves: list[Move]) -> list[tuple[str, int, str]]:
    return [
        (type(one).__name__, one.slot, one.incarnation)
        for one in moves
        if isinstance(one, Assign | Lose)
    ]


def fleet(names: str, slots: int) -> Membership:
    """Hosts 0, 1, … of these slices, in the order of their numbers; "." is one without."""
    members = Membership(slots, len(names) - slots, LIMITS)
    for index, name in enumerate(names):
        members.joined(0, index, f"{index}", name.strip("."))
    return members


def slices_that_train(members: Membership) -> list[str]:
    hosts = (members.host_of(slot) for slot in range(members.slots))
    return [one.slice if one is not None else "-" for one in hosts]


def test_a_slice_of_spares_takes_the_place_of_a_broken_one() -> None:
    members = fleet("aabbcc", slots=4)
    moves = members.gone(S, "1", "it is gone")
    assert acts(moves) == [
        ("Lose", 1, "1"),
        ("Lose", 0, "0"),
        ("Assign", 0, "4"),
        ("Assign", 1, "5"),
    ]
    assert moves[-1] == Tell("info", "Slice c takes the place of slice a")
    assert slices_that_train(members) == ["c", "c", "b", "b"]
    members.joined(2 * S, 0, "0 again", "a")
    assert members.members["0 again"].state is MemberState.SPARE  # its slot is another slice's


def test_a_part_of_a_slice_replaces_nobody_of_another() -> None:
    members = fleet("aabbc", slots=4)
    assert acts(members.gone(S, "1", "it is gone")) == [("Lose", 1, "1")]
    assert members.missing == (1,)
    assert acts(members.joined(2 * S, 1, "1 again", "a")) == [("Assign", 1, "1 again")]


def test_a_spare_of_the_same_slice_takes_any_part_of_it() -> None:
    members = fleet("aaba", slots=3)
    assert acts(members.gone(S, "1", "it is gone")) == [("Lose", 1, "1"), ("Assign", 1, "3")]


def test_the_slice_is_replaced_when_the_last_host_of_another_has_come() -> None:
    members = fleet("aabb", slots=2)
    members.gone(S, "3", "it is gone")
    assert acts(members.gone(2 * S, "0", "it is gone")) == [("Lose", 0, "0")]
    moves = members.joined(3 * S, 3, "3 again", "b")
    assert acts(moves) == [("Lose", 1, "1"), ("Assign", 0, "2"), ("Assign", 1, "3 again")]


def test_a_slice_that_was_made_anew_by_another_name_has_its_own_slots() -> None:
    members = fleet("aabb", slots=4)
    members.gone(S, "2", "it is gone")
    members.gone(S, "3", "it is gone")
    assert acts(members.joined(2 * S, 2, "2 again", "b2")) == [("Assign", 2, "2 again")]
    assert acts(members.joined(2 * S, 3, "3 again", "b2")) == [("Assign", 3, "3 again")]


def test_without_slices_any_spare_takes_any_part() -> None:
    members = fleet("...", slots=2)
    assert acts(members.gone(S, "0", "it is gone")) == [("Lose", 0, "0"), ("Assign", 0, "2")]


def test_an_elastic_run_goes_on_with_whole_slices_alone() -> None:
    members = fleet("aabb", slots=4)
    members.gone(S, "3", "it is gone")
    assert members.whole == 2
    assert acts(members.break_slices(S)) == [("Lose", 2, "2")]
    assert members.close() == (0, 1)
    members.joined(2 * S, 2, "2 again", "b")
    back = [members.members["2 again"]]
    assert members.fillable(back) == 0
    members.joined(3 * S, 3, "3 again", "b")
    assert members.fillable([*back, members.members["3 again"]]) == 2
    assert len(acts(members.open(4 * S))) == 2
    assert members.close() == (0, 1, 2, 3)


def test_who_could_take_the_part_of_a_host() -> None:
    assert fleet("aabbc", slots=4).takers(0) == 0
    assert fleet("aabbcc", slots=4).takers(0) == 2
    assert fleet("aabba", slots=4).takers(0) == 1
    assert fleet("...", slots=2).takers(0) == 1


@given(st.data())
def test_no_slice_ever_trains_in_the_slots_of_two(data: st.DataObject) -> None:
    """Hosts come and go at random: whoever has the slots of one slice is of one slice."""
    size = data.draw(st.integers(1, 3), "hosts of a slice")
    slices = data.draw(st.integers(2, 4), "slices")
    training = data.draw(st.integers(1, slices - 1), "that train")
    names = "".join(chr(ord("a") + one) * size for one in range(slices))
    members = fleet(names, training * size)
    lives, at_ns = {index: f"{index}" for index in range(len(names))}, S
    for number in range(data.draw(st.integers(1, 20), "events")):
        at_ns += S
        index = data.draw(st.integers(0, len(names) - 1))
        for one in members.members.values():
            members.heard(at_ns, one.incarnation)
        for given_up in [i for i, name in lives.items() if not members.members[name].is_there]:
            if given_up != index:  # who was only given up joins as another one
                lives[given_up] = f"{given_up} at {number}"
                members.joined(at_ns, given_up, lives[given_up], names[given_up])
        if members.members[lives[index]].is_there:
            members.gone(at_ns, lives[index], "it is gone")
        for first in range(0, training * size, size):
            hosts = [members.host_of(slot) for slot in range(first, first + size)]
            found = Counter(one.slice for one in hosts if one is not None)
            assert len(found) <= 1, found
        spares = Counter(
            one.slice for one in members.members.values() if one.state is MemberState.SPARE
        )
        if members.missing:
            assert all(count < size for count in spares.values()), "a whole slice idles"
