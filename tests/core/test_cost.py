"""What an event costs the core does not grow with the ranks that it does not speak of.

Calls are counted, of Python's functions and of those in C: no clock, so that a busy machine changes
nothing. `bench/core.py` tells the time.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.run.machine import RunMachine, RunPolicy, Timer
from holdfast.core.save import events as news
from holdfast.core.save.policy import EverySeconds

SECOND = 10**9
NOW = 3 * SECOND
STEP = 2  # the last that all have done


def running(ranks: int) -> RunMachine:
    hourly = EverySeconds(3600)
    machine = RunMachine(RunPolicy(ranks, hourly, hourly))
    for event in (
        ev.Opened(0, 0),
        ev.Chosen(0, ev.Resume(None, 0, None), "from scratch"),
        ev.OnRecord(0, 0),
        ev.Launched(0, 0),
    ):
        machine.handle(event)
    for rank in range(ranks):
        machine.handle(ev.Joined(0, 0, rank))
    for step in range(1, STEP + 1):
        for rank in range(ranks):
            machine.handle(heard(news.Progress(step * SECOND, rank, step)))
    return machine


def heard(what: news.Event) -> ev.Heard:
    return ev.Heard(what.at_ns, 0, what)


def saving(ranks: int) -> RunMachine:
    """Epoch 1 is ordered at the next step."""
    machine = running(ranks)
    machine.handle(ev.SaveAsked(NOW, "a test"))
    return machine


def calls_of(machine: RunMachine, event: ev.Event) -> int:
    count = 0

    def called(_: FrameType, what: str, __: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    gc.disable()  # what others have put into `gc.callbacks` would be counted
    sys.setprofile(called)
    try:
        machine.handle(event)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize(
    ("begin", "event"),
    [
        (running, heard(news.Progress(NOW, 3, STEP + 1))),
        (running, ev.Joined(NOW, 0, 3)),
        (running, ev.RankExited(NOW, 0, 3, NOW, Exit(signal=9))),
        (running, ev.RankExited(NOW, 0, 3, NOW, Exit(code=0, finished=True))),
        (running, ev.Noticed(NOW, Notice("a source", NoticeAction.TERMINATE, NOW))),
        (running, ev.TimerFired(NOW, Timer.SAVES)),
        (running, ev.SaveAsked(NOW, "a test")),
        (running, ev.StopAsked(NOW, "a test", None, notice=False)),
        (saving, heard(news.Taken(NOW, 3, 1, STEP + 1, None))),
        (saving, heard(news.Snapped(NOW, 3, 1, STEP + 1))),
        (saving, heard(news.Durable(NOW, 3, 1, STEP + 1))),
        (saving, ev.RankExited(NOW, 0, 3, NOW, Exit(signal=9))),
    ],
    ids=lambda part: type(getattr(part, "news", part)).__name__,
)
def test_an_event_costs_as_much_among_a_thousand_ranks_as_among_ten(begin, event) -> None:
    assert calls_of(begin(1000), event) == calls_of(begin(10), event) > 3
