"""The story of a restart: its phases add up, whatever order things come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.controller.restart_log import PHASES, RestartLog, RestartNotes
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.placement import place
from holdfast.core.run.state import Timer

RESUME = ev.Resume("0000-000000000004", 4, 0)


def broken(log: RestartLog) -> None:
    log.hear(ev.RankExited(110, 0, 1, 100, Exit(signal=9)))
    log.hear(ev.RankExited(115, 0, 0, 114, Exit(signal=9)))
    log.hear(ev.TreeGone(120, 0))
    log.hear(ev.Chosen(150, RESUME, "newest"))


def test_each_phase_lasts_until_its_moment():
    log = RestartLog()
    broken(log)
    log.ordered(2)
    log.hear(ev.OnRecord(170, 1))
    log.started(0, "")
    log.started(1, "train.py has changed")
    log.hear(ev.Launched(180, 1))
    log.hear(ev.Joined(200, 1, 0))
    log.hear(ev.Joined(220, 1, 1))
    attempt, story = log.take()
    assert attempt == 0
    assert list(story["phases_ns"]) == [name for name in PHASES if name != "wait"]
    assert list(story["phases_ns"].values()) == [10, 10, 30, 20, 10, 40]
    assert story["woken"] == [0]
    assert story["cold"] == {"1": "train.py has changed"}
    assert log.take() is None


def test_a_wait_before_the_restart_is_not_the_choice_of_its_checkpoint():
    log = RestartLog()
    log.hear(ev.RankExited(110, 0, 0, 100, Exit(code=1)))
    log.hear(ev.TreeGone(120, 0))
    log.hear(ev.TimerFired(8120, Timer.RESTART))
    log.hear(ev.Chosen(8130, RESUME, "newest"))
    log.ordered(1)
    log.hear(ev.OnRecord(8140, 1))
    log.hear(ev.Launched(8140, 1))
    log.hear(ev.Joined(8150, 1, 0))
    _, story = log.take()
    assert story["phases_ns"] == {
        "detect": 10, "drain": 10, "wait": 8000, "choose": 10, "record": 10, "launch": 0,
        "start": 10,
    }  # fmt: skip


def test_what_overlaps_is_not_counted_twice():
    """A rank may show itself before the last of them was started."""
    log = RestartLog()
    broken(log)
    log.ordered(1)
    log.hear(ev.OnRecord(140, 1))
    log.hear(ev.Joined(160, 1, 0))
    log.hear(ev.Launched(165, 1))
    _, story = log.take()
    assert story["phases_ns"]["record"] == 0
    assert sum(story["phases_ns"].values()) == 165 - 100


def test_a_restart_that_fails_begins_anew():
    log = RestartLog()
    broken(log)
    log.hear(ev.Launched(180, 1))
    log.hear(ev.RankExited(500, 1, 0, 490, Exit(code=1)))
    assert log.take() is None
    log.hear(ev.TreeGone(610, 1))
    log.ordered(1)
    log.hear(ev.OnRecord(615, 2))
    log.hear(ev.Launched(620, 2))
    log.hear(ev.Joined(700, 2, 0))
    attempt, story = log.take()
    assert attempt == 1
    assert sum(story["phases_ns"].values()) == 700 - 490


class Book:
    """A notebook that nobody reads."""

    def event(self, event: ev.Event) -> None: ...

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None: ...

    def fact(self, fact: Mapping[str, Any]) -> None: ...


def test_the_story_is_noted_once_when_all_ranks_are_there():
    told = []
    notes = RestartNotes(Book(), lambda attempt, _: told.append(attempt))
    broken(notes.log)
    notes.answered((act.Launch(1, RESUME, place(2, [0])),), 155)
    notes.event(ev.OnRecord(160, 1))
    notes.event(ev.Joined(170, 1, 1))
    notes.event(ev.Joined(175, 1, 0))
    notes.answered((), 175)
    assert told == []
    notes.event(ev.Launched(180, 1))
    for _ in range(2):
        notes.answered((), 180)
    assert told == [0]


def test_a_first_start_is_no_restart():
    log = RestartLog()
    log.hear(ev.Launched(10, 0))
    log.hear(ev.Joined(20, 0, 0))
    assert log.take() is None
