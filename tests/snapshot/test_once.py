"""What ranks hold alike is on disk once: who writes it, and that every rank gets its own state."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptCheckpoint, DataTopologyChanged
from holdfast.snapshot import flush, once, reader, seal, shard
from holdfast.snapshot import receipt as receipts
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.once import AlikeArray, digests, share_out, written_once
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import Receipt, Tensor, receipt_name, shard_name
from holdfast.snapshot.restore import load_path, prepare, read_set
from holdfast.snapshot.seal import seal_buffer, seal_part
from holdfast.snapshot.sets import commit, finish_commits, list_sets, set_name

FLIPS = int(os.environ.get("FLIPS", "200"))
CHUNK = 4096

# --- who writes what ------------------------------------------------------------------------

sizes = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=40)


def some(drawn: list[tuple[int, int]]) -> list[AlikeArray]:
    return [
        AlikeArray(f"state/{number}", nbytes, min(unit, max(nbytes, 1)))
        for number, (nbytes, unit) in enumerate(drawn)
    ]


@given(drawn=sizes, files=st.integers(1, 9))
def test_every_byte_is_in_one_file(drawn: list[tuple[int, int]], files: int) -> None:
    arrays = some(drawn)
    found = share_out(arrays, files)
    assert len(found) == files
    for array in arrays:
        mine = sorted(one[1:] for shares in found for one in shares if one.name == array.name)
        bounds = [0, *(end for _, end in mine)]
        assert [begin for begin, _ in mine] == bounds[:-1]
        assert bounds[-1] == array.nbytes
        assert all(begin < end for begin, end in mine)
        assert all(begin % array.unit_bytes == 0 for begin, _ in mine)


@given(drawn=sizes, files=st.integers(1, 9))
def test_no_file_has_an_array_more_than_its_part(drawn: list[tuple[int, int]], files: int) -> None:
    arrays = some(drawn)
    total = sum(array.nbytes for array in arrays)
    large = [array for array in arrays if array.nbytes * files > total]
    most = max(
        (array.unit_bytes if array in large else array.nbytes for array in arrays), default=0
    )
    found = share_out(arrays, files)
    for shares in found:
        assert abs(sum(end - begin for _, begin, end in shares) - total / files) <= most
    whole = {array.name for array in arrays if array not in large}
    for name in whole:  # small arrays are never cut
        assert sum(one.name == name for shares in found for one in shares) <= 1


@given(drawn=sizes, files=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_order_does_not_matter(drawn: list[tuple[int, int]], files: int, seed: int) -> None:
    arrays = some(drawn)
    mixed = random.Random(seed).sample(arrays, len(arrays))
    assert share_out(mixed, files) == share_out(arrays, files)


def test_a_large_array_is_cut_and_the_others_lie_beside_it() -> None:
    arrays = [AlikeArray("a", 1000, 100), AlikeArray("b", 200, 1), AlikeArray("c", 100, 100)]
    first, second = share_out(arrays, 2)
    assert first == (("a", 0, 600),)
    assert second == (("a", 600, 1000), ("b", 0, 200), ("c", 0, 100))


# --- a set ----------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum for each page, so that a few kilobytes are a large array."""
    for module in (flush, once, reader, receipts, seal, shard):
        monkeypatch.setattr(module, "CHUNK_BYTES", CHUNK)


def in_memory(ram: Path, trees: list[Any], *, step: int = 7) -> Path:
    """A sealed buffer, one tree a rank."""
    ranks = len(trees)
    for rank, tree in enumerate(trees):
        files = BufferFiles(ram, wanted=1, rank=rank, world_size=ranks, local_world_size=ranks)
        assert files.prepare(files.measure(tree, ("state", "model"))) == ""
        files.begin(0, tree, Named(0, step, 0, ("state", "model"), ()), None)
    buffer = ram / buffer_name(0)
    seal_buffer(buffer, ranks, attempt=0, step=step)
    return buffer


def on_disk(tmp_path: Path, trees: list[Any]) -> Path:
    place = tmp_path / "ckpt" / set_name(0, 7)
    place.parent.mkdir()
    done = flush_set(in_memory(tmp_path / "ram", trees), place, attempt=0, step=7)
    assert commit(place, len(trees)).nbytes == done.nbytes
    return place


