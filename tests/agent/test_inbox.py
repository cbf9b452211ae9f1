"""What other threads leave for a loop: none is lost, and the loop is woken while any waits."""

from __future__ import annotations

import select
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.inbox import WATCHED, Inbox, leave_until_watched, watch_signals
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN


@pytest.fixture
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in WATCHED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize(
    ("also", "expected"),
    [((), [signal.SIGTERM]), ((signal.SIGHUP,), [signal.SIGTERM, signal.SIGHUP])],
)
def test_a_hangup_that_is_ignored_stays_so(also: tuple[int, ...], expected: list[int]) -> None:
    """`nohup holdfast run …`: who logs out does not stop the run. A source may want it still."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    arrived: list[int] = []
    leave_until_watched()
    watch_signals(arrived.append, also)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    assert arrived == expected


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_notice_before_anything_runs_asks_for_another_start(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    leave_until_watched()
    with pytest.raises(SystemExit) as left:
        signal.raise_signal(number)
    assert left.value.code == EXIT_SAVED_START_ME_AGAIN
    name = signal.Signals(number).name
    assert capfd.readouterr().err == f"holdfast: {name}: nothing runs yet; start it again\n"
