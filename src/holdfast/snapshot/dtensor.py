"""PyTorch's DTensors: which boxes of a global tensor this rank holds, by its placements.

No collective is needed for that, neither to save nor to restore. What is pure comes first: a mesh
is its shape, a rank the place that it has there, a placement a `Cut` or None (replicated).
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.errors import Unstorable
from holdfast.snapshot.receipt import Index

Shape = tuple[int, ...]
Runs = list[tuple[int, int]]


class Cut(NamedTuple):
    """A tensor's dimension is shared out along a dimension of the mesh, as torch.chunk would.

    `first`: it is cut into so many parts before, each of which is shared out (`_StridedShard`: what
    FSDP does to a dimension that tensor parallelism cuts, too).
    """

    dim: int
    first: int = 1


class Box(NamedTuple):
    """A part of the global tensor, and where it lies in the local one."""

    whole: Index
    local: tuple[slice, ...]


class Placing(NamedTuple):
    """What one rank holds: of `replicas` of each box on the mesh, the one of number `replica`."""

    boxes: tuple[Box, ...]
    shape: Shape  # of the local tensor
    replica: int
    replicas: int


@functools.lru_cache(maxsize=4096)
def placing(
    shape: Shape, mesh: Shape, place: tuple[int, ...], placements: tuple[Cut | None, ...]
) -> Placing:
    """What the rank at that place of a mesh holds of a tensor. Cuts are made from left to right."""
    runs: list[Runs] = [[(0, size)] if size else [] for size in shape]
    replica, replicas = 0, 1
    for cut, parts, number in zip(placements, mesh, place, strict=True):
        if cut is None:
            replica, replicas = replica * parts + number, replicas * parts
        else:
            runs[cut.dim] = _shared_out(runs[cut.dim], cut.first, parts, number)
    boxes = []
    for box in itertools.product(*map(_in_local, runs)):
        boxes.append(Box(tuple(one for one, _ in box), tuple(local for _, local in box)))
    local = tuple(_length(one) for one in runs)
    return Placing(tuple(boxes), local, replica, replicas)


def _shared_out(runs: Runs, first: int, parts: int, number: int) -> Runs:
    """Of ranges that follow one another, those of one part."""
    found: Runs = []
    for one in range(first):
        begin, end = _chunk(_length(runs), first, one)
        start, stop = _chunk(end - begin, parts, number)
        for run in _between(runs, begin + start, begin + stop):
            if found and found[-1][1] == run[0]:
                run = (found.pop()[0], run[1])
            found.append(run)
    return found


def _chunk(size: int, parts: int, number: int) -> tuple[int, int]:
    """As torch.chunk: all are equally long, but for the last ones, which may be empty."""
    each = -(-size // parts)
    return min(each * number, size), min(each * (number + 1), size)


def _between(runs: Runs, start: int, stop: int) -> Iterator[tuple[int, int]]:
    before = 0
    for begin, end in runs:
        low, high = max(start - before, 0), min(stop - before, end - begin)
        if low < high:
            yield begin + low, begin + high
        before += end - begin


def _in_local(runs: Runs) -> Iterator[tuple[tuple[int, int], slice]]:
    before = 0
    for begin, end in runs:
        yield (begin, end), slice(before, before + end - begin)
        before += end - begin


def _length(runs: Runs) -> int:
    return sum(end - begin for begin, end in runs)


# --- tensors --------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """How a DTensor lies on its mesh, and on which device this rank's part of it is."""

    kind: Any  # the class, which has been elsewhere in older versions
    shape: Shape
    device_mesh: Any
    placements: tuple[Any, ...]
    device: Any


def is_dtensor(value: Any) -> bool:
    """Whether a tensor is one of `torch.distributed.tensor`."""
    return hasattr(value, "placements") and hasattr(value, "device_mesh")


def layout_of(value: Any) -> Layout:
    """Of a DTensor."""
    placements, device = tuple(value.placements), local_of(value).device
    return Layout(type(value), tuple(value.shape), value.device_mesh, placements, device)


def local_of(value: Any) -> Any:
    """The part of a DTensor that is here; no derivative goes through it."""
    with sys.modules["torch"].no_grad():
        return value.to_local()


Piece = tuple[Index, Any]
"""Where it lies in the global tensor, and a view of its elements."""


