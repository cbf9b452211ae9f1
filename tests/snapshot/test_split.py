"""Ranks that copy a part each: the parts make the whole, and the seal compares and completes."""

from __future__ import annotations

import itertools
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptCheckpoint
from holdfast.snapshot import ram, split
from holdfast.snapshot.arrays import describe
from holdfast.snapshot.compared import is_below
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import shard_name
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.seal import SealedPart, seal_part
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.split import part_of

SHARED = ("state", "parts/model", "parts/optimizer")
FLIPS = int(os.environ.get("FLIPS", "1000"))
REPLICATED = ("parts/model/w", "parts/model/big", "parts/model/scale", "parts/optimizer/state")


def tree(rank: int, step: int = 1) -> dict[str, Any]:
    draw = np.random.default_rng(step)
    weights = {
        "w": torch.from_numpy(draw.normal(size=(30, 20))),
        "big": torch.from_numpy(draw.normal(size=(700, 64))).to(torch.bfloat16),
        "scale": torch.tensor(float(step)),
        "running_mean": torch.full((20,), float(rank)),
    }
    moments = {
        index: {"step": torch.tensor(step), "m": torch.from_numpy(draw.normal(size=(30, 20)))}
        for index in range(3)
    }
    return {
        "state": None,
        "parts": {"model": weights, "optimizer": {"state": moments, "param_groups": [{"lr": 0.1}]}},
        "rng": {"drawn": np.arange(rank + 1)},
    }


def same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
    elif isinstance(want, np.ndarray):
        assert got.tobytes() == want.tobytes()
    else:
        assert got == want


class Host:
    """All ranks of a run, and their buffers."""

    def __init__(self, ram: Path, ranks: int) -> None:
        self.ram, self.ranks = ram, ranks
        self.files = [
            BufferFiles(ram, wanted=1, rank=rank, world_size=ranks, local_world_size=ranks)
            for rank in range(ranks)
        ]

    def copy(self, trees: list[Any], *, in_parts: bool, replicated: Any = REPLICATED) -> None:
        for rank, (files, one) in enumerate(zip(self.files, trees, strict=True)):
            if not files.ready:
                assert files.prepare(files.measure(one, SHARED)) == ""
            declared = replicated[rank] if isinstance(replicated, list) else replicated
            files.begin(0, one, Named(0, 1, 1, SHARED, (), declared, in_parts), None)

    def seal(self) -> SealedPart:
        return seal_part(self.buffer, self.ranks, attempt=0, step=1)

    @property
    def buffer(self) -> Path:
        return self.ram / buffer_name(0)

    def sizes(self) -> list[int]:
        return [(self.buffer / shard_name(rank)).stat().st_size for rank in range(self.ranks)]


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST_CUT_BYTES", 1024)
    split._parts.cache_clear()


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_parts_of_all_ranks_are_the_whole(tmp_path: Path, ranks: int, small_cuts: None) -> None:
    host = Host(tmp_path / "ram", ranks)
    trees = [tree(rank) for rank in range(ranks)]
    host.copy(trees, in_parts=False)
    whole = host.sizes()
    host.copy(trees, in_parts=True)
    sealed = host.seal()
    assert not sealed.comparison.is_made
    assert host.sizes() == whole, "the next whole set finds its pages"
    for rank, want in enumerate(trees):
        same(read_set(host.buffer, rank=rank, world_size=ranks), want)
        room = prepare(host.buffer, rank, ranks)
        same(read_set(host.buffer, rank=rank, world_size=ranks, room=room), want)
    assert verify(host.buffer) == ()
    place = tmp_path / "ckpt" / set_name(0, 1)
    place.parent.mkdir()
    flush_set(host.buffer, place, attempt=0, step=1)
    headers = ranks * 2 * 4096
    assert commit(place, ranks).nbytes < whole[0] + headers
    for rank, want in enumerate(trees):
        same(read_set(place, rank=rank, world_size=ranks), want)
    assert verify(place) == ()


