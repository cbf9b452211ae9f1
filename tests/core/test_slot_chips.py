"""How many chips an attempt's hosts have, where they need not all have as many."""

from __future__ import annotations

import pytest

from holdfast.core.events import CountedChips
from holdfast.core.hosts.chips import SlotChips, chips_of_slices


@pytest.mark.parametrize(
    ("said", "slots", "expected"),
    [
        ({}, (0, 1, 2), (8, 8)),  # each has a share of what the run was given
        ({}, (1, 2), (5, 8)),
        ({0: 16}, (0, 1, 2), (21, 21)),
        ({0: 16, 1: 4, 2: 1}, (0, 2), (17, 21)),
        ({0: 16, 1: 4}, (2, 2, 2), (2, 22)),  # ranks of one host
        ({0: 16}, (), (0, 21)),
    ],
)
def test_what_trains_and_what_the_run_has(
    said: dict[int, int], slots: tuple[int, ...], expected: tuple[int, int]
) -> None:
    chips = SlotChips(slots=3, total=8)
    for slot, number in said.items():
        chips.have(slot, number)
    assert chips.of(slots) == CountedChips(*expected)
    assert chips.are_said == bool(said)


def test_a_slot_has_what_its_last_host_had() -> None:
    chips = SlotChips(slots=2, total=2)
    chips.have(0, 8)
    assert chips.counted == CountedChips(9, 9)
    chips.train([0])
    assert chips.counted == CountedChips(8, 9)
    chips.have(0, 4)
    assert chips.counted == CountedChips(4, 5)
    chips.have(0, 0)  # another one that does not say
    assert chips.counted == CountedChips(1, 2)
    assert not chips.are_said


def test_of_slices() -> None:
    hosts = [("b", 4), ("a", 8), ("", None), ("b", 4), ("c", None)]
    assert chips_of_slices(hosts) == {"a": 8, "b": 8}
    assert chips_of_slices([("", 3)]) == {"": 3}
