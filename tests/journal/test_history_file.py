"""History files on a disk: streamed in, written whole or not at all, and what is refused."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from all_facts import all_facts

from holdfast.core.ledger.facts import AttemptFact, Fact, RunFact, SpanFact, StepsFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import ConfigurationError, HistoryError, StoreUnavailable
from holdfast.journal import history_file
from holdfast.journal.history_file import read_history, write_history

S = 10**9
RUN = RunFact("läuft", 0, None, 8)


def facts(steps: int = 3) -> list[Fact]:
    many: list[Fact] = [RUN, AttemptFact(0, 0, None, None)]
    for n in range(steps):
        many.append(SpanFact(0, "data", n * S, n * S + 1))
        many.append(StepsFact(0, n + 1, n + 1, n * S, n * S + S))
    return many


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_history(path, facts())
    assert all_facts(read_history(path)) == facts()
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_to_a_stream() -> None:
    stream = io.StringIO()
    write_history(stream, facts())
    assert len(stream.getvalue().splitlines()) == len(facts())


def test_a_file_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "BLOCK_BYTES", 100)  # cuts lines, and characters, anywhere
    path = tmp_path / "run.jsonl"
    write_history(path, facts(200))
    history = read_history(path)
    assert all_facts(history) == facts(200)
    ledger = Ledger()
    ledger.add_history(history)
    assert ledger.account().steps_kept == 200


def test_a_byte_order_mark_is_let_through(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_history(path, facts())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert all_facts(read_history(path)) == facts()


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no history file .*missing\.jsonl"):
        read_history(tmp_path / "missing.jsonl")


def test_a_folder_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_history(tmp_path)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "the file is empty"),
        (b"\x00" * 100, 1, "is not JSON"),
        (b'{"event": "seen", "at": 1.0}\n\xff\xfe', 2, "byte 0xff is not UTF-8"),
        (b"\n\n\n\x80", 4, "byte 0x80 is not UTF-8"),
        (b"\x7fELF\x02\x01", 1, "is not JSON"),
        (b"x" * 3_000_000, 1, "longer than 1048576 bytes"),
        (b'{"event": "run", "name": "r", "requested": 0.0, "end', 1, "breaks off"),
    ],
)
def test_junk_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, line: int, words: str
) -> None:
    path = tmp_path / "junk"
    path.write_bytes(content)
    with pytest.raises(HistoryError) as caught:
        read_history(path)
    assert (caught.value.line, caught.value.exit_code) == (line, 78)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_history(path, facts())

    def breaks_off() -> Iterator[Fact]:
        yield RUN
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_history(path, breaks_off())
    assert all_facts(read_history(path)) == facts()
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As /dev/null: whoever may do that there must not put a file in its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_history(pipe, facts())
        assert len(os.read(reader, 1 << 16).splitlines()) == len(facts())
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_nowhere_to_write(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be written to .*run\.jsonl"):
        write_history(tmp_path / "no folder" / "run.jsonl", facts())


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    folder, link, real = tmp_path / "folder", tmp_path / "link.jsonl", tmp_path / "real.jsonl"
    folder.mkdir()
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        write_history(folder, facts())
    link.symlink_to(real)
    write_history(link, facts())
    assert link.is_symlink()
    assert real.read_text() == link.read_text() != ""
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["folder", "link.jsonl", "real.jsonl"]
