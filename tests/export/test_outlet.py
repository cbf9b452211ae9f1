"""An exporter whose target is away: bounded memory, counted drops, and nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.export import outlet as outlet_module
from holdfast.export.outlet import QUEUE, ExportLook, Outlet


class FakeTarget:
    """Takes looks while it is up; a delivery can be held."""

    name = "fake"

    def __init__(self) -> None:
        self.up = True
        self.held = threading.Event()
        self.held.set()
        self.got: list[float] = []
        self.closed = False

    def deliver(self, look: ExportLook) -> None:
        self.held.wait()
        if not self.up:
            raise ConnectionError("nobody is there")
        self.got.append(look.began_unix_s)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(outlet_module, "LAST_RETRY_S", 0.01)


def look(number: int) -> ExportLook:
    return ExportLook((), (), began_unix_s=float(number))


def test_all_is_delivered_in_order_and_the_end_is_clean() -> None:
    target, said = FakeTarget(), []
    outlet = Outlet(target, said.append)
    for number in range(10):
        outlet.put(look(number))
    assert outlet.close(60.0)
    assert target.got == [float(number) for number in range(10)]
    assert (target.closed, said, outlet.counts.sent, outlet.counts.dropped) == (True, [], 10, 0)


def test_the_queue_is_bounded_and_the_oldest_is_dropped_and_counted() -> None:
    target, said = FakeTarget(), []
    target.held.clear()
    outlet = Outlet(target, said.append)
    for number in range(QUEUE + 50):
        outlet.put(look(number))  # returns at once, though nothing is taken
    assert outlet.counts.waiting <= QUEUE
    assert outlet.counts.dropped >= 49
    target.held.set()
    assert outlet.close(60.0)
    assert target.got[-1] == QUEUE + 49
    assert outlet.counts.sent + outlet.counts.dropped == QUEUE + 50
    assert "samples were dropped" in said[-1]


@pytest.mark.real
def test_a_target_that_comes_back(eventually: Callable[..., object]) -> None:
    target, said = FakeTarget(), []
    target.up = False
    outlet = Outlet(target, said.append)
    outlet.put(look(1))
    eventually(lambda: outlet.counts.failures > 2)
    assert "ConnectionError: nobody is there" in outlet.counts.trouble
    target.up = True
    eventually(lambda: target.got == [1.0])
    eventually(lambda: not outlet.counts.trouble)
    assert outlet.close(60.0)
    assert len(said) == 2  # that it cannot, once, and that it can
    assert "again" in said[1]


def test_the_end_does_not_wait_for_a_target_that_is_away() -> None:
    target, said = FakeTarget(), []
    target.up = False
    outlet = Outlet(target, said.append)
    for number in range(3):
        outlet.put(look(number))
    assert not outlet.close(0.1)
    assert outlet.counts.dropped == 3
    assert "3 samples were dropped" in said[-1]


def test_what_fails_at_the_very_end_is_dropped_and_said() -> None:
    class Full(FakeTarget):
        def close(self) -> None:
            raise OSError("disk full")

    said: list[str] = []
    outlet = Outlet(Full(), said.append)
    outlet.put(look(1))
    assert not outlet.close(60.0)
    assert (outlet.counts.sent, outlet.counts.failures, outlet.counts.dropped) == (1, 1, 1)
    assert said == ["fake: OSError: disk full", "fake: 1 samples were dropped in all"]
