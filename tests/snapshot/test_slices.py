"""Another mesh reads the slices it needs, verified, and little more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptCheckpoint
from holdfast.snapshot import reader
from holdfast.snapshot.reader import ShardFiles, SliceReader
from holdfast.snapshot.sets import read_manifest

CHUNK = reader.CHUNK_BYTES
ROWS, COLUMNS = 48, CHUNK // 8  # of uint16: a row is a quarter of a chunk


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One array of twelve chunks."""
    from holdfast.snapshot.sets import commit
    from holdfast.snapshot.shard import write_shard
    from holdfast.snapshot.staging import Staging

    place = tmp_path_factory.mktemp("ckpt") / "0000-000000000001"
    captured = Staging().capture({"state": {"big": big()}})
    write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
    commit(place, 1)
    return place


def big() -> Any:
    rows = np.arange(ROWS, dtype=np.uint16)[:, None] * 977
    return rows + np.arange(COLUMNS, dtype=np.uint32)[None, :].astype(np.uint16)


class Counted:
    """`os.preadv`, and how many bytes it gave."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._real = os.preadv

    def __call__(self, descriptor: int, buffers: Any, offset: int) -> int:
        count = self._real(descriptor, buffers, offset)
        self.nbytes += count
        return count


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(os, "preadv", counted)
    return counted


def read(place: Path, wanted: Any) -> Any:
    manifest = read_manifest(place)
    with ShardFiles(place, manifest) as files:
        return SliceReader(files).read(manifest.arrays["state/big"].pieces, wanted)


@pytest.mark.parametrize(
    ("rows", "chunks"), [((0, 12), 3), ((3, 5), 2), ((44, 48), 1), ((7, 8), 1), ((0, 48), 12)]
)
def test_rows_cost_the_chunks_they_lie_in(
    place: Path, counted: Counted, rows: tuple[int, int], chunks: int
) -> None:
    got = read(place, (rows, (0, COLUMNS)))
    assert (got == big()[slice(*rows)]).all()
    assert counted.nbytes == chunks * CHUNK


cuts = st.lists(st.integers(0, 48), min_size=2, max_size=2, unique=True).map(sorted)


@settings(max_examples=20, deadline=None)
@given(rows=cuts, columns=cuts)
def test_any_slice(place: Path, rows: list[int], columns: list[int]) -> None:
    left, right = (n * (COLUMNS // 48) for n in columns)
    wanted = (tuple(rows), (left, right))
    assert (read(place, wanted) == big()[rows[0] : rows[1], left:right]).all()


def test_a_slice_is_verified(place: Path, tmp_path: Path) -> None:
    """A flipped bit in a chunk that is needed is noticed; one elsewhere is nobody's business."""
    import shutil

    copy = shutil.copytree(place, tmp_path / place.name)
    shard = copy / "rank-00000.safetensors"
    begin = read_manifest(copy).shards[0].data_begin
    with shard.open("r+b") as file:
        file.seek(begin + 5 * CHUNK + 12345)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    assert (read(copy, ((0, 12), (0, COLUMNS))) == big()[:12]).all()
    with pytest.raises(CorruptCheckpoint, match="state/big"):
        read(copy, ((20, 21), (0, 8)))
