"""What other threads leave for a loop: none is lost, and the loop is woken while any waits."""

from __future__ import annotations

import select

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.inbox import Inbox


def is_ready(inbox: Inbox[int]) -> bool:
    return bool(select.select([inbox], [], [], 0)[0])


@given(st.lists(st.integers(0, 3), max_size=20))
def test_all_are_taken_in_order_and_nothing_wakes_the_loop_afterwards(puts: list[int]) -> None:
    inbox: Inbox[int] = Inbox()
    put, taken = 0, list[int]()
    for count in puts:
        for _ in range(count):
            inbox.put(put)
            put += 1
        assert is_ready(inbox) == (len(taken) < put)
        taken += inbox.take()
        if len(taken) == put and count == 0:
            assert not is_ready(inbox)
    taken += inbox.take()
    taken += inbox.take()
    assert taken == list(range(put))
    assert not is_ready(inbox)
    inbox.close()


def test_what_is_left_while_others_are_taken_wakes_the_loop() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    for number in inbox.take():
        if number < 3:
            inbox.put(number + 1)
    assert is_ready(inbox)  # what was taken just now has rung for itself
    assert list(inbox.take()) == []
    assert not is_ready(inbox)
    inbox.close()


def test_a_pipe_that_is_full_wakes_as_well() -> None:
    inbox: Inbox[int] = Inbox()
    many = 70_000  # more than a pipe holds
    for number in range(many):
        inbox.put(number)
    assert list(inbox.take()) == list(range(many))
    assert list(inbox.take()) == []
    assert not is_ready(inbox)
    inbox.put(1)
    assert is_ready(inbox)
    assert list(inbox.take()) == [1]
    inbox.close()
