"""Reading the bytes of a set: every one is hashed while it is read, and compared before use.

A tensor is read in its checksummed chunks by several threads. Each thread reads a block that stays
in its cache, hashes it there, goes on; so verification costs next to nothing beside the read, and
the page faults of fresh memory are shared. The file is never mapped: what was verified is a
private copy that no later write or disk error can change. `verify` reads a whole set so.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.snapshot import dtypes
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.external import external_of, verify_external
from holdfast.snapshot.layout import ALIGN_BYTES, MAX_HEADER_BYTES, decode_facts
from holdfast.snapshot.manifest import Manifest
from holdfast.snapshot.memory import reserve
from holdfast.snapshot.receipt import CHUNK_BYTES, Index, Tensor, shard_name
from holdfast.snapshot.sealed import checksum
from holdfast.snapshot.sets import read_manifest
from holdfast.snapshot.vault import OpenShard, open_vault

OWN_MEMORY_BYTES = 32 << 20  # from this size on an array has a mapping of its own, freed with it
MAX_READ_THREADS = 8
THREAD_BYTES = 4 << 20  # a thread is not worth less
MAX_CACHED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A checksummed part of a tensor, and where its bytes go (None: only verify).

    `target` begins at byte `origin` of the tensor.
    """

    rank: int
    tensor: Tensor
    number: int
    target: Bytes | None
    origin: int = 0


class ShardFiles:
    """The open shards of one set. Use as a context manager."""

    def __init__(self, set_dir: Path, manifest: Manifest) -> None:
        self._vault = open_vault(set_dir.parent)
        self._name = set_dir.name
        self._manifest = manifest
        self._open_shards: dict[int, OpenShard] = {}
        self._opening = threading.Lock()
        self.block_bytes = self._vault.block_bytes
        self.max_threads = self._vault.readers or len(os.sched_getaffinity(0))

    def __enter__(self) -> ShardFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        for shard in self._open_shards.values():
            shard.close()
        self._open_shards.clear()

    def path(self, rank: int) -> str:
        """The file of a rank. Its name is computed, never read from the manifest."""
        return self._vault.where(self._name, shard_name(rank))

    def facts(self, rank: int) -> dict[str, Any]:
        """The verified facts of a shard's header, the structure among them."""
        shard = self._manifest.shards[rank]
        if shard.data_begin > MAX_HEADER_BYTES:
            raise CorruptCheckpoint(f"{self.path(rank)} has a header of {shard.data_begin} bytes")
        file = self._open(rank)  # first: a claim of 100 MB is worth no memory, such a file is
        header = np.empty(shard.data_begin, np.uint8)
        file.read_into(header.data, 0, "its header")
        if checksum(header.data) != shard.header_xxh3:
            raise CorruptCheckpoint(f"{self.path(rank)}: the header is not what was written")
        try:
            return decode_facts(header.tobytes())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"{self.path(rank)}: the header says {error}") from error

    def verify(self, chunk: Chunk, scratch: Bytes) -> None:
        """Read a chunk to its target, or through `scratch`; CorruptCheckpoint if it differs."""
        start = chunk.number * CHUNK_BYTES
        size = min(CHUNK_BYTES, chunk.tensor.nbytes - start)
        begin = self._manifest.shards[chunk.rank].data_begin + chunk.tensor.begin + start
        file, digest = self._open(chunk.rank), xxhash.xxh3_64()
        for offset in range(0, size, self.block_bytes):
            length = min(self.block_bytes, size - offset)
            if chunk.target is None:
                block = scratch[:length]
            else:
                place = start + offset - chunk.origin
                block = chunk.target[place : place + length]
            file.read_into(block.data, begin + offset, chunk.tensor.name)
            digest.update(block.data)
        if digest.hexdigest() != chunk.tensor.xxh3[chunk.number]:
            raise CorruptCheckpoint(
                f"{self.path(chunk.rank)}: the bytes of {chunk.tensor.name} are not what was "
                "written (checksum differs)"
            )

    def _open(self, rank: int) -> OpenShard:
        found = self._open_shards.get(rank)
        if found is not None:
            return found
        with self._opening:
            if rank in self._open_shards:
                return self._open_shards[rank]
            shard = self._vault.open(self._name, shard_name(rank))
            want = self._manifest.shards[rank].file_bytes
            if shard.nbytes != want:
                shard.close()
                raise CorruptCheckpoint(f"{self.path(rank)} has {shard.nbytes} bytes, not {want}")
            self._open_shards[rank] = shard
            return shard


