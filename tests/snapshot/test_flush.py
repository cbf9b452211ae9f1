"""A sealed buffer's way to the run store: the very bytes, synced, or nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.sets import SetInfo, commit, set_name

Save = Callable[..., SetInfo]
TREES = [{"state": {"w": np.arange(1000.0)}, "mine": rank} for rank in range(2)]


@pytest.fixture
def buffer(tmp_path: Path, save: Save) -> Path:
    """A sealed buffer with step 7 of attempt 0, by two ranks: a set of another name."""
    return save(ranks=TREES, step=7).path.rename(tmp_path / "buffer-1")


@pytest.fixture
def place(tmp_path: Path, buffer: Path) -> Path:
    """Where that set belongs."""
    return tmp_path / "ckpt" / set_name(0, 7)


@contextmanager
def without_roots_right() -> Iterator[None]:
    """File modes hold for this thread meanwhile, also where it is root's (capabilities(7))."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3; this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] &= ~(1 << 1)  # CAP_DAC_OVERRIDE
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = before
    assert libc.capset(header, sets) == 0


def flushed(buffer: Path, place: Path) -> int:
    return flush_set(buffer, place, attempt=0, step=7).world_size


def test_what_is_flushed_restores_as_if_the_ranks_had_written_it(buffer: Path, place: Path) -> None:
    assert flushed(buffer, place) == 2
    commit(place, 2)
    for rank, tree in enumerate(TREES):
        found: Any = read_set(place, rank=rank, world_size=2)
        assert found["mine"] == rank
        assert (found["state"]["w"] == tree["state"]["w"]).all()


def test_of_one_rank_it_is_the_very_file(tmp_path: Path, save: Save, place: Path) -> None:
    alone = save(TREES[0]["state"], step=8).path.rename(tmp_path / "buffer-2")
    flush_set(alone, place.with_name(set_name(0, 8)), attempt=0, step=8)
    for path in alone.iterdir():
        if path.name != "manifest.json":
            assert (place.with_name(set_name(0, 8)) / path.name).read_bytes() == path.read_bytes()


def test_what_an_earlier_try_finished_is_not_written_again(buffer: Path, place: Path) -> None:
    flushed(buffer, place)
    first, second = place / "rank-00000.safetensors", place / "rank-00001.safetensors"
    before, whole = first.stat().st_ino, second.read_bytes()
    second.write_bytes(b"half")
    assert flushed(buffer, place) == 2
    assert first.stat().st_ino == before
    assert second.read_bytes() == whole


@pytest.mark.parametrize("at", [0, 5000, -1])
def test_what_went_bad_in_memory_is_not_written(buffer: Path, place: Path, at: int) -> None:
    shard = buffer / "rank-00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[at] ^= 4
    shard.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="is not what was sealed"):
        flushed(buffer, place)
    assert not place.exists()


def test_another_set_than_was_meant_is_refused(buffer: Path, place: Path) -> None:
    with pytest.raises(CorruptCheckpoint, match="holds step 7 of attempt 0, not step 8"):
        flush_set(buffer, place, attempt=0, step=8)
    assert not place.exists()


def test_a_buffer_that_is_not_sealed_is_refused(buffer: Path, place: Path) -> None:
    (buffer / "manifest.json").unlink()
    with pytest.raises(CorruptCheckpoint, match="is missing"):
        flushed(buffer, place)


def test_a_buffer_that_was_cut_short_is_refused(buffer: Path, place: Path) -> None:
    os.truncate(buffer / "rank-00000.safetensors", 4096)
    with pytest.raises(CorruptCheckpoint, match="has 4096 bytes, not"):
        flushed(buffer, place)


def test_a_committed_set_is_never_touched(buffer: Path, place: Path) -> None:
    flushed(buffer, place)
    commit(place, 2)
    before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    flushed(buffer, place)  # the same: there is nothing to do
    (place / "rank-00000.receipt.json").unlink()
    with pytest.raises(StoreUnavailable, match="committed checkpoint already"):
        flushed(buffer, place)
    after = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    assert after.items() <= before.items()


def test_a_store_that_is_away_is_named(buffer: Path, place: Path) -> None:
    shutil.rmtree(place.parent)
    with pytest.raises(StoreUnavailable, match="is not there"):
        flushed(buffer, place)


def test_a_read_only_store_is_named(buffer: Path, place: Path) -> None:
    place.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with without_roots_right(), pytest.raises(StoreUnavailable, match="no permission"):
        flushed(buffer, place)