def model(seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "layers": [{"w": draw.normal(size=(40, 30)), "b": draw.normal(size=30)} for _ in range(6)],
        "table": draw.normal(size=(512, 32)).astype(np.float32),  # 64 KiB: more than all others
        "odd": draw.integers(0, 99, size=1001).astype(np.int8),
        "count": np.int64(seed),
        "empty": np.zeros((0, 3)),
    }


def trees(ranks: int) -> list[dict[str, Any]]:
    """The same model on all, and something of each rank's own."""
    return [
        {
            "state": {**model(), "mean": np.full(50, float(rank)), "rate": 0.1},
            "model": {"a": np.arange(700.0), "b": b"x" * 1000},
            "rng": {"key": np.arange(10), "own": np.arange(rank + 1)},
        }
        for rank in range(ranks)
    ]


def same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, list):
        for one, other in zip(got, want, strict=True):
            same(one, other)
    elif isinstance(want, np.ndarray | np.generic):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes()
    else:
        assert got == want


def bytes_of(tree: Any) -> int:
    if isinstance(tree, dict):
        return sum(map(bytes_of, tree.values()))
    return sum(map(bytes_of, tree)) if isinstance(tree, list) else getattr(tree, "nbytes", 0)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_each_rank_gets_its_own_state(tmp_path: Path, ranks: int, small_chunks: None) -> None:
    place = on_disk(tmp_path, trees(ranks))
    for rank, tree in enumerate(trees(ranks)):
        same(read_set(place, rank=rank, world_size=ranks), tree)
        room = prepare(place, rank, ranks)
        same(read_set(place, rank=rank, world_size=ranks, room=room), tree)
        same(read_set(place, {"state": tree["state"]}, rank=rank, world_size=ranks), tree)
    assert verify(place) == ()


def test_disk_has_one_model_and_each_file_its_part(tmp_path: Path, small_chunks: None) -> None:
    place = on_disk(tmp_path, trees(4))
    files = [(place / shard_name(rank)).stat().st_size for rank in range(4)]
    shared = bytes_of(model()) + 700 * 8 + 1000
    assert shared < sum(files) < shared + 4 * (3 * 4096 + 1000)  # headers, and each rank's own
    assert max(files) - min(files) < 2 * 40 * 30 * 8 + 2 * 4096
    said = json.loads((place / "manifest.json").read_bytes())["sealed"]
    assert said["version"] == 1  # what reads JAX's replicated arrays reads these
    placed = {path: (one["placement"], len(one["pieces"])) for path, one in said["arrays"].items()}
    assert placed["state/layers/0/w"] == ("sharded", 1)
    assert placed["state/table"] == ("sharded", 2)
    assert placed["state/mean"] == ("per-rank", 4)
    assert placed["state/empty"] == ("replicated", 4)
    assert placed["rng/key"] == ("per-rank", 4)  # alike by chance: it is each rank's own


@pytest.mark.parametrize("readers", [1, 2, 4, 7])
def test_any_number_of_ranks_reads_it(tmp_path: Path, readers: int, small_chunks: None) -> None:
    alike = [{"state": model(), "model": {"a": np.arange(700.0)}, "rng": rank} for rank in range(3)]
    place = on_disk(tmp_path, alike)
    for rank in range(readers):
        read = read_set(place, rank=rank, world_size=readers, sections=("state", "model"))
        same(read, {"state": model(), "model": alike[0]["model"]})
    same(load_path(place), model())
    same(
        load_path(place, only="layers/2/*"),
        {"layers": [None, None, model()["layers"][2], *[None] * 3]},
    )
    same(load_path(place, only="table"), {"table": model()["table"]})


def test_what_differs_is_each_ranks_own(tmp_path: Path, small_chunks: None) -> None:
    differing = trees(3)
    differing[1]["state"]["layers"][3]["w"] = np.ones((40, 30))
    differing[2]["state"]["layers"][4] = {"w": np.ones((4, 3), np.float32)}
    del differing[0]["state"]["odd"]
    place = on_disk(tmp_path, differing)
    for rank, tree in enumerate(differing):
        same(read_set(place, rank=rank, world_size=3), tree)
    with pytest.raises(DataTopologyChanged, match="of its own"):
        read_set(place, rank=0, world_size=2, sections=("state",))


