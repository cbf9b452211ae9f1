"""Incidents: one story an attempt, on record before the attempt is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.journal.adopt import adopt
from holdfast.journal.attempts import attempts, create_attempt
from holdfast.journal.clocks import boot_id
from holdfast.journal.folders import controller_journal
from holdfast.journal.incidents import incident_of, last_lines, story_of, write_incident
from holdfast.journal.layout import CONTROLLER_RANK, NoteType
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import Identity, JournalWriter


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunStore(tmp_path / "store").create("r")
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, ranks=2)
    return folder


def test_the_first_story_stands(folder: RunFolder) -> None:
    first = story_of(0, "failed", "a bug", exits=(1, -9), rank=0, last_lines=["a", "b"])
    write_incident(folder, 0, first)
    write_incident(folder, 0, story_of(0, "killed", "nobody saw it", exits=(None, None)))
    assert incident_of(folder, 0) == first


def test_a_successor_tells_what_is_known_of_an_attempt_left_open(
    folder: RunFolder, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (folder.logs_dir(0) / "rank-00000.log").write_text("one\ntwo\n")
    (sentence,) = adopt(folder, scratch)
    assert "attempt 0 is closed" in sentence
    story = incident_of(folder, 0)
    assert story is not None
    assert (story["cause"], story["exits"], story["last_lines"]) == (
        "killed",
        [None, None],
        ["one", "two"],
    )
    (record,) = attempts(folder).records
    assert record.end is not None
    assert record.end.words == story["words"]
    assert adopt(folder, scratch) == []


def test_a_story_without_an_end_closes_the_attempt_as_it_tells(
    folder: RunFolder, tmp_path: Path
) -> None:
    """Its supervisor was killed between the two files."""
    write_incident(folder, 0, story_of(0, "failed", "rank 1: a bug", exits=(None, 1)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    adopt(folder, scratch)
    (record,) = attempts(folder).records
    assert record.end is not None
    assert (record.end.cause, record.end.words) == ("failed", "rank 1: a bug")


@pytest.mark.parametrize("cause", ["preempted", "done"])
def test_an_end_that_only_the_journal_tells(folder: RunFolder, tmp_path: Path, cause: str) -> None:
    """Its supervisor saw it, and the run store could not be written then."""
    (record,) = attempts(folder).records
    live = tmp_path / "scratch" / "controller" / controller_journal(record.epoch)
    live.parent.mkdir(parents=True)
    writer = JournalWriter.create(
        live, Identity("r", record.epoch, "i", 0, "host", CONTROLLER_RANK, boot_id())
    )
    end = {"fact": "attempt_end", "attempt": 0, "at_ns": 5, "cause": cause}
    writer.note(NoteType.FACT, end)
    writer.close()
    adopt(folder, tmp_path / "scratch")
    (record,) = attempts(folder).records
    assert record.end is not None
    assert record.end.cause == cause
    assert record.end.words.startswith(f"{cause.replace('_', ' ')}, as the journal says")
    assert (incident_of(folder, 0) is None) == (cause == "done")


def test_an_attempt_whose_folders_are_missing_is_closed_as_well(
    folder: RunFolder, tmp_path: Path
) -> None:
    for part in (folder.incidents_dir(0), folder.logs_dir(0), folder.attempt_journal_dir(0)):
        part.rmdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    adopt(folder, scratch)
    assert incident_of(folder, 0) is not None


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == []
    log.write_bytes(b"\xff" * 100_000 + b"\n" + b"x\n" * 100)
    assert last_lines(log) == ["x"] * 40
