"""DTensors: which boxes a rank holds, against PyTorch's own arithmetic; sets of them on any mesh.

Of the ranks of a process group that only pretends to be one, one is there at a time.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_dcp
from hypothesis import given
from hypothesis import strategies as st
from tests.snapshot.test_slices import Counted
from torch.distributed.checkpoint import state_dict as by_name
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from holdfast.adapters import dcp
from holdfast.errors import DataTopologyChanged, Unstorable
from holdfast.session.contents import Contents
from holdfast.session.part_layouts import PartLayouts
from holdfast.snapshot.arrays import describe, on_host
from holdfast.snapshot.dtensor import Cut, Placing, placing
from holdfast.snapshot.parts import load_part, part_state
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.receipt import CHUNK_BYTES
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.sets import commit, read_manifest
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

shapes = st.lists(st.integers(0, 9), min_size=0, max_size=3).map(tuple)
meshes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def layouts(draw: Any) -> tuple[Any, Any, Any]:
    """A shape, a mesh, and a placement for each of its dimensions."""
    shape, mesh = draw(shapes), draw(meshes)
    cuts = st.builds(Cut, st.integers(0, max(len(shape) - 1, 0)), st.integers(1, 3))
    one = st.one_of(st.none(), cuts) if shape else st.none()
    return shape, mesh, draw(st.tuples(*[one] * len(mesh)))


def as_torch(cut: Cut | None) -> Any:
    if cut is None:
        return Replicate()
    return Shard(cut.dim) if cut.first == 1 else _StridedShard(cut.dim, split_factor=cut.first)


def all_ranks(layout: Any) -> Iterator[tuple[tuple[int, ...], Placing]]:
    shape, mesh, placements = layout
    for place in itertools.product(*map(range, mesh)):
        yield place, placing(shape, mesh, place, placements)


def cells(placed: Placing) -> Iterator[tuple[int, ...]]:
    for box in placed.boxes:
        yield from itertools.product(*[range(*one) for one in box.whole])


@given(layouts())
def test_every_element_is_stored_exactly_once(layout: Any) -> None:
    shape = layout[0]
    for chosen in range(math.prod(m for m, cut in zip(*layout[1:], strict=True) if cut is None)):
        stored = [
            cell
            for _, placed in all_ranks(layout)
            if placed.replica == chosen
            for cell in cells(placed)
        ]
        assert sorted(stored) == list(itertools.product(*map(range, shape)))


@given(layouts())
def test_shapes_and_offsets_are_those_of_pytorch(layout: Any) -> None:
    shape, mesh, cuts = layout
    placements = [*map(as_torch, cuts)]
    for place, placed in all_ranks(layout):
        local, offset = _compute_local_shape_and_global_offset(shape, mesh, [*place], placements)
        assert placed.shape == local
        if math.prod(local):
            assert tuple(start for start, _ in placed.boxes[0].whole) == offset


@given(layouts())
def test_elements_are_those_that_pytorch_gives_a_rank(layout: Any) -> None:
    shape, mesh, cuts = layout
    whole = torch.arange(math.prod(shape)).reshape(shape)
    for place, placed in all_ranks(layout):
        local = whole
        for cut, parts, number in zip(cuts, mesh, place, strict=True):
            if cut is not None:
                split = as_torch(cut)._split_tensor
                local = split(local, parts, with_padding=False, contiguous=False)[0][number]
        found = torch.full(placed.shape, -1)
        for box in placed.boxes:
            found[box.local] = whole[tuple(slice(*one) for one in box.whole)]
        assert torch.equal(found, local)


# --- tensors ------------------------------------------------------------------------------------


def as_rank(rank: int, ranks: int, act: Callable[[], Any]) -> Any:
    """What a rank does; no collective is allowed to it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        with CommDebugMode() as comm:
            result = act()
        assert comm.get_total_counts() == 0
        return result
    finally:
        dist.destroy_process_group()


def spread(value: Any, mesh: tuple[int, ...], placements: Any) -> Any:
    # With a name of its own no rank meets what PyTorch remembers of another one's equal mesh.
    names = [f"{axis} of rank {dist.get_rank()}" for axis in range(len(mesh))]
    on = init_device_mesh("cpu", mesh, mesh_dim_names=tuple(names))
    return distribute_tensor(value, on, placements, src_data_rank=None)


class Model(torch.nn.Module):
    """Two weights that lie somehow, of which one has fewer rows than there are ranks."""

    def __init__(self, mesh: tuple[int, ...], placements: Any, fill: int = 0) -> None:
        super().__init__()
        for name, shape in (("large", (11, 6)), ("small", (2, 3))):
            value = fill + torch.arange(math.prod(shape), dtype=torch.bfloat16).reshape(shape)
            setattr(self, name, torch.nn.Parameter(spread(value * fill, mesh, placements)))
        self.register_buffer("count", torch.tensor(fill))


