"""The manifest: what makes a folder of shards a checkpoint. Composed of receipts, written last.

Each array has one of three placements, and nobody has to declare it:

- sharded: the framework said that each rank holds a slice; together they tile the array;
- replicated: every rank stored all of it, and all checksums agree. Any rank's copy is as good;
- per-rank: every rank has its own (what is not shared, or what turned out to differ). Slices that
  differ though they are the same part are so, too: several arrays, each of some ranks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.core.value import value
from holdfast.snapshot.external import KEY, External, united
from holdfast.snapshot.receipt import (
    FORMAT,
    MAX_RANKS,
    VERSION,
    Index,
    Receipt,
    Shard,
    Tensor,
    check_format,
    extent,
    index_from,
    index_json,
    number,
    numbers,
    objects,
    text,
    texts,
)

ELSEWHERE = Shard(8, 8, "")  # in the place of a shard that is on another host


class ArraySharing(StrEnum):
    """How the ranks share an array, or the structure of a part of the tree."""

    REPLICATED = "replicated"
    SHARDED = "sharded"
    PER_RANK = "per-rank"


@value
class StoredArray:
    """One array of the set: its pieces by (rank, tensor), in rank order.

    Per-rank arrays may differ in dtype and shape; here stand those of the first.
    """

    dtype: Any
    shape: tuple[int, ...]
    placement: ArraySharing
    pieces: tuple[tuple[int, Tensor], ...]

    def copy_of(self, rank: int, near: Collection[int] = ()) -> tuple[tuple[int, Tensor], ...]:
        """The pieces of one whole array: the copy of this rank, where there are several.

        Of slices that differ: its own, or those of ranks `near` to it, which share the array.
        """
        if self.placement is ArraySharing.SHARDED:
            return self.pieces
        if any(tensor.index is not None for _, tensor in self.pieces):
            by = sorted(self.pieces, key=lambda one: (one[0] != rank, one[0] not in near))
            return tuple(_each_once(by))
        return tuple(piece for piece in self.pieces if piece[0] == rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestHead:
    """What a manifest says of the set as a whole. `shards[r]` is rank r's file.

    `here`: these ranks' shards alone are here, the part of one host; None: all are.
    """

    attempt: int
    step: int
    created_unix_ns: int
    tags: tuple[str, ...]
    extras: Mapping[str, Any]
    shards: tuple[Shard, ...]
    here: tuple[int, ...] | None = None

    @property
    def world_size(self) -> int:
        """How many ranks wrote it."""
        return len(self.shards)

    @property
    def ranks(self) -> Sequence[int]:
        """Those whose shards are here."""
        return range(self.world_size) if self.here is None else self.here

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> ManifestHead:
        """Of a whole manifest, whose arrays are not looked at; ValueError on rubbish."""
        return ManifestHead(**_head(said))


def _head(said: dict[str, Any]) -> dict[str, Any]:
    """The fields of a head."""
    check_format(said)
    shards = tuple(map(Shard.from_json, objects(said, "shards")))
    if not 1 <= len(shards) <= MAX_RANKS or number(said, "world_size") != len(shards):
        raise ValueError(f"{len(shards)} shards of {said.get('world_size')!r:.50} ranks")
    extras = said.get("extras")
    if not isinstance(extras, dict):
        raise ValueError("extras is not an object")
    here = numbers(said, "here") if "here" in said else None
    if here is not None and not _are_some(here, len(shards)):
        raise ValueError(f"the ranks that are here are {here!r:.100}")
    return {
        "attempt": number(said, "attempt"),
        "step": number(said, "step"),
        "created_unix_ns": number(said, "created_unix_ns"),
        "tags": texts(said, "tags"),
        "extras": extras,
        "shards": shards,
        "here": here,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(ManifestHead):
    """A committed set. `structures` says which paths are shared."""

    structures: Mapping[str, ArraySharing]
    arrays: Mapping[str, StoredArray]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        part = {} if self.here is None else {"here": list(self.here)}
        return part | {
            "format": FORMAT,
            "version": VERSION,
            "attempt": self.attempt,
            "step": self.step,
            "created_unix_ns": self.created_unix_ns,
            "world_size": self.world_size,
            "tags": list(self.tags),
            "extras": dict(self.extras),
            "shards": [
                {
                    "file_bytes": shard.file_bytes,
                    "data_begin": shard.data_begin,
                    "header_xxh3": shard.header_xxh3,
                }
                for shard in self.shards
            ],
            "structures": {path: placed.value for path, placed in self.structures.items()},
            "arrays": {path: _stored_json(stored) for path, stored in self.arrays.items()},
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Manifest:
        """The inverse; ValueError on what `to_json` cannot have written."""
        head = _head(said)
        shards, here = head["shards"], head["here"]
        arrays, structures = said.get("arrays"), said.get("structures")
        if not isinstance(arrays, dict) or not isinstance(structures, dict):
            raise ValueError("arrays and structures are not objects")
        stored = {path: _stored_from(path, one, shards) for path, one in arrays.items()}
        held: dict[int, list[Tensor]] = defaultdict(list)
        for one in stored.values():
            for rank, tensor in one.pieces:
                held[rank].append(tensor)
        for rank, tensors in held.items():
            shards[rank].check_all(tensors)
        if here is not None and any(rank not in here for rank in held):
            raise ValueError("a piece is of a rank that is not here")
        placed = {path: ArraySharing(one) for path, one in structures.items()}
        return cls(**head, structures=placed, arrays=stored)


def _are_some(ranks: Sequence[int], world_size: int) -> bool:
    return bool(ranks) and list(ranks) == sorted(set(ranks)) and ranks[-1] < world_size


def _stored_json(stored: StoredArray) -> dict[str, Any]:
    return {
        "dtype": stored.dtype,
        "shape": list(stored.shape),
        "placement": stored.placement.value,
        "pieces": [_piece_json(stored, rank, tensor) for rank, tensor in stored.pieces],
    }


def _piece_json(stored: StoredArray, rank: int, tensor: Tensor) -> dict[str, Any]:
    said: dict[str, Any] = {"rank": rank, "begin": tensor.begin, "end": tensor.end}
    if tensor.index is not None:
        said["index"] = index_json(tensor.index)
    if (tensor.dtype, tensor.global_shape) != (stored.dtype, stored.shape):
        said |= {"dtype": tensor.dtype, "shape": list(tensor.global_shape)}
    return said | {"xxh3": list(tensor.xxh3)}


def _stored_from(path: str, said: Any, shards: Sequence[Shard]) -> StoredArray:
    if not isinstance(said, dict):
        raise ValueError(f"{path} is {said!r:.50}")
    shape = numbers(said, "shape")
    placement = ArraySharing(text(said, "placement"))
    pieces = []
    for one in objects(said, "pieces"):
        rank = number(one, "rank")
        index = index_from(one.get("index"))
        whole = numbers(one, "shape") if "shape" in one else shape
        tensor = Tensor(
            path=path,
            dtype=one.get("dtype", said.get("dtype")),
            global_shape=whole,
            shape=whole if index is None else extent(path, index, shape),
            index=index,
            begin=number(one, "begin"),
            end=number(one, "end"),
            xxh3=texts(one, "xxh3"),
        )
        is_slice = index is not None
        fits = placement is ArraySharing.PER_RANK or is_slice == (placement is ArraySharing.SHARDED)
        if rank >= len(shards) or not fits:
            raise ValueError(f"{path}: a piece of rank {rank} at {index}")
        pieces.append((rank, tensor))
    sliced = {tensor.index is not None for _, tensor in pieces}
    if len(sliced) > 1:
        raise ValueError(f"{path}: some of its pieces are slices")
    if True not in sliced and [rank for rank, _ in pieces] != _ranks(pieces):
        raise ValueError(f"{path}: its ranks are out of order")
    return StoredArray(said.get("dtype"), shape, placement, tuple(pieces))


def _ranks(pieces: Sequence[tuple[int, Tensor]]) -> list[int]:
    return sorted({rank for rank, _ in pieces})


def compose(
    receipts: Sequence[Receipt],
    created_unix_ns: int,
    extras: Mapping[str, Any],
    tags: Sequence[str] = (),
) -> Manifest:
    """Put the receipts of all ranks together; ValueError, in words, when they do not agree."""
    return _composed(receipts, range(len(receipts)), len(receipts), created_unix_ns, extras, tags)


def compose_part(
    receipts: Sequence[Receipt],
    ranks: Sequence[int],
    created_unix_ns: int,
    extras: Mapping[str, Any],
) -> Manifest:
    """The same of these ranks alone: the part of one host. Of all of them, it is the whole set."""
    world_size = receipts[0].world_size
    if not _are_some(ranks, world_size):
        raise ValueError(f"{list(ranks)!r:.100} are no ranks of {world_size}")
    return _composed(receipts, ranks, world_size, created_unix_ns, extras)


def _composed(
    receipts: Sequence[Receipt],
    ranks: Sequence[int],
    world_size: int,
    created_unix_ns: int,
    extras: Mapping[str, Any],
    tags: Sequence[str] = (),
) -> Manifest:
    first = receipts[0]
    for rank, receipt in zip(ranks, receipts, strict=True):
        said = (receipt.attempt, receipt.step, receipt.world_size, receipt.rank)
        want = (first.attempt, first.step, world_size, rank)
        if said != want:
            names = "(attempt, step, ranks, rank)"
            raise ValueError(f"the receipt of rank {rank} says {names} = {said}, not {want}")
        if set(receipt.structures) != set(first.structures):
            raise ValueError(f"rank {rank} shares other parts than rank {first.rank}")
        if receipt.once != first.once:
            raise ValueError(
                f"the files of ranks {first.rank} and {rank} do not belong together: they disagree "
                "on what is written once"
            )
    by_path: dict[str, list[tuple[int, Tensor]]] = defaultdict(list)
    for receipt in receipts:
        for tensor in receipt.tensors:
            by_path[tensor.path].append((receipt.rank, tensor))
    shared, is_whole = tuple(first.structures), len(ranks) == world_size
    if external := [External.from_json(one.external) for one in receipts if one.external]:
        if len(external) < len(receipts):
            raise ValueError("some ranks name a checkpoint of the framework, and others do not")
        extras = {**extras, KEY: united(external).to_json()}
    shards = [ELSEWHERE] * world_size
    for receipt in receipts:
        shards[receipt.rank] = Shard(receipt.file_bytes, receipt.data_begin, receipt.header_xxh3)
    return Manifest(
        attempt=first.attempt,
        step=first.step,
        created_unix_ns=created_unix_ns,
        tags=tuple(sorted({*tags, *(tag for receipt in receipts for tag in receipt.tags)})),
        extras=extras,
        shards=tuple(shards),
        structures={
            path: ArraySharing.REPLICATED
            if len({receipt.structures[path] for receipt in receipts}) == 1
            else ArraySharing.PER_RANK
            for path in shared
        },
        arrays={
            path: _stored(path, pieces, ranks, shared, is_whole=is_whole)
            for path, pieces in by_path.items()
        },
        here=None if is_whole else tuple(ranks),
    )


def is_shared(path: str, shared: Sequence[str]) -> bool:
    """Whether a path is one of the shared ones, or below one."""
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in shared)


def _stored(
    path: str,
    pieces: list[tuple[int, Tensor]],
    ranks: Sequence[int],
    shared: Sequence[str],
    *,
    is_whole: bool,
) -> StoredArray:
    tensors = [tensor for _, tensor in pieces]
    kinds = {(str(tensor.dtype), tensor.global_shape) for tensor in tensors}
    one = tensors[0]
    if any(tensor.index is not None for tensor in tensors):
        if len(kinds) > 1 or any(tensor.index is None for tensor in tensors):
            raise ValueError(f"the ranks disagree on the dtype or the shape of {path}")
        once = _each_once(pieces)
        indexes = [tensor.index or () for _, tensor in once]
        if is_whole and not tiles(one.global_shape, indexes):
            raise ValueError(f"the ranks' slices of {path} do not make the whole array")
        if len({(tensor.index, tensor.xxh3) for tensor in tensors}) == len(once):
            return StoredArray(one.dtype, one.global_shape, ArraySharing.SHARDED, tuple(once))
        # Several arrays of that name, each of some ranks: as of the stages of a pipeline.
        return StoredArray(one.dtype, one.global_shape, ArraySharing.PER_RANK, tuple(pieces))
    same = len(kinds) == 1 and len({tensor.xxh3 for tensor in tensors}) == 1
    everywhere = [rank for rank, _ in pieces] == list(ranks)
    replicated = same and everywhere and is_shared(path, shared)
    placement = ArraySharing.REPLICATED if replicated else ArraySharing.PER_RANK
    return StoredArray(one.dtype, one.global_shape, placement, tuple(pieces))


def _each_once(pieces: Sequence[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """Of a slice that several ranks have stored, each a copy of its own, the first one's."""
    once: dict[Index | None, tuple[int, Tensor]] = {}
    for rank, tensor in pieces:
        once.setdefault(tensor.index, (rank, tensor))
    return list(once.values())


def tiles(shape: tuple[int, ...], indexes: Sequence[Index]) -> bool:
    """Whether the slices cover an array of this shape, every element once.

    They do when their volumes add up to the array's and no two overlap. Overlaps are looked for
    along the axis with the most cuts, among slices that are open there at the same time: grids of
    any dimension stay cheap, and rubbish costs no memory.
    """
    if len(shape) == 0 or 0 in shape:
        return len(indexes) == 1 or math.prod(shape) == 0
    volumes = [math.prod(stop - start for start, stop in index) for index in indexes]
    if sum(volumes) != math.prod(shape):
        return False
    boxes = [index for index, volume in zip(indexes, volumes, strict=True) if volume]
    axis = max(range(len(shape)), key=lambda one: len({box[one] for box in boxes}))
    opened: list[Index] = []
    for box in sorted(boxes, key=lambda box: box[axis]):
        opened = [other for other in opened if other[axis][1] > box[axis][0]]
        if any(_overlap(box, other) for other in opened):
            return False
        opened.append(box)
    return True


def _overlap(one: Index, other: Index) -> bool:
    return all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))
