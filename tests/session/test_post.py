"""The post and a key-value store that does not answer: said once, and tried seldom."""

from __future__ import annotations

import queue
import threading

import pytest

from holdfast.errors import HoldfastError
from holdfast.session import post as module
from holdfast.session.post import Post
from holdfast.session.registers import ChannelError


class SickChannel:
    """A store that answers or does not, as `is_sick` says; each write to it is counted."""

    name = "somebody"

    def __init__(self):
        self.is_sick = False
        self.writes = threading.Semaphore(0)

    def write(self, key, value):
        del key, value
        self.writes.release()
        if self.is_sick:
            raise ChannelError("no route to it")

    def read(self, keys):
        return dict.fromkeys(keys, b"")


@pytest.fixture
def posted(monkeypatch):
    """A post whose store is tried at once again, and its channel."""
    monkeypatch.setattr(module, "GONE_S", 0.001)
    monkeypatch.setattr(module, "LOST_LIMIT_NS", 0)
    channel = SickChannel()
    post = Post(channel, 2, lambda: None)
    yield post, channel
    channel.is_sick = False
    assert post.close(60.0)


def _tries(channel, times):
    for _ in range(times):
        assert channel.writes.acquire(timeout=60.0)


def test_a_store_that_does_not_answer_is_said_once_and_its_return_too(posted, monkeypatch):
    post, channel = posted
    said = queue.Queue()
    monkeypatch.setattr(module, "say", said.put)
    channel.is_sick = True
    post.put("key", b"1")
    assert said.get(timeout=60.0) == (
        "Nothing can be saved at present: the key-value store of somebody does not answer (no "
        "route to it): the process that serves it has ended, most likely (the launcher, or rank 0)"
    )
    with pytest.raises(HoldfastError, match=r"does not answer \(no route to it\)"):
        post.check()
    _tries(channel, 4)
    assert said.empty()
    channel.is_sick = False
    assert said.get(timeout=60.0) == "The key-value store of somebody answers again"
    post.check()
    assert post.close(60.0)
    assert said.empty()


def test_what_is_put_meanwhile_waits_for_the_next_try(posted, monkeypatch):
    post, channel = posted
    monkeypatch.setattr(module, "GONE_S", 3600.0)
    channel.is_sick = True
    post.put("key", b"1")
    _tries(channel, 1)
    for number in range(100):
        post.put(f"key {number}", b"1")
    assert post.close(60.0)
    assert channel.writes._value == 1  # the last, when it is closed