MESHES: list[Any] = [
    ((1,), [Shard(0)]),
    ((3,), [Shard(0)]),
    ((4,), [Shard(1)]),
    ((2, 2), [Replicate(), Shard(0)]),
    ((2, 2), [_StridedShard(0, split_factor=2), Shard(0)]),
    ((2, 3), [Shard(0), Shard(1)]),
    ((2,), [Replicate()]),
]


def saved(place: Path, mesh: tuple[int, ...], placements: Any) -> None:
    ranks = math.prod(mesh)

    def save(rank: int) -> None:
        tree = {"parts": {"model": part_state(Model(mesh, placements, 3), "parts/model")}}
        captured = Staging().capture(tree, rank, ranks, shared=("state", "parts/model"))
        write_shard(place, captured, attempt=0, step=1, rank=rank, world_size=ranks)

    for rank in range(ranks):
        as_rank(rank, ranks, lambda rank=rank: save(rank))
    commit(place, ranks)


@pytest.mark.parametrize("wrote", MESHES, ids=str)
@pytest.mark.parametrize("reads", MESHES, ids=str)
def test_a_set_is_read_on_any_mesh(tmp_path: Path, wrote: Any, reads: Any) -> None:
    place = tmp_path / "0000-000000000001"
    saved(place, *wrote)
    pieces = read_manifest(place).arrays["parts/model/large"].pieces
    assert sum(tensor.nbytes for _, tensor in pieces) == 11 * 6 * 2, "each element is there once"
    mesh, placements = reads
    ranks = math.prod(mesh)

    def restored(rank: int) -> None:
        model, wanted = Model(mesh, placements), Model(mesh, placements, 3)
        layout = PartLayouts({"model": model})
        read = read_set(place, rank=rank, world_size=ranks, layout=layout)["parts"]["model"]
        assert type(read["large"]) is DTensor
        load_part(model, read, "parts/model")
        for name, value in wanted.state_dict().items():
            mine = model.state_dict()[name]
            both = [getattr(one, "_local_tensor", one) for one in (mine, value)]
            assert torch.equal(*both), name

    for rank in range(ranks):
        as_rank(rank, ranks, lambda rank=rank: restored(rank))


def test_what_was_read_before_the_part_was_there_fits_it() -> None:
    whole = {"large": torch.ones(11, 6), "small": torch.ones(2, 3), "count": torch.tensor(1)}

    def fit() -> None:
        model = Model((3,), [Shard(0)])  # rank 2 has the last rows
        found = PartLayouts({"model": model}).fit(whole, "parts/model")
        assert tuple(found["large"]._local_tensor.shape) == (3, 6)
        assert tuple(found["small"]._local_tensor.shape) == (0, 3)
        assert found["count"] is whole["count"]

    as_rank(2, 3, fit)


@pytest.mark.parametrize("tracked", ["before the restore", "after it"])
def test_a_sharded_model_and_its_optimizer_come_back(tmp_path: Path, tracked: str) -> None:
    """As the session saves and restores them; before a restore an optimizer has no state."""
    place = tmp_path / "0000-000000000001"
    locals_of: dict[int, Any] = {}

    def train(contents: Contents) -> Any:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=(f"rank {dist.get_rank()}",))
        model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 1))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        contents.track({"model": model, "optimizer": optimizer})
        return model, optimizer

    def mine(contents: Contents) -> list[bytes]:
        captured = Staging().capture(contents.gather(None), shared=contents.shared())
        return [bytes(captured.data), str(captured.structure).encode()]

    def save(rank: int) -> None:
        contents = Contents()
        model, optimizer = train(contents)
        with torch.no_grad():
            for number, one in enumerate(model.parameters()):
                one.grad = torch.full_like(one, number - 0.5)
        optimizer.step()
        locals_of[rank] = mine(contents)
        tree, shared = contents.gather(None), contents.shared()
        captured = Staging().capture(tree, rank, 2, shared=shared)
        write_shard(place, captured, attempt=0, step=1, rank=rank, world_size=2)

    def restore(rank: int) -> None:
        contents = Contents()
        if tracked == "before the restore":
            train(contents)
        contents.apply(read_set(place, rank=rank, world_size=2, layout=contents.layouts()))
        if tracked == "after it":
            train(contents)
            contents.restore_generators()
        assert mine(contents) == locals_of[rank]

    for act in (save, restore):
        for rank in range(2):
            as_rank(rank, 2, lambda act=act, rank=rank: act(rank))
        if act is save:
            commit(place, 2)