def chunks(rank: int, tensor: Tensor, target: Bytes | None) -> Iterable[Chunk]:
    """The chunks of one tensor."""
    return (Chunk(rank, tensor, number, target) for number in range(len(tensor.xxh3)))


def read_all(files: ShardFiles, work: Iterable[Chunk]) -> None:
    """Read and verify all chunks, by several threads; raises the first error met."""
    pending = list(work)[::-1]
    errors: list[BaseException] = []

    def drain() -> None:
        scratch = np.empty(files.block_bytes, np.uint8)
        try:
            while pending and not errors:
                try:
                    chunk = pending.pop()  # atomic
                except IndexError:
                    return
                files.verify(chunk, scratch)
        except BaseException as error:
            errors.append(error)

    total = sum(min(chunk.tensor.nbytes, CHUNK_BYTES) for chunk in pending)
    wanted = math.ceil(total / THREAD_BYTES)
    count = max(1, min(MAX_READ_THREADS, files.max_threads, wanted))
    others = [threading.Thread(target=drain, name="holdfast-read") for _ in range(count - 1)]
    for thread in others:
        thread.start()
    drain()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]


def allocate(sizes: Sequence[int]) -> list[Bytes]:
    """Memory for arrays of these sizes, each aligned to 64 bytes: large ones apart, small together.

    So a large array can be freed by itself, and a thousand small ones cost one mapping.
    """
    padded = [-(-size // ALIGN_BYTES) * ALIGN_BYTES for size in sizes]
    together = reserve(sum(size for size in padded if size < OWN_MEMORY_BYTES))
    found, position = [], 0
    for size, room in zip(sizes, padded, strict=True):
        if room >= OWN_MEMORY_BYTES:
            found.append(reserve(size))
        else:
            found.append(together[position : position + size])
            position += room
    return found


def in_rows(pieces: Sequence[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """The pieces in the order in which their bytes, one after the other, are the whole array.

    Empty where they are not: each must have whole rows, and together they must have each row once.
    """
    if len(pieces) == 1 and pieces[0][1].shape == pieces[0][1].global_shape:
        return list(pieces)
    ordered = sorted(pieces, key=lambda piece: piece[1].index or ())
    row = 0
    for _, tensor in ordered:
        if not tensor.index or tensor.shape[1:] != tensor.global_shape[1:]:
            return []
        begin, end = tensor.index[0]
        if begin != row:
            return []
        row = end
    return ordered if ordered and row == ordered[0][1].global_shape[0] else []


class SliceReader:
    """Slices of stored arrays: of each piece only the checksummed chunks that hold a part of one.

    What is needed whole is kept for the next slice; what is needed in part is read again.
    """

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self._cache: dict[tuple[int, str], npt.NDArray[Any]] = {}
        self._cached_bytes = 0

    def read(self, pieces: Sequence[tuple[int, Tensor]], wanted: Index) -> npt.NDArray[Any]:
        """The elements of `wanted` (in global coordinates) from the pieces that overlap it.

        As they are stored: of `dtypes.bits`, for numpy need not know their type.
        """
        shape = tuple(stop - start for start, stop in wanted)
        dtype = _bits(pieces[0][1])
        out = allocate([math.prod(shape) * dtype.itemsize])[0].view(dtype).reshape(shape)
        found = 0
        for rank, tensor in pieces:
            index = tensor.index or tuple((0, size) for size in tensor.global_shape)
            overlap = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(index, wanted, strict=True)]
            if all(start < stop for start, stop in overlap):
                part = self._part(rank, tensor, _inside(overlap, index))
                out[_inside(overlap, wanted)] = part
                found += part.size
        if found != out.size:  # pieces do not overlap
            raise CorruptCheckpoint(
                f"{self._files.path(pieces[0][0])}: a slice of {pieces[0][1].path} is on another "
                "host, and not in the memory of this one"
            )
        return out

    def _part(self, rank: int, tensor: Tensor, inside: tuple[slice, ...]) -> npt.NDArray[Any]:
        first, last = _chunks_of(tensor, inside)
        key = (rank, tensor.name)
        if key in self._cache or last - first >= len(tensor.xxh3):
            return self._piece(key, tensor)[inside]
        begin = first * CHUNK_BYTES
        end = min(last * CHUNK_BYTES, tensor.nbytes)
        (raw,) = allocate([end - begin])
        needed = [Chunk(rank, tensor, number, raw, begin) for number in range(first, last)]
        read_all(self._files, needed)
        dtype = _bits(tensor)
        strides = _strides(tensor.shape, dtype.itemsize)
        offset = sum(cut.start * step for cut, step in zip(inside, strides, strict=True)) - begin
        shape = tuple(cut.stop - cut.start for cut in inside)
        return np.ndarray(shape, dtype, raw.data, offset, strides)

    def _piece(self, key: tuple[int, str], tensor: Tensor) -> npt.NDArray[Any]:
        found = self._cache.get(key)
        if found is None:
            (raw,) = allocate([tensor.nbytes])
            read_all(self._files, chunks(key[0], tensor, raw))
            found = raw.view(_bits(tensor)).reshape(tensor.shape)
            if self._cached_bytes + tensor.nbytes > MAX_CACHED_BYTES:
                self._cache.clear()
                self._cached_bytes = 0
            self._cache[key] = found
            self._cached_bytes += tensor.nbytes
        return found


def _bits(tensor: Tensor) -> np.dtype[Any]:
    return dtypes.bits(dtypes.itemsize(tensor.dtype))


def _chunks_of(tensor: Tensor, inside: tuple[slice, ...]) -> tuple[int, int]:
    """The chunks, first and one past the last, that hold a region of a piece, row by row."""
    strides = _strides(tensor.shape, dtypes.itemsize(tensor.dtype))
    lowest = sum(cut.start * step for cut, step in zip(inside, strides, strict=True))
    highest = sum((cut.stop - 1) * step for cut, step in zip(inside, strides, strict=True))
    return lowest // CHUNK_BYTES, highest // CHUNK_BYTES + 1


def _strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Bytes from one element to the next along each axis, in C order."""
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def _inside(overlap: Sequence[tuple[int, int]], frame: Index) -> tuple[slice, ...]:
    """A region in global coordinates, in those of the box `frame`."""
    return tuple(
        slice(start - origin, stop - origin)
        for (start, stop), (origin, _) in zip(overlap, frame, strict=True)
    )


def verify(set_dir: Path) -> tuple[str, ...]:
    """Read the whole set; each problem as a sentence that names the file and the tensor.

    Bytes that no checksum covers do not exist: header, tensors and nothing else make up a shard.
    """
    try:
        manifest = read_manifest(set_dir)
    except (CorruptCheckpoint, StoreUnavailable) as error:
        return (str(error),)
    problems = []
    with ShardFiles(set_dir, manifest) as files:
        by_rank: dict[int, list[str]] = {}
        for rank in range(manifest.world_size):
            try:
                files.facts(rank)
            except (CorruptCheckpoint, StoreUnavailable) as error:
                problems.append(str(error))
                by_rank[rank] = [str(error)]
        for stored in manifest.arrays.values():
            for rank, tensor in stored.pieces:
                try:
                    read_all(files, chunks(rank, tensor, None))
                except (CorruptCheckpoint, StoreUnavailable) as error:
                    if str(error) not in by_rank.get(rank, ()):  # a missing file is told once
                        problems.append(str(error))
    try:
        external = external_of(manifest.extras)
        if external is not None:
            verify_external(external, Path(external.folder))
    except CorruptCheckpoint as error:
        problems.append(str(error))
    return tuple(problems)
