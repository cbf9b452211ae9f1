"""Nothing that was not written is ever used: flips, cuts, losses and forgeries."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptCheckpoint
from holdfast.snapshot.manifest import Manifest
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import CHUNK_BYTES, Receipt
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.sealed import read_sealed, write_sealed
from holdfast.snapshot.sets import list_sets

STATE = {
    "w": np.arange(1500, dtype=np.float32).reshape(50, 30),
    "b": np.ones(7, ml_dtypes.bfloat16),
    "n": [1, 2.5, None, b"abc", "text", {"0": 1, 0: (1, 2**70)}],
    "empty": np.zeros((0, 3)),
    "flag": np.bool_(True),
}


def read(place: Path) -> Any:
    return read_set(place, kinds="numpy")


def shown(tree: Any) -> str:
    return repr(tree)


@pytest.fixture
def whole(save: Any) -> Path:
    place: Path = save(ranks=[{"state": STATE, "rng": {"seed": np.arange(5)}}]).path
    return place


def flips(place: Path) -> list[tuple[Path, int, int]]:
    """100 random bits of every file, and one of each of its first 64 bytes."""
    rng = random.Random(0)
    found = []
    for path in sorted(place.iterdir()):
        size = path.stat().st_size
        found += [(path, rng.randrange(size), rng.randrange(8)) for _ in range(100)]
        found += [(path, byte, rng.randrange(8)) for byte in range(min(size, 64))]
    return found


def test_every_flipped_bit_is_noticed(whole: Path) -> None:
    good = shown(read(whole))
    receipts = 0
    for path, byte, bit in flips(whole):
        original = path.read_bytes()
        damaged = bytearray(original)
        damaged[byte] ^= 1 << bit
        path.write_bytes(damaged)
        if path.name.endswith("receipt.json"):
            # A restore does not use the receipts: it must give the very same tree.
            assert shown(read(whole)) == good
            receipts += 1
        else:
            with pytest.raises(CorruptCheckpoint, match=path.name):
                read(whole)
            assert verify(whole)
        path.write_bytes(original)
    assert receipts
    assert shown(read(whole)) == good
    assert verify(whole) == ()


def test_a_flip_in_a_receipt_stops_the_commit(whole: Path) -> None:
    from holdfast.snapshot.sets import commit

    (whole / "manifest.json").unlink()
    receipt = whole / "rank-00000.receipt.json"
    original = receipt.read_bytes()
    for byte in range(0, len(original), 29):
        damaged = bytearray(original)
        damaged[byte] ^= 4
        receipt.write_bytes(damaged)
        with pytest.raises(CorruptCheckpoint, match="receipt"):
            commit(whole, 1)
    receipt.write_bytes(original)
    assert commit(whole, 1).step == 1


def test_truncation_anywhere(whole: Path) -> None:
    for name in ("manifest.json", "rank-00000.safetensors"):
        path = whole / name
        original = path.read_bytes()
        sizes = {0, 1, 7, 8, 9, 4095, 4096, 4097, len(original) // 2, len(original) - 1}
        for size in sorted(n for n in sizes if n < len(original)):
            path.write_bytes(original[:size])
            with pytest.raises(CorruptCheckpoint, match=name):
                read(whole)
            assert verify(whole)
            sets, damage = list_sets(whole.parent)
            assert sets == ()
            assert whole.name in damage
        path.write_bytes(original + b"\0")  # longer is wrong as well
        with pytest.raises(CorruptCheckpoint, match=name):
            read(whole)
        path.write_bytes(original)
    assert len(list_sets(whole.parent)[0]) == 1


@pytest.mark.parametrize("name", ["manifest.json", "rank-00000.safetensors"])
def test_missing_files(whole: Path, name: str) -> None:
    (whole / name).unlink()
    with pytest.raises(CorruptCheckpoint, match=f"{name} is missing"):
        read(whole)
    assert whole.name in list_sets(whole.parent)[1]
    assert any("is missing" in problem for problem in verify(whole))


def test_a_shard_is_never_followed_out_of_its_folder(whole: Path, tmp_path: Path) -> None:
    shard = whole / "rank-00000.safetensors"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpoint):
        read(whole)
    assert whole.name in list_sets(whole.parent)[1]


def test_a_set_under_another_name(whole: Path) -> None:
    moved = whole.with_name("0003-000000000009")
    shutil.copytree(whole, moved)
    with pytest.raises(CorruptCheckpoint, match="step 1 of attempt 0"):
        read(moved)


def test_a_shard_of_another_set(save: Any) -> None:
    one = save({"w": np.zeros(4)}, attempt=0).path
    two = save({"w": np.ones(4)}, attempt=1).path
    shutil.copy(one / "rank-00000.safetensors", two / "rank-00000.safetensors")
    with pytest.raises(CorruptCheckpoint, match="rank-00000"):
        read(two)


def test_tensors_of_several_chunks(save: Any) -> None:
    """A flip in the last byte of the last chunk, and the right tensor is named."""
    size = CHUNK_BYTES + 12345
    state = {"a": np.arange(size, dtype=np.uint8), "b": np.zeros(size, np.uint8)}
    place = save(state).path
    assert read(place)["state"]["a"].tobytes() == state["a"].tobytes()
    (shard,) = place.glob("*.safetensors")
    stored = Manifest.from_json(read_sealed(place / "manifest.json"))
    tensor = stored.arrays["state/b"].pieces[0][1]
    with shard.open("r+b") as file:
        file.seek(stored.shards[0].data_begin + tensor.end - 1)
        file.write(b"\1")
    with pytest.raises(CorruptCheckpoint, match="state/b"):
        read(place)
    assert read_set(place, only="a", kinds="numpy")["state"]["a"][5] == 5  # that one is sound
    assert len(verify(place)) == 1


def test_a_read_error_of_the_disk(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(CorruptCheckpoint, match=r"rank-00000.*Input/output error"):
        read(whole)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_a_manifest_with_a_good_seal_and_bad_contents(whole: Path, data: st.DataObject) -> None:
    """Whatever stands in it, reading ends in CorruptCheckpoint or in the very same tree."""
    path = whole / "manifest.json"
    original = path.read_bytes()
    good = shown(read(whole))
    said = read_sealed(path)
    mutate(said, data)
    try:
        write_sealed(path, said)
        result = shown(read(whole))
        assert result == good
        verify(whole)
    except CorruptCheckpoint:
        pass
    finally:
        path.write_bytes(original)


def mutate(said: Any, data: st.DataObject) -> None:
    """Replace, or remove, one random place in a JSON value."""
    here = said
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        below = here[key]
        if isinstance(below, dict | list) and below and data.draw(st.booleans()):
            here = below
            continue
        if data.draw(st.booleans()):
            del here[key]
        elif isinstance(below, int) and data.draw(st.booleans()):
            here[key] = below + data.draw(st.sampled_from([-1, 1, 64, 2**40, 2**63]))
        else:
            here[key] = data.draw(json_values)
        return


@given(
    json_values | st.dictionaries(st.sampled_from(["format", "version", "tensors"]), json_values)
)
def test_receipts_and_manifests_from_rubbish(said: Any) -> None:
    for kind in (Receipt, Manifest):
        if isinstance(said, dict):
            with pytest.raises(ValueError):
                kind.from_json({"format": "holdfast-checkpoint", "version": 1} | said)


def test_tensors_that_share_bytes(whole: Path) -> None:
    """A thousand arrays in the same megabyte would be a gigabyte in memory."""
    path = whole / "manifest.json"
    said = read_sealed(path)
    said["arrays"]["state/twin"] = said["arrays"]["state/w"]
    write_sealed(path, said)
    with pytest.raises(CorruptCheckpoint, match="another tensor's too"):
        read(whole)


def test_no_memory_for_a_shard_that_is_not_as_long_as_it_should_be(whole: Path) -> None:
    os.truncate(whole / "rank-00000.safetensors", 5000)
    with pytest.raises(CorruptCheckpoint, match="5000 bytes"):
        prepare(whole)


def test_a_newer_format_says_so(whole: Path) -> None:
    said = read_sealed(whole / "manifest.json")
    write_sealed(whole / "manifest.json", said | {"version": 2})
    with pytest.raises(CorruptCheckpoint, match="version 2"):
        read(whole)


def test_the_manifest_is_plain_json(whole: Path) -> None:
    said = json.loads((whole / "manifest.json").read_bytes())
    assert said["sealed"]["arrays"]["state/w"]["shape"] == [50, 30]
