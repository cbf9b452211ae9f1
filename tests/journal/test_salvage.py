"""After a power cut the live journal and its copy each lack something: together they lack less."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from holdfast.journal.adopt import adopt
from holdfast.journal.attempts import create_attempt
from holdfast.journal.layout import HEADER_BYTES, NoteType
from holdfast.journal.reader import read_journal
from holdfast.journal.replicate import Replicator
from holdfast.journal.salvage import SECTOR_BYTES, salvage_journal, salvage_text
from holdfast.journal.sidecar import sidecar_path
from holdfast.journal.store import RunStore

SYNCED, STEPS = 700, 1000


def lose(path, chance, *, start, share=0.3) -> None:
    """Some sectors of a file, from `start` on, never reached the disk."""
    data = bytearray(path.read_bytes())
    for at in range(-(-start // SECTOR_BYTES) * SECTOR_BYTES, len(data), SECTOR_BYTES):
        if chance.random() < share:
            data[at : at + SECTOR_BYTES] = bytes(len(data[at : at + SECTOR_BYTES]))
    path.write_bytes(data)


def two_copies(writer, stored):
    """A journal of which the first records are safe in the store; gives what it says in the end."""
    replicator = Replicator(writer.path, stored)
    for step in range(1, SYNCED + 1):
        writer.record_step(step)
        if step % 10 == 0:
            writer.note(NoteType.MESSAGE, {"step": step, "text": "x" * 60})
    replicator.sync(durable=True)
    safe = stored.stat().st_size, sidecar_path(stored).stat().st_size
    for step in range(SYNCED + 1, STEPS + 1):
        writer.record_step(step)
    replicator.sync()
    replicator.close()
    whole = read_journal(writer.path)
    writer.close()
    return whole, safe


@pytest.mark.parametrize("seed", range(6))
def test_what_was_synced_is_never_lost_and_the_rest_is_pieced_together(make_writer, tmp_path, seed):
    chance = random.Random(seed)
    writer = make_writer()
    stored = tmp_path / "store" / writer.path.name
    stored.parent.mkdir()
    whole, (size, text_size) = two_copies(writer, stored)
    live = writer.path
    lose(live, chance, start=HEADER_BYTES)
    lose(sidecar_path(live), chance, start=0)
    lose(stored, chance, start=size)
    lose(sidecar_path(stored), chance, start=text_size)
    there = [bytes(path.read_bytes()) for path in (live, stored)]
    assert salvage_journal(live, stored)
    after = read_journal(stored)
    assert len(after.records) >= SYNCED + SYNCED // 10
    assert (after.records == whole.records[: len(after.records)]).all()
    assert after.sidecar == whole.sidecar
    # Every record that either had is in the file, also behind a hole.
    merged = stored.read_bytes()
    for at in range(HEADER_BYTES, HEADER_BYTES + len(whole.records) * 32, 32):
        if any(data[at : at + 32].strip(b"\0") for data in there):
            assert merged[at : at + 32].strip(b"\0")


def test_a_live_journal_that_fell_behind_takes_nothing_away(tmp_path, store, make_writer):
    """The live header was last written long ago: it says that there are no records at all."""
    folder = RunStore.at(store).open("run")
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    writer = make_writer()
    behind = writer.path.read_bytes()
    stored = folder.attempt_journal_dir(0) / writer.path.name
    whole, _ = two_copies(writer, stored)
    scratch = tmp_path / "left"
    place = scratch / "attempt-0000"
    place.mkdir(parents=True)
    (place / writer.path.name).write_bytes(behind)
    shutil.copy(sidecar_path(writer.path), place)
    (place / "rank-00000.log").write_bytes(b"a line\n" + bytes(600))
    folder.logs_dir(0).joinpath("rank-00000.log").write_bytes(b"a line\nanother\n")
    adopt(folder, scratch)
    assert (read_journal(stored).records == whole.records).all()
    assert folder.logs_dir(0).joinpath("rank-00000.log").read_text().startswith("a line\nanother\n")
    assert not place.exists()


def test_a_copy_with_a_hole_of_a_tebibyte_is_not_read(tmp_path):
    """Who writes to the store may make it as large as they like: the live file's size counts."""
    live, stored = tmp_path / "live.jsonl", tmp_path / "stored.jsonl"
    live.write_bytes(b"{}\n" * 1000)
    stored.write_bytes(b"{}\n" * 10)
    os.truncate(stored, 1 << 40)
    salvage_text(live, stored)
    with stored.open("rb") as file:
        assert file.read(4000) == b"{}\n" * 1000 + bytes(1000)
