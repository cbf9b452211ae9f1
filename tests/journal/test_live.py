"""Live journals: what a report of the same host reads is what was written, to the last record."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.journal.attempts import create_attempt
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.layout import Identity
from holdfast.journal.live import live_journals
from holdfast.journal.replicate import Replicator
from holdfast.journal.scratch import scratch_dir
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    folder = RunStore.at(str(tmp_path / "store")).open("demo", command=("train",))
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    return folder


def who(attempt: int = 0) -> Identity:
    return Identity("demo", attempt, "rank-of-it", 0, os.uname().nodename, 0, boot_id())


def steps(writer: JournalWriter, first: int, last: int) -> None:
    for step in range(first, last + 1):
        writer.record_step(step)


def live_file(folder: RunFolder, attempt: int = 0) -> Path:
    place = scratch_dir(folder.scratch_key) / f"attempt-{attempt:04d}"
    place.mkdir(exist_ok=True)
    return place / "rank-00000.hfj"


def steps_in_report(capsys: pytest.CaptureFixture[str]) -> int:
    with pytest.raises(SystemExit):
        main(["report", "demo", "--json"])
    return json.loads(capsys.readouterr().out)["steps_kept"]


def test_a_report_counts_what_was_not_brought_home_yet(folder, capsys):
    live = live_file(folder)
    stored = folder.attempt_journal_dir(0) / live.name
    with JournalWriter.create(live, who()) as writer:
        writer.begin_step(1, now_ns())
        steps(writer, 1, 3)
        Replicator(live, stored).sync()
        steps(writer, 4, 9)
        assert live_journals(folder) == {stored: live}
        assert steps_in_report(capsys) == 9
    live.unlink()
    assert steps_in_report(capsys) == 3, "without it there is what the store has"


def test_a_journal_that_nobody_has_copied_yet_is_read(folder, capsys):
    live = live_file(folder)
    with JournalWriter.create(live, who()) as writer:
        writer.begin_step(1, now_ns())
        steps(writer, 1, 2)
        assert steps_in_report(capsys) == 2


def test_another_process_s_leavings_are_left_alone(folder):
    """The same attempt's place in the store holds another incarnation's journal."""
    live = live_file(folder)
    other = dataclasses.replace(who(), incarnation="another")
    JournalWriter.create(folder.attempt_journal_dir(0) / live.name, other).close()
    JournalWriter.create(live, who()).close()
    JournalWriter.create(live_file(folder, attempt=7), who(attempt=7)).close()  # not on record
    (live.parent / "rank-00001.hfj").write_bytes(b"rubbish")
    assert live_journals(folder) == {}


def test_an_empty_file_in_the_store_is_nobodys_journal(folder):
    """It was made there, and then the disk was full."""
    live = live_file(folder)
    stored = folder.attempt_journal_dir(0) / live.name
    stored.touch()
    JournalWriter.create(live, who()).close()
    assert live_journals(folder) == {stored: live}


def test_no_scratch_is_made_by_looking(folder, tmp_path):
    assert live_journals(folder) == {}
    assert not (tmp_path / "scratch").exists()


def test_a_live_file_that_went_home_meanwhile_is_read_there(folder):
    from holdfast.journal.recorded import load_run

    live = live_file(folder)
    stored = folder.attempt_journal_dir(0) / live.name
    with JournalWriter.create(live, who()) as writer:
        writer.begin_step(1, now_ns())
        steps(writer, 1, 3)
    found = live_journals(folder)
    Replicator(live, stored).sync()
    live.unlink()
    recorded = load_run(folder.path, found)
    assert (recorded.account().steps_kept, recorded.notes()) == (3, [])


def test_what_comes_while_journals_are_read_is_not_half_known(folder):
    """The account ends when it was asked for, not when the last journal had been read."""
    from holdfast.journal.recorded import RecordedLedger

    live = live_file(folder)
    with JournalWriter.create(live, who()) as writer:
        writer.begin_step(1, now_ns())
        steps(writer, 1, 3)
        recorded = RecordedLedger(folder.path, live_journals(folder))
        steps(writer, 4, 5)
        recorded.refresh()
        account = recorded.account(recorded.asked_ns)
        assert (account.steps_kept, recorded.account().steps_kept) == (3, 5)
        assert account.end_ns == recorded.asked_ns