floats = st.sampled_from([np.float32, np.float64, np.int8, np.int16, np.complex64])
arrays = st.dictionaries(
    st.sampled_from([*"abcdefgh"]),
    st.tuples(floats, st.lists(st.integers(0, 40), max_size=3), st.integers(0, 1)),
)


@settings(max_examples=30, deadline=None)
@given(drawn=st.lists(arrays, min_size=2, max_size=4))
def test_whatever_the_ranks_hold(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, Any]]
) -> None:
    def tree(described: dict[str, Any]) -> Any:
        return {
            "state": {
                name: np.full(shape, value, dtype)
                for name, (dtype, shape, value) in described.items()
            }
        }

    ranks = [tree({**drawn[0], **described}) for described in drawn]
    with pytest.MonkeyPatch.context() as patch:
        for module in (flush, once, reader, receipts, seal, shard):
            patch.setattr(module, "CHUNK_BYTES", CHUNK)
        place = on_disk(tmp_path_factory.mktemp("any"), ranks)
        for rank, want in enumerate(ranks):
            same(read_set(place, rank=rank, world_size=len(ranks)), want)
        assert verify(place) == ()


def test_every_flipped_bit_of_any_file_is_noticed(tmp_path: Path, small_chunks: None) -> None:
    """By each rank that reads it: a header by its own, an array by all that have it."""
    place = on_disk(tmp_path, trees(3))
    rng = random.Random(5)
    headers = json.loads((place / "manifest.json").read_bytes())["sealed"]["shards"]
    for number in range(FLIPS):
        rank = rng.randrange(3)
        path = place / shard_name(rank)
        byte, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip(path, byte, bit)
        with pytest.raises(CorruptCheckpoint, match=path.name):
            read_set(place, rank=rank, world_size=3)
        if byte >= headers[rank]["data_begin"] and number % 10 == 0:
            noticed = [not reads(place, other) for other in range(3)]
            assert noticed[rank]
            assert sum(noticed) in (1, 3)
        flip(path, byte, bit)
    for rank, tree in enumerate(trees(3)):
        same(read_set(place, rank=rank, world_size=3), tree)


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def reads(place: Path, rank: int) -> bool:
    try:
        read_set(place, rank=rank, world_size=3)
    except CorruptCheckpoint:
        return False
    return True