def test_a_tree_that_is_described_as_the_last_one_was(
    tmp_path: Path, small_cuts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts and whole in turn: each is known after its first copy."""
    host = Host(tmp_path / "ram", 3)
    for step in range(1, 9):
        if step == 5:
            monkeypatch.setattr(ram, "flatten", lambda *_: pytest.fail("described anew"))
        trees = [tree(rank, step) for rank in range(3)]
        host.copy(trees, in_parts=step % 2 == 0)
        assert host.seal().comparison == (step % 2 == 1, ())
        for rank, want in enumerate(trees):
            same(read_set(host.buffer, rank=rank, world_size=3), want)


def test_a_whole_set_is_compared(tmp_path: Path) -> None:
    host = Host(tmp_path / "ram", 3)
    host.copy([tree(rank) for rank in range(3)], in_parts=False)
    assert host.seal().comparison == (True, ())


def test_a_planted_difference_is_seen_whatever_it_is(tmp_path: Path) -> None:
    """One bit of one replica; what is each rank's own is not looked at."""
    host, rng = Host(tmp_path / "ram", 3), random.Random(7)
    for _ in range(50):
        trees = [tree(rank) for rank in range(3)]
        parts, rank = trees[rng.randrange(3)]["parts"], -1
        rank = next(n for n, one in enumerate(trees) if one["parts"] is parts)
        moments = parts["optimizer"]["state"]
        found = {f"parts/model/{name}": parts["model"][name] for name in ("w", "big", "scale")}
        for index, name in itertools.product(range(3), ("step", "m")):
            found[f"parts/optimizer/state/{index}/{name}"] = moments[index][name]
        path, tensor = rng.choice(list(found.items()))
        data = tensor.reshape(-1).view(torch.uint8)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        host.copy(trees, in_parts=False)
        (is_made, (one,)) = host.seal().comparison
        assert is_made
        assert one.array == path
        digests = [replica.digest for replica in one.replicas]
        assert [digests.count(digest) for digest in digests] == [
            1 if other == rank else 2 for other in range(3)
        ]


def test_what_the_ranks_declare_otherwise_is_not_compared(tmp_path: Path) -> None:
    host, trees = Host(tmp_path / "ram", 2), [tree(0), tree(1)]
    host.copy(trees, in_parts=False, replicated=[REPLICATED, REPLICATED[:1]])
    assert not host.seal().comparison.is_made
    host.copy(trees, in_parts=False, replicated=())
    assert not host.seal().comparison.is_made


def test_an_array_that_one_rank_lacks_differs(tmp_path: Path) -> None:
    host, trees = Host(tmp_path / "ram", 2), [tree(0), tree(1)]
    del trees[1]["parts"]["model"]["w"]
    host.copy(trees, in_parts=False)
    (is_made, differing) = host.seal().comparison
    assert is_made
    assert [one.array for one in differing] == ["parts/model/w"]


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("change", ["lacks", "more", "shape", "declared"])
def test_parts_of_trees_that_differ_are_no_set(tmp_path: Path, where: int, change: str) -> None:
    """Never a set in which a rank would miss an array of its own."""
    host, trees = Host(tmp_path / "ram", 2), [tree(0), tree(1)]
    model = trees[where]["parts"]["model"]
    replicated: list[tuple[str, ...]] = [REPLICATED, REPLICATED]
    if change == "lacks":
        del model["big"]
    elif change == "more":
        model["w"], model["scale"] = model["w"], torch.ones(100_000)
    elif change == "shape":
        model["w"] = torch.ones(10_000)
    else:
        replicated[where] = REPLICATED[:2]
    host.copy(trees, in_parts=True, replicated=replicated)
    try:
        host.seal()
    except CorruptCheckpoint:
        return
    for rank, want in enumerate(trees):  # by chance there is enough of it
        same(read_set(host.buffer, rank=rank, world_size=2), want)


kinds = st.sampled_from([torch.float32, torch.float64, torch.int8, torch.bfloat16, torch.bool])


@settings(max_examples=100, deadline=None)
@given(
    shapes=st.lists(st.tuples(kinds, st.lists(st.integers(0, 30), max_size=3)), max_size=12),
    ranks=st.integers(1, 8),
    cut=st.integers(1, 400),
)
def test_every_element_is_in_one_part(shapes: list[Any], ranks: int, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "LEAST_CUT_BYTES", cut)
        split._parts.cache_clear()
        leaves = [
            leaf
            for number, (dtype, shape) in enumerate(shapes)
            if (leaf := describe(f"m/{number}", torch.ones(shape, dtype=dtype))) is not None
        ]
        parts = [part_of(leaves, ("m",), number, ranks) for number in range(ranks)]
    for number, leaf in enumerate(leaves):
        found = np.zeros(leaf.shape, int)
        for part in parts:
            for piece in part[number].pieces:
                if piece.index is None:
                    assert 0 in leaf.shape
                    continue
                assert tuple(piece.source.shape) == tuple(piece.shape)
                found[tuple(slice(*pair) for pair in piece.index)] += 1
        assert (found == 1).all()
    held = [sum(leaf.nbytes(piece) for leaf in part for piece in leaf.pieces) for part in parts]
    largest = max((leaf.nbytes(piece) for leaf in leaves for piece in leaf.pieces), default=0)
    assert max(held) - min(held) <= 2 * largest


def test_prefixes_end_where_a_path_does() -> None:
    below = {"parts/model/w", "parts/optimizer/state"}
    assert is_below("parts/model/w", below)
    assert is_below("parts/optimizer/state/0/m", below)
    assert not is_below("parts/model/w2", below)
    assert not is_below("parts/optimizer", below)


def later(rank: int, *, is_there: bool = True) -> dict[str, Any]:
    """A tree to whose optimizer a state has come, or has not, that each rank has of its own."""
    one = tree(rank)
    if is_there:
        one["parts"]["optimizer"]["state"][0]["residual"] = torch.full((5,), float(rank))
    return one


def read_by_all(host: Host, trees: list[Any]) -> None:
    for rank, want in enumerate(trees):
        same(read_set(host.buffer, rank=rank, world_size=len(trees)), want)


def test_what_comes_after_the_first_whole_set_is_each_ranks_own(tmp_path: Path) -> None:
    host, trees = Host(tmp_path / "ram", 2), [later(rank) for rank in range(2)]
    for rank, files in enumerate(host.files):
        assert files.prepare(files.measure(trees[rank], SHARED)) == ""
    host.copy([later(rank, is_there=False) for rank in range(2)], in_parts=False)
    for in_parts in (True, False, True):
        host.copy(trees, in_parts=in_parts)
        sealed = host.seal()
        assert sealed.comparison.is_made is not in_parts
        assert sealed.comparison.differing == ()
        read_by_all(host, trees)


def test_what_was_away_in_a_whole_set_is_each_ranks_own_from_then_on(tmp_path: Path) -> None:
    host, trees = Host(tmp_path / "ram", 2), [later(rank) for rank in range(2)]
    host.copy([later(0)] * 2, in_parts=False)
    host.copy([later(0)] * 2, in_parts=True)  # here the ranks share it, since they are equal
    host.seal()
    read_by_all(host, [later(0)] * 2)
    host.copy([later(rank, is_there=False) for rank in range(2)], in_parts=False)
    for in_parts in (True, False, True):
        host.copy(trees, in_parts=in_parts)
        assert host.seal().comparison.differing == ()
        read_by_all(host, trees)


def test_what_was_there_from_the_first_is_compared(tmp_path: Path) -> None:
    host = Host(tmp_path / "ram", 2)
    host.copy([later(rank) for rank in range(2)], in_parts=False)
    (one,) = host.seal().comparison.differing
    assert one.array == "parts/optimizer/state/0/residual"


def test_a_flipped_bit_in_any_part_is_noticed(tmp_path: Path) -> None:
    host, trees = Host(tmp_path / "ram", 2), [tree(rank) for rank in range(2)]
    host.copy(trees, in_parts=False)
    host.copy(trees, in_parts=True)
    host.seal()
    draw = random.Random(0)
    for _ in range(FLIPS):
        path = host.buffer / shard_name(draw.randrange(2))
        at, bit = draw.randrange(end_of_data(path)), draw.randrange(8)
        flip(path, at, bit)
        with pytest.raises(CorruptCheckpoint):
            [read_set(host.buffer, rank=rank, world_size=2) for rank in range(2)]
        flip(path, at, bit)
    read_by_all(host, trees)


def end_of_data(path: Path) -> int:
    """What lies behind it is room for a whole set."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    entries = (one for name, one in header.items() if name != "__metadata__")
    return 8 + length + int(max(one["data_offsets"][1] for one in entries))


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (was,) = file.read(1)
        file.seek(at)
        file.write(bytes([was ^ 1 << bit]))
