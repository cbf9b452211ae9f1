from __future__ import annotations

import os

import numpy as np
import pytest

from holdfast.errors import JournalError
from holdfast.journal.layout import (
    HEADER_BYTES,
    IDENTITY_OFFSET,
    PAGE_BYTES,
    RECORD_BYTES,
    VERSION,
    Kind,
    Word,
)
from holdfast.journal.rank_page import RankPage
from holdfast.journal.reader import RECORD, JournalReader, read_journal


def overwrite(path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.fixture
def written(make_writer):
    writer = make_writer()
    for step in range(1, 11):
        writer.record_step(step)
    writer.close()
    return writer.path


def test_the_dtype_is_the_layout():
    assert RECORD.itemsize == RECORD_BYTES
    raw = np.array([5, 1 | 1 << 8 | 77 << 16, 9, 3], "<u8").view(RECORD)[0]
    assert raw["time"] == 5
    assert (raw["kind"], raw["flags"], raw["step"], raw["value"]) == (1, 1, 9, 3)


def test_reading_again_gives_only_what_is_new(make_writer):
    writer = make_writer()
    writer.record_step(1)
    with JournalReader(writer.path) as reader:
        assert reader.read_new()["step"].tolist() == [1]
        assert len(reader.read_new(1)) == 0
        writer.record_step(2)
        writer.record_step(3)
        assert reader.read_new(1)["step"].tolist() == [2, 3]


def test_nothing_beyond_the_count_is_read(written):
    overwrite(written, PAGE_BYTES + 8 * Word.COUNT, (4).to_bytes(8, "little"))
    assert read_journal(written).records["step"].tolist() == [1, 2, 3, 4]


def test_a_count_beyond_the_file_is_not_believed(written):
    overwrite(written, PAGE_BYTES + 8 * Word.COUNT, (1 << 60).to_bytes(8, "little"))
    assert len(read_journal(written).records) == 10  # then kind 0
    os.truncate(written, HEADER_BYTES + 3 * RECORD_BYTES + 7)
    assert read_journal(written).records["step"].tolist() == [1, 2, 3]
    os.truncate(written, HEADER_BYTES)
    assert len(read_journal(written).records) == 0


def test_a_record_that_is_not_filled_ends_the_journal(written):
    overwrite(written, HEADER_BYTES + 5 * RECORD_BYTES + 8, bytes(8))
    assert read_journal(written).records["step"].tolist() == [1, 2, 3, 4, 5]


def test_a_newer_version_is_refused_with_a_sentence(written):
    overwrite(written, 8, (7).to_bytes(8, "little"))
    words = f"written by format version 7; this Holdfast reads up to {VERSION}; upgrade"
    for read in (read_journal, RankPage.open):
        with pytest.raises(JournalError, match=words):
            read(written)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a journal: it is empty"),
        (b"HOLDFAST" * 100, "its header is cut short at 800 bytes"),
        (b"x" * HEADER_BYTES, "is not a Holdfast journal"),
        (bytes(HEADER_BYTES), "is not a Holdfast journal"),
    ],
)
def test_what_is_not_a_journal_is_refused_with_a_sentence(tmp_path, content, words):
    path = tmp_path / "rank-00000.hfj"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=words) as caught:
        read_journal(path)
    assert str(path) in str(caught.value)
    with pytest.raises(JournalError):
        RankPage.open(path)


def test_a_missing_journal_is_a_sentence(tmp_path):
    with pytest.raises(JournalError, match="No such file"):
        read_journal(tmp_path / "none.hfj")
    with pytest.raises(JournalError, match="No such file"):
        RankPage.open(tmp_path / "none.hfj")
    with pytest.raises(JournalError):
        read_journal(tmp_path)


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (IDENTITY_OFFSET, (1 << 40).to_bytes(8, "little")),
        (IDENTITY_OFFSET + 8, b"{]"),
        (IDENTITY_OFFSET, (2).to_bytes(8, "little") + b"{}"),
        (IDENTITY_OFFSET, (2).to_bytes(8, "little") + b"[]"),
        (24, (48).to_bytes(8, "little")),
    ],
)
def test_a_damaged_header_is_refused_with_a_sentence(written, offset, data):
    overwrite(written, offset, data)
    with pytest.raises(JournalError, match="is damaged"):
        read_journal(written)


def test_bytes_of_any_kind_never_crash_the_reader(written):
    rng = np.random.default_rng(3)
    good = written.read_bytes()[: HEADER_BYTES + 20 * RECORD_BYTES]
    for _ in range(300):
        data = bytearray(good)
        for at in rng.integers(0, len(data), rng.integers(1, 9)):
            data[at] = rng.integers(256)
        written.write_bytes(bytes(data[: rng.integers(1, len(data))]))
        try:
            journal = read_journal(written)
        except JournalError:
            continue
        assert len(journal.records) <= 20
        assert (journal.records["kind"] != 0).all()


def test_unknown_kinds_are_there_for_who_wants_them(make_writer):
    writer = make_writer()
    writer.append(5, 200, 3, 4, 5, 6)
    writer.record_step(1)
    assert read_journal(writer.path).records["kind"].tolist() == [200, Kind.STEP]