def test_a_missing_or_short_file_is_noticed_by_all(tmp_path: Path, small_chunks: None) -> None:
    place = on_disk(tmp_path, trees(3))
    path = place / shard_name(1)
    whole = path.read_bytes()
    for left in (b"", whole[: len(whole) // 2]):
        path.write_bytes(left)
        assert place.name in list_sets(place.parent)[1]
        assert not any(reads(place, rank) for rank in range(3))
    path.unlink()
    assert "is missing" in list_sets(place.parent)[1][place.name]
    assert not any(reads(place, rank) for rank in range(3))


def test_what_is_bad_in_memory_is_not_written(tmp_path: Path, small_chunks: None) -> None:
    """Of what is written once, the other ranks' copies are not read: that copy was compared."""
    place = tmp_path / "ckpt" / set_name(0, 7)
    place.parent.mkdir()
    buffer = in_memory(tmp_path / "ram", trees(2))
    good = {rank: (buffer / shard_name(rank)).read_bytes() for rank in range(2)}
    rng = random.Random(6)
    words = []
    for _ in range(40):
        rank = rng.randrange(2)
        flip(buffer / shard_name(rank), rng.randrange(len(good[rank])), rng.randrange(8))
        try:
            flush_set(buffer, place, attempt=0, step=7)
            commit(place, 2)
            for reader_rank, tree in enumerate(trees(2)):
                same(read_set(place, rank=reader_rank, world_size=2), tree)
            words.append("")
        except CorruptCheckpoint as error:
            words.append(str(error))
        shutil.rmtree(place, ignore_errors=True)
        (buffer / shard_name(rank)).write_bytes(good[rank])
    assert "" in words
    assert 5 < sum("is not what was sealed" in one for one in words) == len(words) - words.count("")


def test_a_killed_flush_is_done_again(tmp_path: Path, small_chunks: None) -> None:
    """Also over what was written of it in another way, as by a version that wrote it all."""
    place = tmp_path / "ckpt" / set_name(0, 7)
    place.parent.mkdir()
    buffer = in_memory(tmp_path / "ram", trees(2))
    place.mkdir()
    for name in (shard_name(1), "rank-00001.receipt.json"):
        shutil.copy(buffer / name, place / name)
    assert finish_commits(place.parent).lacking == (place.name,)
    flush_set(buffer, place, attempt=0, step=7)
    assert [one.name for one in finish_commits(place.parent).done] == [place.name]
    for rank, tree in enumerate(trees(2)):
        same(read_set(place, rank=rank, world_size=2), tree)


@pytest.mark.parametrize("rank", [0, 1])
def test_files_of_two_ways_make_no_set(tmp_path: Path, small_chunks: None, rank: int) -> None:
    """Else an array that only one of them has would be missing where the other one is read."""
    place = on_disk(tmp_path, trees(2))
    (place / "manifest.json").unlink()
    for name in (shard_name(rank), receipt_name(rank)):
        shutil.copy(tmp_path / "ram" / buffer_name(0) / name, place / name)
    with pytest.raises(CorruptCheckpoint, match="do not belong together"):
        commit(place, 2)
    assert finish_commits(place.parent).lacking == (place.name,)


def test_the_files_are_plain_safetensors_under_the_arrays_paths(
    tmp_path: Path, small_chunks: None
) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    place = on_disk(tmp_path, trees(3))
    found: dict[str, Any] = {}
    for rank in range(3):
        found |= safetensors.load_file(place / shard_name(rank))
    want = model()
    for number, layer in enumerate(want["layers"]):
        same(found[f"state/layers/{number}/w"], layer["w"])
    pieces = [found[name] for name in sorted(found) if name.startswith("state/table[")]
    assert sum(map(len, pieces)) == 512


# --- several hosts --------------------------------------------------------------------------


def on_hosts(tmp_path: Path, trees: list[Any], each: list[int]) -> tuple[Path, list[Any]]:
    """A set of several hosts with so many ranks each, flushed by all of them; and what they say."""
    place = tmp_path / "ckpt" / set_name(0, 7)
    place.parent.mkdir()
    parts = []
    for host, count in enumerate(each):
        first = sum(each[:host])
        ram = tmp_path / f"ram-{host}"
        for number, tree in enumerate(trees[first : first + count]):
            files = BufferFiles(
                ram, wanted=1, rank=first + number, world_size=len(trees), local_world_size=count,
                local_rank=number,
            )  # fmt: skip
            assert files.prepare(files.measure(tree, ("state", "model"))) == ""
            files.begin(0, tree, Named(0, 7, 0, ("state", "model"), ()), None)
        ranks, buffer = range(first, first + count), ram / buffer_name(0)
        parts.append((buffer, seal_part(buffer, len(trees), attempt=0, step=7, ranks=ranks)[1]))
    alike = tuple(pair for pair in parts[0][1] if all(pair in said for _, said in parts))
    for buffer, _ in parts:
        flush_set(buffer, place, attempt=0, step=7, alike=alike)
    commit(place, len(trees))
    return place, [said for _, said in parts]


@pytest.fixture
def least(monkeypatch: pytest.MonkeyPatch, small_chunks: None) -> int:
    monkeypatch.setattr(once, "LEAST_AMONG_HOSTS_BYTES", 1000)
    return 1000


@pytest.mark.parametrize("each", [[1, 1], [2, 2], [1, 1, 1], [3, 1]])
def test_several_hosts_write_one_model(tmp_path: Path, each: list[int], least: int) -> None:
    all_trees = trees(sum(each))
    place, said = on_hosts(tmp_path, all_trees, each)
    assert [section for section, _ in said[0]] == ["model", "state"]
    assert len(set(said)) == 1
    for rank, tree in enumerate(all_trees):
        same(read_set(place, rank=rank, world_size=len(all_trees)), tree)
    assert verify(place) == ()
    shards = [place / shard_name(rank) for rank in range(len(all_trees))]
    shared = bytes_of(model()) + 700 * 8 + 1000
    own = 3 * 4096 + 6 * 240 + 1000  # headers, what is small, and what is each rank's
    assert sum(shard.stat().st_size for shard in shards) < shared + len(shards) * own


def test_a_section_that_differs_between_hosts_is_written_by_each_rank(
    tmp_path: Path, least: int
) -> None:
    """As an optimizer's state that is sharded by hand, under the same names on each of them."""
    differing = trees(2)
    differing[1]["state"]["table"] = np.ones((512, 32), np.float32)
    place, said = on_hosts(tmp_path, differing, [1, 1])
    assert [one == other for one, other in zip(*said, strict=True)] == [True, False]
    for rank, tree in enumerate(differing):
        same(read_set(place, rank=rank, world_size=2), tree)


def test_hosts_that_hold_nothing_alike_write_all_of_it(tmp_path: Path, least: int) -> None:
    differing = [{"state": model(rank), "model": {}} for rank in range(2)]
    place, _ = on_hosts(tmp_path, differing, [1, 1])
    for rank, tree in enumerate(differing):
        same(read_set(place, rank=rank, world_size=2), tree)


def test_a_host_that_holds_something_else_than_it_said_writes_nothing(
    tmp_path: Path, least: int
) -> None:
    place, _ = on_hosts(tmp_path, trees(2), [1, 1])
    shutil.rmtree(place)
    buffer = tmp_path / "ram-0" / buffer_name(0)
    with pytest.raises(CorruptCheckpoint, match="not what was said when it was sealed"):
        flush_set(buffer, place, attempt=0, step=7, alike=(("state", "0" * 16),))
    assert not place.exists()


def test_hosts_that_were_told_otherwise_make_no_set(tmp_path: Path, least: int) -> None:
    """As when a new controller, which has heard no digests, has one of them write it again."""
    place, _ = on_hosts(tmp_path, trees(2), [1, 1])
    (place / "manifest.json").unlink()
    flush_set(tmp_path / "ram-0" / buffer_name(0), place, attempt=0, step=7)
    with pytest.raises(CorruptCheckpoint, match="do not belong together"):
        commit(place, 2)
    flush_set(tmp_path / "ram-1" / buffer_name(0), place, attempt=0, step=7)
    commit(place, 2)
    for rank, tree in enumerate(trees(2)):
        same(read_set(place, rank=rank, world_size=2), tree)


def receipt(rank: int, tensors: list[tuple[str, Any, int, str]]) -> Receipt:
    """Of a shard with these tensors of bytes: path, index, bytes, checksum."""
    found, at = [], 0
    for path, index, nbytes, digest in tensors:
        place = Tensor(path, "uint8", (4 * nbytes,), (nbytes,), index, at, at + nbytes, (digest,))
        found.append(place if index else replace(place, global_shape=(nbytes,)))
        at += nbytes
    return Receipt(0, 1, rank, 4, at, 0, "", {"state": ""}, (), tuple(found))


@given(
    holders=st.lists(st.tuples(st.integers(0, 1), st.integers(2, 3)), min_size=4, max_size=4),
    nbytes=st.integers(1, 40),
    whole=st.lists(st.integers(1, 40), max_size=6),
)
def test_a_slice_that_one_rank_of_each_host_stores_is_written_by_one_host(
    holders: list[tuple[int, int]], nbytes: int, whole: list[int]
) -> None:
    """As of a JAX array that two hosts hold, four slices each. Nothing else is left out."""
    all_of = [(f"state/{n}", None, size, f"{n}") for n, size in enumerate(whole)]
    tensors: list[list[Any]] = [[*all_of, ("state/own", None, 3, f"own {r}")] for r in range(4)]
    for number, ranks in enumerate(holders):
        index = ((number * nbytes, (number + 1) * nbytes),)
        for rank in ranks:
            tensors[rank].append(("state/cut", index, nbytes, f"slice {number}"))
    hosts = [[receipt(rank, tensors[rank]) for rank in host] for host in ((0, 1), (2, 3))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(once, "LEAST_AMONG_HOSTS_BYTES", 1)
        said = [digests(host) for host in hosts]
        assert said[0] == said[1]
        plans = [written_once(host, said[0], 4) for host in hosts]
    assert plans[0].mark == plans[1].mark
    stored = [
        (one.tensor.name, one.tensor.nbytes, one.rank, rank)
        for plan, host in zip(plans, hosts, strict=True)
        for of, written in zip(host, plan.files, strict=True)
        for rank, one in ((of.rank, one) for one in written)
    ]
    assert all(held // 2 == rank // 2 for _, _, held, rank in stored)  # from its own host
    counts = Counter(name for name, *_ in stored)
    assert counts.pop("state/own") == 4
    assert set(counts.values()) == {1}
    assert len(counts) == len(whole) + 4
