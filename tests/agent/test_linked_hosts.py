"""What the controller of several hosts says of those that do not come."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.agent.linked_hosts import LinkedHosts
from holdfast.controller.host_care import CarePolicy
from holdfast.core import events as ev
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.placement import place
from holdfast.core.notices.plan import NoticePolicy
from holdfast.link.server import LinkServer
from holdfast.link.values import Trust


class Loop:
    """As much of a `ControllerLoop`: an attempt waits for its hosts."""

    def __init__(self) -> None:
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.said: list[str] = []
        self.told: list[ev.Event] = []
        self.facts: list[Any] = []
        self.machine: Any = SimpleNamespace(course=SimpleNamespace(attempt=-1))

    def tell(self, event: ev.Event) -> None:
        self.told.append(event)

    def say(self, _: str, words: str) -> None:
        self.said.append(words)

    def lost(self, words: str) -> None:
        self.said.append(words)

    def record(self, fact: object) -> None:
        self.facts.append(fact)


@pytest.fixture
def waiting() -> Iterator[tuple[LinkedHosts, Loop]]:
    """The controller of three hosts, of which none has come."""
    loop, server = Loop(), LinkServer("lm", 1, Trust(b"s" * 40), hosts=3)
    of = (), NoticePolicy(), place(1, range(3)), CarePolicy()
    hosts = LinkedHosts(loop, server, Membership(3), *of)
    hosts._remote.when_complete(lambda: None)
    yield hosts, loop
    server.close()
    loop.selector.close()


def test_hosts_that_see_the_store_and_have_no_way_to_the_controller_are_told_of(
    waiting: tuple[LinkedHosts, Loop],
) -> None:
    hosts, loop = waiting
    for index in (0, 2):
        hosts._members.joined(time.monotonic_ns(), index, f"{index:032x}")
    hosts.unlinked({0})  # it has come meanwhile
    assert loop.said == []
    hosts.unlinked({1})
    hosts.unlinked({1})
    assert loop.said == [
        f"Host 1 found this store, and no way to this controller (port {hosts._server.port}): let "
        "all hosts of the run reach each other, on any port, with one --secret-file if there is one"
    ]
    assert (loop.told, hosts.has_given_up) == ([], False)


def test_a_controller_that_most_cannot_reach_leaves_the_run_to_them(
    waiting: tuple[LinkedHosts, Loop],
) -> None:
    hosts, loop = waiting
    hosts._members.joined(time.monotonic_ns(), 0, f"{0:032x}")
    hosts.unlinked({1, 2})
    (asked,) = loop.told
    assert isinstance(asked, ev.StopNowAsked)
    assert hosts.has_given_up


@pytest.mark.parametrize("attempt", [-1, 3])
def test_a_run_that_is_stopped_while_it_waits_for_hosts_has_that_on_record(
    waiting: tuple[LinkedHosts, Loop], attempt: int
) -> None:
    """No launch will tell of it; and before the first attempt all is a wait."""
    hosts, loop = waiting
    loop.machine.course.attempt = attempt
    hosts.close(None)
    assert [fact["kind"] for fact in loop.facts] == (["hosts"] if attempt >= 0 else [])
    assert all(fact["start_ns"] < fact["end_ns"] for fact in loop.facts)
