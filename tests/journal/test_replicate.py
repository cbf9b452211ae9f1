from __future__ import annotations

import os

import numpy as np
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal.layout import CHUNK_RECORDS, HEADER_BYTES, RECORD_BYTES, NoteType, Word
from holdfast.journal.reader import read_journal
from holdfast.journal.replicate import Replicator


@pytest.fixture
def stored(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "rank-00000.hfj"


def same(live, stored) -> bool:
    a, b = read_journal(live), read_journal(stored)
    return np.array_equal(a.records, b.records) and (
        (a.identity, a.clocks, a.values, a.sidecar) == (b.identity, b.clocks, b.values, b.sidecar)
    )


def test_growth_is_copied_and_nothing_twice(make_writer, stored):
    writer = make_writer()
    replicator = Replicator(writer.path, stored)
    writer.record_step(1)
    assert replicator.sync() == RECORD_BYTES
    assert same(writer.path, stored)
    assert replicator.sync() == 0
    for step in range(2, CHUNK_RECORDS + 100):
        writer.record_step(step)
    writer.note(NoteType.MESSAGE, {"text": "hello"})
    assert replicator.sync(durable=True) > (CHUNK_RECORDS + 98) * RECORD_BYTES
    assert same(writer.path, stored)
    assert stored.stat().st_mode & 0o777 == 0o600


def test_a_successor_takes_up_where_the_copy_ends(make_writer, stored):
    writer = make_writer()
    first = Replicator(writer.path, stored)
    for step in range(1, CHUNK_RECORDS + 50):
        writer.record_step(step)
    writer.note(NoteType.MESSAGE, {"text": "hello"})
    first.sync()
    first.close()
    writer.record_step(CHUNK_RECORDS + 50)
    writer.close()  # its owner is dead
    successor = Replicator(writer.path, stored)
    successor.sync()
    assert same(writer.path, stored)
    assert Replicator(writer.path, stored).sync() > 0  # the end once more
    assert same(writer.path, stored)


def test_the_copy_never_claims_more_than_it_has(make_writer, stored, monkeypatch):
    writer = make_writer()
    replicator = Replicator(writer.path, stored)
    writer.record_step(1)
    replicator.sync()
    real = os.pread

    def grows_meanwhile(fd, size, offset):
        writer.record_step(writer.page.load(Word.COUNT) + 1)
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", grows_meanwhile)
    writer.record_step(2)
    replicator.sync()
    monkeypatch.undo()
    copied = read_journal(stored)
    assert copied.records["step"].tolist() == [1, 2]
    assert copied.values.count == 2
    assert writer.page.load(Word.COUNT) > 2
    replicator.sync()
    assert same(writer.path, stored)


def test_there_is_nothing_to_copy_before_the_journal_is_one(tmp_path, stored):
    live = tmp_path / "rank-00000.hfj"
    replicator = Replicator(live, stored)
    assert replicator.sync() == 0
    live.write_bytes(bytes(HEADER_BYTES))
    assert replicator.sync() == 0
    assert not stored.exists()


def test_another_processs_journal_is_not_overwritten(make_writer, stored):
    first = make_writer()
    first.record_step(1)
    Replicator(first.path, stored).sync()
    second = make_writer("other/rank-00000.hfj", attempt=1)
    with pytest.raises(StoreUnavailable, match="another process"):
        Replicator(second.path, stored).sync()
    assert same(first.path, stored)


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES])
def test_a_copy_that_was_cut_off_in_its_header_is_begun_again(make_writer, stored, size):
    writer = make_writer()
    writer.record_step(1)
    stored.write_bytes(bytes(size))
    Replicator(writer.path, stored).sync()
    assert same(writer.path, stored)


def test_a_store_that_fails_loses_nothing(make_writer, stored, monkeypatch):
    writer = make_writer()
    replicator = Replicator(writer.path, stored)
    writer.record_step(1)
    writer.note(NoteType.MESSAGE, {"text": "hello"})
    replicator.sync()
    real = os.pwrite
    for good_writes in range(4):
        writer.record_step(writer.page.load(Word.COUNT) + 1)
        writer.note(NoteType.MESSAGE, {"text": "again"})
        left = [good_writes]

        def full(fd, data, offset, left=left):
            if left[0] == 0:
                raise OSError(28, "No space left on device")
            left[0] -= 1
            return real(fd, data[: len(data) // 2 or 1], offset)  # and never all at once

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            replicator.sync()
        monkeypatch.setattr(os, "pwrite", real)
        read_journal(stored)
    replicator.sync()
    assert same(writer.path, stored)


def test_a_store_that_is_gone_is_a_sentence(make_writer, tmp_path):
    writer = make_writer()
    with pytest.raises(StoreUnavailable, match="check that the store is mounted"):
        Replicator(writer.path, tmp_path / "gone" / "away" / "r.hfj").sync()
