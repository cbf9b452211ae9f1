"""A loop in a thread knows by when all that had come was read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast.link.thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    async def leave() -> None: ...

    thread = LoopThread("test", lambda _: None)
    yield thread
    thread.close(leave())


def test_while_the_loop_is_behind_what_comes_lies_unread(thread: LoopThread) -> None:
    ours, others = socket.socketpair()
    began, goes_on, has_read = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        thread.loop.add_reader(ours, read)
        began.set()
        goes_on.wait()

    def read() -> None:
        thread.loop.remove_reader(ours)
        has_read.set()

    with ours, others:
        thread.call(hang)
        began.wait()
        first_s = thread.unread_s()
        read_s = thread.read_s
        others.send(b"a word")
        assert 0 < first_s < thread.unread_s()
        assert thread.read_s == read_s
        goes_on.set()
        has_read.wait()
    while thread.unread_s():  # until it waits for what comes next
        assert thread.read_s >= read_s


def test_a_word_that_the_loop_was_not_given_yet_lies_unread() -> None:
    from holdfast.link.thread import _ReadingSelector

    ours, others = socket.socketpair()
    selector = _ReadingSelector(0.0)
    with ours, others:
        selector.register(ours, 1)
        selector._is_looking = True  # it is, but does not get the processor
        assert selector.unread_s() == 0
        others.send(b"a word")
        assert selector.unread_s() > 0
    selector.close()
