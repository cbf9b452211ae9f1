"""The disk fills up while a journal is written: recording stops, is counted, and comes back."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal import tape
from holdfast.journal.layout import CHUNK_RECORDS, Identity, NoteType, Word
from holdfast.journal.lease import LastWords, acquire, view
from holdfast.journal.reader import read_journal
from holdfast.journal.store import RunStore
from holdfast.journal.writer import JournalWriter

IDENTITY = Identity("run", 0, "i", 0, "host", 0, "boot")


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs takes root")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.real
def test_how_a_run_ended_is_told_though_the_disk_is_full(small_disk):
    folder = RunStore(small_disk).create("r")
    lease = acquire(folder)
    fill(small_disk / "ballast")
    told = LastWords(69, "make room in the run store")
    lease.release(told)
    assert view(folder).last_words == told
    (small_disk / "ballast").unlink()
    acquire(folder).release(told)
    assert view(folder).epoch == 2
    assert not (folder.lease_dir / "reserved").exists()


@pytest.mark.contract("journal: on a full disk")
def test_recording_stops_on_a_full_disk_and_comes_back(small_disk, monkeypatch):
    monkeypatch.setattr(tape, "RETRY_NS", 1 << 60)
    writer = JournalWriter.create(small_disk / "rank-00000.hfj", IDENTITY)
    ballast = small_disk / "ballast"
    fill(ballast)
    step = 0
    for _ in range(CHUNK_RECORDS + 3000):
        step += 1
        writer.record_step(step)
    assert writer.page.load(Word.COUNT) == CHUNK_RECORDS
    assert writer.page.load(Word.DROPPED) == 3000
    assert writer.page.load(Word.STEP) == step  # hang detection goes on
    writer.note(NoteType.MESSAGE, {"text": "x" * 9000})
    dropped = writer.page.load(Word.DROPPED)
    assert dropped > 3000
    ballast.unlink()
    while (
        writer.page.load(Word.DROPPED) == dropped or writer.page.load(Word.COUNT) == CHUNK_RECORDS
    ):
        step += 1
        writer.record_step(step)
        assert step < CHUNK_RECORDS + 3000 + 2 * tape.RETRY_DROPS, "it never came back"
    assert writer.page.load(Word.DROPPED) < dropped + tape.RETRY_DROPS
    writer.record_step(step + 1)
    writer.note(NoteType.MESSAGE, {"text": "space again"})
    journal = read_journal(writer.path)
    assert journal.records["step"][-3:-1].tolist() == [step, step + 1]
    assert journal.sidecar[-1].payload == {"text": "space again"}
    assert journal.values.dropped == writer.page.load(Word.DROPPED)
    writer.close()


@pytest.mark.real
def test_no_journal_is_made_where_there_is_no_space(small_disk):
    fill(small_disk / "ballast")
    with pytest.raises(StoreUnavailable, match="No space left"):
        JournalWriter.create(small_disk / "rank-00000.hfj", IDENTITY)
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_space_is_looked_for_after_a_second_too(tmp_path, monkeypatch):
    """A journal of few records, a controller's, does not wait for a thousand to be lost."""
    full = [False]
    real = tape.reserve

    def reserve(fd, offset, length):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, offset, length)

    monkeypatch.setattr(tape, "reserve", reserve)
    writer = JournalWriter.create(tmp_path / "r.hfj", IDENTITY)
    for at in range(1, CHUNK_RECORDS + 1):
        writer.append(at, 6, 0, 0, 0, 0)
    full[0] = True
    now = 10**12
    writer.append(now, 6, 0, 0, 0, 0)
    full[0] = False
    writer.append(now + tape.RETRY_NS - 1, 6, 0, 0, 0, 0)
    assert writer.page.load(Word.DROPPED) == 2
    writer.append(now + tape.RETRY_NS, 6, 0, 0, 0, 0)
    assert (writer.page.load(Word.DROPPED), writer.page.load(Word.COUNT)) == (2, CHUNK_RECORDS + 1)
    writer.close()