def held(path: str, value: Any) -> tuple[Piece, ...]:
    """Everything that this rank holds of a DTensor. Raises Unstorable."""
    placed = _placing(path, value)
    local = local_of(value)
    if placed is None:
        return ()
    if tuple(local.shape) != placed.shape:
        raise Unstorable(
            path,
            f"a DTensor whose local part has the shape {tuple(local.shape)}, where its placements "
            f"{value.placements} say {placed.shape}; make it by distribute_tensor or fully_shard",
        )
    return tuple((box.whole, cut_out(local, box)) for box in placed.boxes)


def stored(path: str, value: Any) -> tuple[Piece, ...]:
    """Of that, what this rank stores. Raises Unstorable."""
    held(path, value)
    local = local_of(value)
    return tuple((box.whole, cut_out(local, box)) for box in stored_boxes(path, value))


def stored_boxes(path: str, value: Any) -> tuple[Box, ...]:
    """Where that lies: of what several hold alike, one stores it.

    Which one goes by the path, so that they share the work. An empty tensor is stored as well.
    """
    placed = _placing(path, value)
    if placed is None:
        return ()
    if 0 in value.shape:
        is_first = not any(value.device_mesh.get_coordinate())
        return (Box(tuple((0, size) for size in value.shape), ()),) if is_first else ()
    is_mine = placed.replica == zlib.crc32(path.encode()) % placed.replicas
    return placed.boxes if is_mine else ()


def cut_out(local: Any, box: Box) -> Any:
    """A view of a box's elements."""
    shape = tuple(stop - start for start, stop in box.whole)
    if tuple(local.shape) == shape:
        return local
    return local.new_empty(shape) if 0 in shape else local[box.local]


def holders(value: Any, ranks: range) -> dict[Index, list[int]]:
    """By box, which of these ranks hold it, in their order."""
    mesh = tuple(value.device_mesh.shape)
    return _holders(tuple(value.shape), mesh, mesh_ranks(value), _cuts("", value), ranks)


def mesh_ranks(value: Any) -> tuple[int, ...]:
    """The ranks that have parts of a DTensor."""
    return tuple(value.device_mesh.mesh.flatten().tolist())


@functools.lru_cache(maxsize=4096)
def _holders(
    shape: Shape, mesh: Shape, there: Shape, cuts: tuple[Cut | None, ...], ranks: range
) -> dict[Index, list[int]]:
    found: dict[Index, list[int]] = {}
    for place, rank in zip(itertools.product(*map(range, mesh)), there, strict=True):
        if rank in ranks:
            for box in placing(shape, mesh, place, cuts).boxes:
                found.setdefault(box.whole, []).append(rank)
    return {index: sorted(found[index]) for index in sorted(found)}


def _placing(path: str, value: Any) -> Placing | None:
    """None: this rank is not in the tensor's mesh."""
    mesh = value.device_mesh
    place = mesh.get_coordinate()
    if place is None:
        return None
    return placing(tuple(value.shape), tuple(mesh.shape), tuple(place), _cuts(path, value))


def _cuts(path: str, value: Any) -> tuple[Cut | None, ...]:
    return tuple([None if one.is_replicate() else _cut(path, one) for one in value.placements])


def _cut(path: str, placement: Any) -> Cut:
    if placement.is_partial():
        raise Unstorable(
            path,
            f"a DTensor of partial sums ({placement}): no rank holds its values; redistribute it "
            "to Shard or Replicate first",
        )
    return Cut(placement.dim, getattr(placement, "split_factor", 1))


def is_cut(layout: Layout) -> bool:
    """Whether this rank holds a part of it only."""
    return _here(layout).shape != layout.shape


Read = Callable[[Index], Any]
"""Elements of a global tensor, as a tensor on the host."""


def build(layout: Layout, read: Read) -> Any:
    """The DTensor, of what this rank has to read of it. No other rank is asked."""
    placed = _here(layout)
    if len(placed.boxes) == 1:
        local = read(placed.boxes[0].whole)
    else:
        local = read(tuple((0, 0) for _ in layout.shape)).new_empty(placed.shape)
        for index, inside in placed.boxes:
            local[inside] = read(index)
    stride = tuple(math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape)))
    return layout.kind.from_local(
        local.to(layout.device),
        layout.device_mesh,
        layout.placements,
        run_check=False,
        shape=sys.modules["torch"].Size(layout.shape),
        stride=stride,
    )


def _here(layout: Layout) -> Placing:
    empty = Placing((), tuple(0 for _ in layout.shape), 0, 1)
    return _placing("", layout) or empty