def test_a_rank_reads_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the checksums, of which there is one for each 16 MiB."""
    place, rows = tmp_path / "0000-000000000001", (3, CHUNK_BYTES)
    model = torch.nn.Module()
    model.register_buffer("w", torch.zeros(rows, dtype=torch.uint8))
    captured = Staging().capture({"parts": {"m": model.state_dict()}}, shared=("parts/m",))
    write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
    commit(place, 1)
    counted = Counted()
    monkeypatch.setattr(os, "preadv", counted)

    def read(rank: int) -> None:
        sharded = torch.nn.Module()
        sharded.register_buffer("w", spread(model.w, (3,), [Shard(0)]))
        layout = PartLayouts({"m": sharded})
        found = read_set(place, rank=rank, world_size=3, layout=layout)["parts"]["m"]["w"]
        assert torch.equal(found.to_local(), model.w[rank : rank + 1])

    as_rank(1, 3, lambda: read(1))
    assert CHUNK_BYTES <= counted.nbytes < 1.1 * CHUNK_BYTES


def test_a_checkpoint_of_pytorchs_is_read_in_parts(tmp_path: Path) -> None:
    """By `dcp.load`, which may not wait for other ranks either."""
    torch.manual_seed(3)
    one = torch.nn.Linear(5, 7)
    adam = torch.optim.AdamW(one.parameters())
    one(torch.ones(5)).sum().backward()
    adam.step()
    state = {"model": one.state_dict(), "adam": by_name.get_optimizer_state_dict(one, adam)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)

    def load(rank: int) -> None:
        mesh = init_device_mesh("cpu", (3,), mesh_dim_names=(f"rank {rank}",))
        model = torch.nn.Linear(5, 7)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        dcp.load(tmp_path / "dcp", model=model, adam=optimizer)
        rows = slice(3 * rank, 3 * rank + 3)
        assert torch.equal(model.weight.to_local(), one.weight[rows])
        mine, whole = (of.state_dict()["state"][0] for of in (optimizer, adam))
        assert torch.equal(mine["exp_avg"].to_local(), whole["exp_avg"][rows])
        assert mine["step"] == 1

    for rank in range(3):
        as_rank(rank, 3, lambda rank=rank: load(rank))


def test_the_state_of_an_optimizer_lies_as_its_parameters() -> None:
    from holdfast.snapshot.arrays import ArrayKind
    from holdfast.snapshot.structure import Array

    def look() -> None:
        model = Model((3,), [Shard(0)])
        layout = PartLayouts({"adam": torch.optim.AdamW(model.parameters())})

        def of(path: str, shape: tuple[int, ...]) -> Any:
            array = Array(f"parts/adam/{path}", ArrayKind.TORCH, "float32", shape, None, False)
            return layout(array, True)

        assert of("state/0/exp_avg", (11, 6)).placements == (Shard(0),)
        assert of("state/1/exp_avg", (2, 3)).shape == (2, 3)
        assert of("state/0/step", ()) is None
        assert of("state/7/exp_avg", (11, 6)) is None
        assert of("param_groups/0/lr", ()) is None

    as_rank(0, 3, look)


def test_of_what_several_ranks_hold_alike_one_stores_it_by_turns() -> None:
    """Which one goes by the name, so that they share the work."""

    def count(rank: int) -> list[int]:
        value = spread(torch.ones(4), (2, 2), [Replicate(), Shard(0)])
        return [len(describe(f"parts/m/{n}", value).pieces) for n in range(40)]

    by_rank = [as_rank(rank, 4, lambda rank=rank: count(rank)) for rank in range(4)]
    assert [a + b for a, b in zip(by_rank[0], by_rank[2], strict=True)] == [1] * 40
    assert 10 < sum(by_rank[0]) < 30


def test_each_host_has_in_memory_all_that_its_ranks_hold() -> None:
    def look(rank: int) -> Any:
        value = spread(torch.arange(8.0), (2, 2), [Replicate(), Shard(0)])
        host = range(2) if rank < 2 else range(2, 4)
        leaf = on_host(describe("parts/m/a", value), host, 0)
        return [piece.index for piece in leaf.pieces]

    by_rank = [as_rank(n, 4, lambda n=n: look(n)) for n in range(4)]
    for host in (by_rank[:2], by_rank[2:]):
        assert sorted(itertools.chain(*host)) == [((0, 4),), ((4, 8),)]


def test_ranks_of_a_host_that_hold_one_slice_take_turns() -> None:
    def look() -> list[int]:
        value = spread(torch.arange(8.0), (2, 2), [Replicate(), Shard(0)])
        leaf = describe("parts/m/a", value)
        return [len(on_host(leaf, range(4), epoch).pieces) for epoch in range(6)]

    one, _, other, _ = (as_rank(n, 4, look) for n in range(4))
    assert [a + b for a, b in zip(one, other, strict=True)] == [1] * 6
    assert sum(one) == 3


def test_a_description_that_is_used_again_is_what_a_new_one_would_be() -> None:
    shapes = ((7, 2), (1, 3), (0, 4), (5,))
    rows, whole = [Shard(0)], [Replicate()]

    def said(files: BufferFiles, tree: Any, step: int) -> Any:
        placed, text, *_ = files._described({"parts": {"m": tree}}, Named(0, step, step, (), ()))
        return [(entry, at.index, at.source.tolist()) for entry, _, at in placed], text

    def look() -> None:
        both = {"rank": dist.get_rank(), "world_size": 2, "local_world_size": 2}
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=(f"rank {dist.get_rank()}",))
        files = BufferFiles(Path("none"), wanted=1, **both)
        for step, placements in enumerate((rows, rows, whole, rows)):
            tree = {
                str(shape): distribute_tensor(
                    torch.full(shape, step), mesh, placements, src_data_rank=None
                )
                for shape in shapes
            }
            fresh = BufferFiles(Path("none"), wanted=1, **both)
            assert said(files, tree, step) == said(fresh, tree, step)
            assert files._misses == (1, 0, 1, 2)[step], "used again where all is as before"

    for rank in range(2):
        as_rank(rank, 2, look)


def test_partial_sums_are_refused() -> None:
    def look() -> None:
        on = init_device_mesh("cpu", (2,))
        value = DTensor.from_local(torch.ones(3), on, [Partial()])
        with pytest.raises(Unstorable, match="state/x: a DTensor of partial sums"):
            describe("state/x", value)

    as_rank(0, 2, look)


def test_a_local_part_that_is_not_what_its_placements_say_is_refused() -> None:
    def look() -> None:
        on = init_device_mesh("cpu", (2,))
        value = DTensor.from_local(
            torch.ones(3), on, [Shard(0)], run_check=False, shape=torch.Size([4]), stride=(1,)
        )
        with pytest.raises(Unstorable, match="placements"):
            describe("state/x", value)

    as_rank(0, 2, look)


def test_two_arrays_under_one_name_are_each_some_ranks_own(tmp_path: Path) -> None:
    """Two stages of a pipeline, each on a mesh of its own, with the same names for their layers."""
    place = tmp_path / "0000-000000000001"

    def model(fill: int) -> torch.nn.Module:
        names = tuple(f"{name} of rank {dist.get_rank()}" for name in ("stage", "copy", "shard"))
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)[names[1:]]
        one = torch.nn.Module()
        spread = distribute_tensor(
            torch.full((5,), fill), mesh, [Replicate(), Shard(0)], src_data_rank=None
        )
        one.register_buffer("w", spread)
        return one

    def save(rank: int) -> None:
        tree = {"parts": {"m": model(rank // 4).state_dict()}}
        captured = Staging().capture(tree, rank, 8, shared=("parts/m",))
        write_shard(place, captured, attempt=0, step=1, rank=rank, world_size=8)

    def read(rank: int) -> None:
        layout = PartLayouts({"m": model(9)})
        found = read_set(place, rank=rank, world_size=8, layout=layout)["parts"]["m"]["w"]
        assert set(found.to_local().tolist()) == {rank // 4}

    for act in (save, read):
        for rank in range(8):
            as_rank(rank, 8, lambda act=act, rank=rank: act(rank))
        if act is save:
            commit(place, 8)
    with pytest.raises(DataTopologyChanged, match="each has a parts/m/w of its own"):
        read_set(place, world_size=4)


def test_a_scalar_and_an_empty_tensor(tmp_path: Path) -> None:
    place = tmp_path / "0000-000000000001"
    paths = [f"s{n}" for n in range(9)]
    assert len({zlib.crc32(f"state/{path}".encode()) % 3 for path in paths}) == 3

    def tree() -> dict[str, Any]:
        scalars = {path: spread(torch.tensor(2.5), (3,), [Replicate()]) for path in paths}
        return scalars | {"empty": spread(torch.ones(0, 4), (3,), [Shard(0)])}

    def save(rank: int) -> None:
        captured = Staging().capture({"state": tree()}, rank, 3)
        write_shard(place, captured, attempt=0, step=1, rank=rank, world_size=3)

    def read(rank: int) -> None:
        found = read_set(place, {"state": tree()}, rank=rank, world_size=3)["state"]
        assert all(found[path]._local_tensor.item() == 2.5 for path in paths)
        assert tuple(found["empty"].shape) == (0, 4)

    for act in (save, read):
        for rank in range(3):
            as_rank(rank, 3, lambda act=act, rank=rank: act(rank))
        if act is save:
            commit(place, 3)
