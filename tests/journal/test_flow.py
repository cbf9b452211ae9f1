"""A long write's flow: how far it is, when it is given up, and how it rests."""

from __future__ import annotations

import threading
import time

from holdfast.journal.flow import Flow


def work(cpu_s: float) -> None:
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass


def test_it_tells_how_far_it_is_and_goes_on_until_it_is_stopped() -> None:
    told: list[int] = []
    flow = Flow(told.append)
    assert flow.goes_on()
    assert flow.goes_on(7)
    assert flow.goes_on(5)
    flow.stop()
    assert not flow.goes_on(1)
    assert told == [7, 12, 13]


def test_it_rests_for_as_long_as_its_share_says() -> None:
    flow, began_s = Flow(share=0.2), time.monotonic()
    for _ in range(5):
        work(0.005)
        assert flow.goes_on(1)
    assert time.monotonic() - began_s >= 5 * 5 * 0.005


def test_nobody_waits_for_one_that_rests_when_it_is_stopped() -> None:
    flow = Flow(share=1e-9)
    ended: list[bool] = []

    def write() -> None:
        work(0.001)
        ended.append(flow.beside().goes_on(1) and flow.goes_on(1))

    writer = threading.Thread(target=write)
    writer.start()
    flow.stop()
    writer.join(60.0)
    assert ended == [False]
