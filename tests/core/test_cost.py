"""What an event costs the core does not grow with the ranks that it does not speak of.

Calls are counted, of Python's functions and of those in C: no clock, so that a busy machine changes
nothing. `bench/core.py` tells the time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.run.machine import RunMachine, RunPolicy, Timer
from holdfast.core.save import events as news
from holdfast.core.save.policy import EverySeconds
from holdfast.core.save.ranks import RankAnswers

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


def calls_of(do: Callable[[], object]) -> int:
    count = 0

    def called(_: FrameType, what: str, __: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    gc.disable()  # what others have put into `gc.callbacks` would be counted
    sys.setprofile(called)
    try:
        do()
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
    many, few = (calls_of(partial(begin(ranks).handle, event)) for ranks in (1000, 10))
    assert many == few > 3


@pytest.mark.parametrize(
    "fact",
    [
        None,
        ev.RankExited(NOW, 0, 2, NOW, Exit(signal=9)),
        ev.TreeGone(NOW, 0),
        ev.Sealed(NOW, 0, 1, 5, 0),
        ev.Flushing(NOW, 0, 1, 5, 10),
        ev.Flushed(NOW, 0, 2, 1, 5, of_ranks=2),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_report_costs_as_much_among_a_thousand_hosts_as_among_ten(fact: ev.Event | None) -> None:
    def heard_of_host_2(hosts: int) -> int:
        reader, order = ReportReader(hosts, grace_ns=0), HostOrder()
        order.want(act.Launch(0, ev.Resume(None, 0, None), place(hosts, range(hosts))))
        order.want(act.Seal(0, 1, 5, 0))
        order.want(act.Flush(0, 1, 5, 0, urgent=False, why=""))
        reader.ordered(order, 0)
        reports = [HostReport() for _ in range(hosts)]
        for number, report in enumerate(reports):
            report.begin(0, 0, 1)
            report.note(ev.Launched(0, 0))
            report.number = 1
            reader.read(number, report, 0, 0)
        report = reports[2]
        report.number, report.ranks = 2, (RankState(True, RankAnswers(step=1)),)
        if fact is not None:
            report.note(fact)
        return calls_of(lambda: reader.read(2, report, NOW, 0))

    assert heard_of_host_2(1000) == heard_of_host_2(10) > 3
