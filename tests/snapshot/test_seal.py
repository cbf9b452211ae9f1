from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.snapshot import seal
from holdfast.snapshot.layout import decode_header, encode_header, shard_facts
from holdfast.snapshot.ram_folder import buffer_name, sealed_buffers
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import MANIFEST, Tensor, receipt_name, shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import _hashed, seal_buffer
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging


def tree(rank: int = 0, step: int = 5) -> dict[str, Any]:
    return {
        "state": {"w": np.arange(300_000.0) + step, "small": np.float32(step), "n": step},
        "rng": {"words": np.full(7, rank, np.uint16), "text": "x" * 600},
    }


def fill(buffer: Path, world_size: int = 2, step: int = 5, attempt: int = 3) -> None:
    """What ranks leave in a buffer: shards alone. Their layout is that of any shard."""
    for name in (MANIFEST, *map(receipt_name, range(world_size))):
        (buffer / name).unlink(missing_ok=True)
    for rank in range(world_size):
        captured = Staging().capture(tree(rank, step), rank, world_size)
        where = {"attempt": attempt, "step": step, "rank": rank, "world_size": world_size}
        write_shard(buffer, captured, **where, tags=("best",) if rank == 1 else ())
        (buffer / receipt_name(rank)).unlink()


@pytest.fixture
def buffer(tmp_path: Path) -> Path:
    place = tmp_path / buffer_name(1)
    fill(place)
    return place


def test_a_sealed_buffer_is_a_set_like_any_other(buffer: Path) -> None:
    info = seal_buffer(buffer, 2, attempt=3, step=5)
    assert (info.attempt, info.step, info.world_size, info.tags) == (3, 5, 2, ("best",))
    for rank in range(2):
        restored = read_set(buffer, rank=rank, world_size=2)
        assert np.array_equal(restored["state"]["w"], tree()["state"]["w"])
        assert restored["rng"]["words"][0] == rank
    verify(buffer)


@pytest.mark.parametrize("comes", ["before the manifest", "after it"])
def test_a_shard_that_is_taken_back_during_the_seal(
    buffer: Path, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = seal.write_sealed

    def take_back() -> None:
        with (buffer / shard_name(0)).open("r+b") as file:
            file.write(bytes(8))
        (buffer / MANIFEST).unlink(missing_ok=True)

    def at_the_manifest(path: Path, value: Any) -> None:
        if path.name == MANIFEST and comes == "before the manifest":
            take_back()
        write(path, value)
        if path.name == MANIFEST and comes == "after it":
            take_back()

    monkeypatch.setattr(seal, "write_sealed", at_the_manifest)
    with pytest.raises(CorruptCheckpoint, match="was taken back by its rank"):
        seal_buffer(buffer, 2, attempt=3, step=5)
    assert sealed_buffers(buffer.parent) == ((), {})


def test_the_receipt_made_of_the_file_is_the_one_its_writer_makes(tmp_path: Path) -> None:
    captured = Staging().capture(tree())
    where = {"attempt": 0, "step": 5, "rank": 0, "world_size": 1}
    receipt = write_shard(tmp_path / "set", captured, **where, tags=("a", "b"))
    assert _hashed(tmp_path / "set", 0, [], [])[0] == receipt


def test_threads_share_the_checksums_where_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = Staging().capture({"state": {"w": np.arange(9_000_000.0), "n": np.ones(3)}})
    where = {"attempt": 0, "step": 5, "rank": 0, "world_size": 1}
    receipt = write_shard(tmp_path / "set", captured, **where)
    monkeypatch.setattr(seal, "PARALLEL_FROM_BYTES", 1 << 20)
    monkeypatch.setattr(seal.os, "sched_getaffinity", lambda _: range(16))
    assert _hashed(tmp_path / "set", 0, [], [])[0] == receipt
    with (tmp_path / "set" / shard_name(0)).open("r+b") as file:
        file.truncate(30_000_000)
    with pytest.raises(CorruptCheckpoint):
        _hashed(tmp_path / "set", 0, [], [])


def test_sealing_again_gives_the_same(buffer: Path) -> None:
    first = seal_buffer(buffer, 2, attempt=3, step=5)
    again = seal_buffer(buffer, 2, attempt=3, step=5)
    assert (again.nbytes, again.tags) == (first.nbytes, first.tags)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"step": 6}, "holds step 5 of attempt 3"),
        ({"attempt": 4}, "holds step 5 of attempt 3"),
        ({"world_size": 3}, "by rank 0 of 2"),
        ({"world_size": 1}, "by rank 0 of 2"),
    ],
)
def test_what_is_not_expected_is_not_sealed(buffer: Path, what: dict[str, int], words: str) -> None:
    wanted = {"world_size": 2, "attempt": 3, "step": 5} | what
    with pytest.raises(CorruptCheckpoint, match=words):
        seal_buffer(buffer, wanted["world_size"], attempt=wanted["attempt"], step=wanted["step"])
    assert not (buffer / MANIFEST).exists()


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
        return
    if how == "half written":
        data[:8] = bytes(8)
    elif how == "cut short":
        del data[-1000:]
    elif how == "too long":
        data += b"more"
    elif how == "cut in the header":
        del data[100:]
    elif how == "a header of another length":
        data[:8] = (int.from_bytes(data[:8], "little") - 8).to_bytes(8, "little")
    elif how == "an offset moved":
        data = bytearray(bytes(data).replace(b'"data_offsets":[0,', b'"data_offsets":[8,'))
    elif how == "another dtype":
        data = bytearray(bytes(data).replace(b'"dtype":"F64"', b'"dtype":"I64"'))
    elif how == "another format":
        data = bytearray(bytes(data).replace(b"holdfast-checkpoint", b"holdfast-checkpoinx"))
    path.write_bytes(data)


