"""When the controller's journal is written: before what comes of an input, and once a turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.controller.journal import ControllerJournal
from holdfast.controller.replay import inputs
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hang.deadline import OFF, HangPolicy
from holdfast.core.save import events as news
from holdfast.journal.clocks import RunClock, read_clock_pair
from holdfast.journal.facts.controllers import Controllers
from holdfast.journal.facts.followed import FollowedJournal
from holdfast.journal.layout import CONTROLLER_RANK, Identity
from holdfast.journal.reader import read_journal
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.journal.writer import JournalWriter

S = 1_000_000_000


def of_ranks(ranks: int) -> list[ev.Event]:
    told: list[ev.Event] = []
    for rank in range(ranks):
        told.append(ev.Heard(7, 1, news.Snapped(7, rank, 3, 20)))
        told.append(ev.Heard(7, 1, news.Progress(7, rank, 20)))
        told.append(ev.SaveTook(7, 1, 5))
    return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "controller-000001.hfj"


@pytest.fixture
def journal(path: Path) -> ControllerJournal:
    identity = Identity("night", 1, "abc", 0, "host", CONTROLLER_RANK, "boot")
    return ControllerJournal(JournalWriter.create(path, identity))


def test_thousands_of_inputs_that_lead_to_nothing_are_one_system_call(
    journal: ControllerJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = of_ranks(1000)
    write, writes = os.write, []
    monkeypatch.setattr(os, "write", lambda fd, data: (writes.append(fd), write(fd, data))[1])
    for event in told:
        journal.event(event)
        journal.answered((), 7)
    journal.seen(8)
    assert len(writes) == 1
    journal.event(progress := ev.Heard(8, 1, news.Progress(8, 0, 21)))
    journal.seen(9)
    assert len(writes) == 1  # that is a record without text
    assert list(inputs(read_journal(path))) == [*told, progress]


def test_how_often_a_job_was_requeued_is_known_from_its_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunStore(tmp_path).create("lm")
    folder.journal_dir.mkdir()
    boottime_ns, unix_ns = read_clock_pair()
    # A controller that is started again within one start of the job says the same again.
    for epoch, start in enumerate(("17.0", "17.1", "17.2", "17.2", "23.0", "", "a.b"), 1):
        identity = ControllerJournal.identity(folder, epoch, f"inc{epoch}")
        path = folder.journal_dir / f"{epoch}.hfj"
        made = ControllerJournal(JournalWriter.create(path, identity))
        pair = boottime_ns + epoch * S, unix_ns + epoch * S
        monkeypatch.setattr("holdfast.controller.journal.read_clock_pair", lambda pair=pair: pair)
        made.begun_by(start)
        made.close()
    jobs = load_run(folder.path).facts.controllers.jobs
    assert {job: one.restarts for job, one in jobs.items()} == {"17": 2, "23": 0}
    assert round((jobs["17"].at_ns - unix_ns) / S) == 3


def test_an_input_is_written_before_what_comes_of_it_is_done(
    journal: ControllerJournal, path: Path
) -> None:
    told = of_ranks(2)
    for event in told:
        journal.event(event)
        journal.answered((), 7)
    told.append(ev.StopNowAsked(9, "SIGQUIT"))
    journal.event(told[-1])
    journal.answered((act.Kill("stop"),), 9)
    assert list(inputs(read_journal(path))) == told


@pytest.mark.parametrize(
    "hang", [HangPolicy(), HangPolicy(step_ns=400 * S), HangPolicy(floor_ns=900 * S), OFF]
)
def test_what_counts_as_a_hang_is_stated_with_the_run(
    journal: ControllerJournal, path: Path, tmp_path: Path, hang: HangPolicy
) -> None:
    journal.opened(RunStore(tmp_path).create("r"), 2, hang=hang)
    followed, known = FollowedJournal(path, RunClock()), Controllers()
    known.add(followed)
    for statement in followed.poll().statements:
        list(known.take(followed, statement))
    assert known.hang == hang
