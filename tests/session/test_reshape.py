"""What belongs to ranks, when there are more or fewer of them: the rules, as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.errors import DataTopologyChanged
from holdfast.session.reshape import Positions, reshape, resharded, same


def stored(rank: int, **data: Any) -> dict[str, Any]:
    return {"data": {"0": data}, "rng": {"words": np.array([rank])}, "session": {"bests": {"x": 1}}}


def test_a_rank_that_was_there_keeps_its_generators_and_a_new_one_its_own_seed() -> None:
    ranks = [stored(0, consumed=5), stored(1, consumed=5)]
    for rank in (0, 1):
        assert reshape(ranks, rank, 3)["rng"] == {"words": np.array([rank])}
    assert reshape(ranks, 2, 3)["rng"] == {}
    assert reshape(ranks, 0, 1)["rng"] == {"words": np.array([0])}


def test_generators_that_were_all_equal_stay_equal() -> None:
    ranks = [stored(7, consumed=5), stored(7, consumed=5)]
    assert reshape(ranks, 5, 6)["rng"] == {"words": np.array([7])}


def test_what_all_were_told_is_known_to_new_ranks() -> None:
    assert reshape([stored(0), stored(1)], 3, 4)["session"] == {"bests": {"x": 1}}


def positions(*by_rank: dict[str, Any], rank: int = 0, world_size: int = 1) -> Positions:
    return Positions(by_rank, rank, world_size)


def test_without_a_rule_a_position_is_refused() -> None:
    with pytest.raises(DataTopologyChanged, match=r"2 ranks and is read by 1.*stream 3.*reshard"):
        resharded(positions({"consumed": 4}, {"consumed": 4}), None, 3)


@pytest.mark.parametrize("one", [{"consumed": 4}, {"consumed": 4, "state": {"at": np.arange(3)}}])
def test_the_same_position(one: dict[str, Any]) -> None:
    assert resharded(positions(one, one, world_size=4), "same", 0) is one


def test_the_same_position_must_be_the_same() -> None:
    with pytest.raises(DataTopologyChanged, match="differ from rank to rank"):
        resharded(positions({"consumed": 4}, {"consumed": 5}), "same", 0)
    two = [{"consumed": 4, "state": {"at": np.array([n])}} for n in range(2)]
    with pytest.raises(DataTopologyChanged, match="differ from rank to rank"):
        resharded(positions(*two), "same", 0)


def test_a_function_makes_a_new_one() -> None:
    def rule(states: list[Any], rank: int, world_size: int) -> Any:
        return {"from": [state["at"] for state in states], "for": (rank, world_size)}

    two = [{"consumed": 4 + n, "state": {"at": n}} for n in range(2)]
    made = resharded(positions(*two, rank=2, world_size=3), rule, 0)
    assert made == {"consumed": 5, "state": {"from": [0, 1], "for": (2, 3)}}


def test_a_function_counts_batches_where_the_source_has_no_state() -> None:
    counts = positions({"consumed": 6}, {"consumed": 6}, world_size=3)
    made = resharded(counts, lambda done, _rank, ranks: sum(done) // ranks, 0)
    assert made == {"consumed": 4}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1, (2,)], [1, (2,)], True),
        ([1, 2], [1], False),
        (1, 1.0, False),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(4), False),
        (np.arange(3), np.arange(3.0), False),
        ({"a": np.array([1])}, {"a": np.array([2])}, False),
    ],
)
def test_same(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