@pytest.mark.parametrize(
    "how",
    [
        "missing",
        "half written",
        "cut short",
        "too long",
        "cut in the header",
        "a header of another length",
        "an offset moved",
        "another dtype",
        "another format",
    ],
)
def test_a_spoilt_shard_is_named_and_nothing_is_sealed(buffer: Path, how: str) -> None:
    seal_buffer(buffer, 2, attempt=3, step=5)
    spoil(buffer / shard_name(1), how)
    with pytest.raises(CorruptCheckpoint, match="rank-00001"):
        seal_buffer(buffer, 2, attempt=3, step=5)
    assert not (buffer / MANIFEST).exists()


def test_a_link_is_not_followed(buffer: Path, tmp_path: Path) -> None:
    (buffer / shard_name(0)).rename(tmp_path / "elsewhere")
    (buffer / shard_name(0)).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        seal_buffer(buffer, 2, attempt=3, step=5)


def test_sealed_buffers_are_listed_oldest_first(tmp_path: Path) -> None:
    assert sealed_buffers(tmp_path) == ((), {})
    for number, step in ((0, 9), (1, 7), (2, 8)):
        fill(tmp_path / buffer_name(number), 1, step)
    for number, step in ((0, 9), (1, 7)):
        seal_buffer(tmp_path / buffer_name(number), 1, attempt=3, step=step)
    found, damage = sealed_buffers(tmp_path)
    assert [(one.number, one.info.step) for one in found] == [(1, 7), (0, 9)]
    assert not damage
    spoil(tmp_path / buffer_name(0) / shard_name(0), "cut short")
    spoil(tmp_path / buffer_name(1) / MANIFEST, "cut short")
    found, damage = sealed_buffers(tmp_path)
    assert not found
    assert sorted(damage) == [0, 1]


def test_a_header_tells_its_slices_and_odd_names() -> None:
    structure = {
        "state": {
            "w[0:4]/x": {"$": "array", "kind": "jax", "dtype": "bfloat16", "shape": [8, 6]},
            "0": {"$": "array", "kind": "numpy", "dtype": "complex64", "shape": []},
            "flag": {"$": "array", "kind": "jax", "dtype": "bool", "shape": []},
        }
    }
    path = "state/w%5B0:4%5D%2Fx"
    entries = (
        Tensor(path, "bfloat16", (8, 6), (4, 6), ((0, 4), (0, 6)), 0, 48),
        Tensor(path, "bfloat16", (8, 6), (2, 3), ((6, 8), (3, 6)), 48, 60),
        Tensor("state/%30", "complex64", (), (), None, 60, 68),
        Tensor("state/flag", "bool", (), (), (), 68, 69),
    )
    facts = shard_facts(
        structure, attempt=1, step=2, rank=0, world_size=2, shared=("state",), tags=()
    )
    header = decode_header(encode_header(entries, facts))
    assert (header.facts, header.tensors) == (facts, entries)
