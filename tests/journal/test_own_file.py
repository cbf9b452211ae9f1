"""A script that closes every descriptor: nothing of ours ends up in its files, and all goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.journal.own_file import OwnFile
from holdfast.journal.reader import read_journal
from holdfast.journal.sidecar import read_sidecar, sidecar_path

FLAGS = os.O_RDWR | os.O_CLOEXEC


def make(path: Path) -> OwnFile:
    return OwnFile(path, os.open(path, FLAGS | os.O_CREAT, 0o600), FLAGS)


def test_a_descriptor_that_was_closed_is_opened_again(tmp_path: Path) -> None:
    own = make(tmp_path / "own")
    first = own.descriptor()
    assert own.descriptor() == first
    assert not own.is_shaken
    os.close(first)
    other = os.open(tmp_path / "other", FLAGS | os.O_CREAT, 0o600)
    assert other == first
    os.write(own.descriptor(), b"mine")
    assert own.is_shaken
    own.close()
    own.close()
    os.write(other, b"theirs")
    os.close(other)
    assert (tmp_path / "own").read_bytes() == b"mine"
    assert (tmp_path / "other").read_bytes() == b"theirs"
    with pytest.raises(OSError, match="Bad file"):
        own.descriptor()


def test_another_file_under_its_name_is_not_taken_for_it(tmp_path: Path) -> None:
    own = make(tmp_path / "own")
    os.close(own.descriptor())
    (tmp_path / "own").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        own.descriptor()
    (tmp_path / "own").touch()
    with pytest.raises(OSError, match="Stale"):
        own.descriptor()
    own.close()
    assert own.is_shaken


@pytest.mark.real
def test_the_journal_goes_on(tmp_path: Path) -> None:
    script = """
        import os, sys
        from pathlib import Path
        from holdfast.journal.layout import CHUNK_RECORDS, Identity
        from holdfast.journal.writer import JournalWriter

        folder = Path(sys.argv[1])
        me = Identity("r", 0, "i", 0, "h", 0, "b")
        writer = JournalWriter.create(folder / "rank-00000.hfj", me)
        writer.begin_step(1, None)
        writer.record_step(1)
        os.closerange(3, 100)
        theirs = [os.open(folder / f"theirs-{n}", os.O_RDWR | os.O_CREAT) for n in range(12)]
        for step in range(2, 2 * CHUNK_RECORDS):
            writer.record_step(step)
        writer.close_span(writer.open_span("a name of its own"))
        writer.close()
        for fd in theirs:
            os.write(fd, b"theirs")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), tmp_path], check=True)
    path = tmp_path / "rank-00000.hfj"
    assert read_journal(path).records["step"].max() == 2 * 32_768 - 1
    lines, _ = read_sidecar(sidecar_path(path))
    assert "a name of its own" in str(lines)
    for number in range(12):
        assert (tmp_path / f"theirs-{number}").read_bytes() == b"theirs"
