"""Ranks that do nothing any more: found, their stacks taken, and the attempt started again."""

from __future__ import annotations

import importlib.util

import pytest
from books import BEFORE, Books

pytestmark = pytest.mark.real

HANG_S = 10.0  # a rank that a busy machine keeps from its step does not hang


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", ["stops_itself", "holds_the_gil"])
def test_a_rank_that_hangs_is_ended(books: Books, fault: str, ranks: int) -> None:
    run = books.start(fault, ranks, "--hang", HANG_S)
    books.go_on()  # a rank that waits for a test would be taken for a hang as well
    books.ends(run, ranks)
    books.account(disruptions=1, done=BEFORE)
    story = books.incident()
    assert story["cause"] == "hang"
    assert story["rank"] == ranks - 1
    assert f"did {BEFORE}" in story["last_lines"]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="collectives come with torch")
def test_a_deadlock_in_a_collective_is_ended(books: Books) -> None:
    run = books.start("waits_in_a_collective", 2, "--hang", HANG_S)
    books.go_on()
    books.ends(run, 2)
    books.account(disruptions=1, done=BEFORE)
    assert books.incident()["cause"] == "hang"
