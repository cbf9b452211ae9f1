"""Two ranks that nobody supervises, whatever framework joins them: what they have to agree on.

The same tests for JAX and for PyTorch. Nothing in them depends on the framework beyond the store
through which the ranks talk, so CI asks them of JAX, whose processes start in half the time;
`make faults` of both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from pairs import (
    Pair,
    ends,
    finals,
    goes_on,
    holds_at,
    nothing_of,
    starts,
    stop_is_ordered,
)
from processes import EXIT_SAVED, FAR, House

from holdfast.agent.launch import free_ports

FULL = os.environ.get("FAULTS") == "full"


class Together:
    """The tests; a subclass sets `straight`. The fixture `pair` is its module's."""

    straight: Callable[[int], list[str]]
    """The digests after so many steps that nothing disturbs."""

    @pytest.mark.parametrize("stuck", [0, 1] if FULL else [0])
    def test_at_the_deadline_all_are_gone(self, house: House, pair: Pair, stuck: int) -> None:
        """One rank never comes to the boundary: what is durable already is what is kept."""
        ranks, _ = pair.trained(HOLD_AT_THE_STOP=stuck, HOLDFAST_GRACE_S=10)
        saved = house.saved_step()
        ranks[1].send(signal.SIGTERM)
        house.allow(FAR)
        held = holds_at(ranks[stuck])
        for process in ranks:
            process.wait(EXIT_SAVED)
        nothing_of(held, house, saved)
        goes_on(pair.run(saved + 20), saved)

    def test_both_ask_for_one_save(self, house: House, pair: Pair) -> None:
        pair.run(9, TAG_AT=6, HOLDFAST_SAVE_EVERY_STEPS=1000)
        assert [int(folder.name.split("-")[1]) for folder in house.sets()] == [6, 9]

    def test_a_set_that_one_rank_cannot_read_is_passed_over_by_both(
        self, house: House, pair: Pair
    ) -> None:
        pair.run(4)
        pair.run(8)
        newest = house.sets()[-1] / "rank-00001.safetensors"
        data = bytearray(newest.read_bytes())
        data[-1] ^= 1
        newest.write_bytes(data)
        outputs = pair.run(9)
        assert starts(outputs) == [4, 4]
        assert finals(outputs) == self.straight(9)

    def test_ranks_of_two_names_are_told_so(self, pair: Pair) -> None:
        (port,) = free_ports(1)
        one = pair.rank(0, port, 3, HOLDFAST_NAME="left")
        other = pair.rank(1, port, 3, HOLDFAST_NAME="right")
        for process in (one, other):
            process.wait()
            assert (
                "give all ranks the same name" in process.text or "rank 1 has left" in process.text
            )
        assert "of run 'right', and rank 0 of run 'left'" in one.text + other.text

    def test_ranks_of_two_stores_are_told_so(self, house: House, pair: Pair) -> None:
        (port,) = free_ports(1)
        one = pair.rank(0, port, 3)
        other = pair.rank(1, port, 3, HOLDFAST_STORE=house.folder / "elsewhere")
        one.wait()
        other.wait()
        assert "all ranks need one run store" in other.text

    def test_a_rank_that_dies_while_another_waits_for_it(self, house: House, pair: Pair) -> None:
        """The other has copied the ordered step and waits for the set: it leaves, with 75."""
        ranks, _ = pair.trained(HOLD_AT_THE_STOP=1)
        ranks[0].send(signal.SIGTERM)
        house.eventually(stop_is_ordered)  # before a rank can pass the step by
        house.allow(FAR)
        held = holds_at(ranks[1])
        saved = house.saved_step()
        ranks[1].send(signal.SIGKILL)
        ranks[0].wait(EXIT_SAVED)
        nothing_of(held, house, saved)
        (end,) = ends(house)
        assert end["cause"] == "preempted"
        outputs = pair.run(saved + 20)
        goes_on(outputs, saved)
