"""A file of shared memory whose descriptor a script closed under a thread's hands."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.session import descriptors
from holdfast.session.descriptors import apart
from holdfast.snapshot import shared_file
from holdfast.snapshot.shared_file import SharedFile


def test_what_the_script_opened_under_our_number_is_neither_mapped_nor_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    map_aligned = shared_file._map_aligned
    theirs: list[int] = []

    def late(descriptor: int, size_bytes: int) -> object:
        os.close(descriptor)
        theirs.append(os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT))
        assert theirs == [descriptor]
        return map_aligned(descriptor, size_bytes)

    monkeypatch.setattr(shared_file, "_map_aligned", late)
    file = SharedFile(tmp_path / "ours")
    with pytest.raises(OSError, match="the script closed its descriptor"):
        file.open(1 << 20, keep=False)
    assert not file.is_mapped
    os.write(theirs[0], b"theirs")
    os.close(theirs[0])
    assert (tmp_path / "theirs").read_bytes() == b"theirs"

    monkeypatch.undo()
    file.open(1 << 20, keep=False)
    assert file.is_mapped


def test_work_apart_keeps_nothing_open_and_loses_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    begun, closed = threading.Event(), threading.Event()

    def work() -> int:
        mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
        begun.set()
        closed.wait()
        os.write(mine, b"mine")
        os.close(mine)
        return mine

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(apart(work)))
    thread.start()
    begun.wait()
    os.close(write)
    if _can_leave():
        assert os.read(read, 1) == b""  # the pipe's only writer is gone: the thread holds none
        closed.set()
        thread.join()
        assert found == [3]
    closed.set()
    thread.join()
    os.close(read)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_what_goes_wrong_apart_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0)


def _can_leave() -> bool:
    """Filters of some containers refuse it."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(descriptors._leave_table()))
    thread.start()
    thread.join()
    return found[0]
