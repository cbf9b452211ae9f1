"""What ranks hold alike goes to the store once: which rank's file gets what of it. Pure.

    plan = written_once(receipts)  # of all ranks, of one host
    plan = written_once(receipts, alike, ranks)  # of the ranks of one host of several

Data-parallel ranks hold the same model to the last bit, and a sealed buffer has the checksums that
show it. Such an array is one piece of one rank's file on disk, as a JAX array is that one process
stores; a large one is cut into ranges of rows, one for each of several files. A cut is only made
where a row and a checksum of the seal begin together, so nothing has to be hashed anew.

Of several hosts each knows its own ranks alone. It tells a digest of what they hold alike
(`digests`). What has the same digest on all hosts is alike everywhere: all hosts come to the same
plan then, and each writes its ranks' files of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.save.tier_events import AlikeDigests
from holdfast.snapshot.layout import file_order
from holdfast.snapshot.manifest import is_shared
from holdfast.snapshot.receipt import CHUNK_BYTES, Receipt, Tensor
from holdfast.snapshot.sealed import checksum, compact

LEAST_AMONG_HOSTS_BYTES = 64 << 10
"""Smaller arrays are written by all hosts: one that differs would spoil its section's digest."""

ByHolder = Mapping[str, Mapping[int, Tensor]]
"""By a tensor's name, which ranks hold it, each in its own shard."""


class AlikeArray(NamedTuple):
    """A tensor that is held alike. Where it is large, it may be cut after each unit."""

    name: str
    nbytes: int
    unit_bytes: int


class FileShare(NamedTuple):
    """Bytes of a tensor that one rank's file gets."""

    name: str
    begin: int
    end: int


class WrittenTensor(NamedTuple):
    """A tensor as it lies in a file on disk. Its bytes are in the buffer, in the shard of `rank`.

    They begin at `source`, counted like a tensor's own `begin`.
    """

    tensor: Tensor
    rank: int
    source: int


class FilePlan(NamedTuple):
    """What goes to disk of these ranks' shards, in the order of each file.

    `mark`: files of one set belong together if they have the same one; empty: all of each shard.
    """

    mark: str
    files: tuple[tuple[WrittenTensor, ...], ...]


def share_out(arrays: Iterable[AlikeArray], files: int) -> tuple[tuple[FileShare, ...], ...]:
    """Who writes what: for each file its shares, every byte of every array in exactly one of them.

    In the order of their names the arrays make one row of bytes, of which each file gets its part:
    a whole array goes where its middle lies. An array that is larger than one file's part of the
    sum is cut. What a file gets differs from that part by no more than the largest array or unit.
    """
    arrays = sorted(arrays)
    total = sum(array.nbytes for array in arrays)
    found: list[list[FileShare]] = [[] for _ in range(files)]
    before = 0
    for array in arrays:
        unit = array.unit_bytes if array.nbytes * files > total else array.nbytes
        for begin in range(0, array.nbytes, unit or 1):
            end = min(begin + unit, array.nbytes)
            middle = 2 * before + begin + end  # twice of it
            mine = found[middle * files // (2 * total)]
            if mine and mine[-1].name == array.name:
                begin = mine.pop().begin
            mine.append(FileShare(array.name, begin, end))
        before += array.nbytes
    return tuple(map(tuple, found))


def written_once(
    receipts: Sequence[Receipt], alike: AlikeDigests | None = None, ranks: int | None = None
) -> FilePlan:
    """Of all ranks of a set; or, of one host's, what is `alike` on all hosts, of so many ranks.

    Raises ValueError: what is here has other digests.
    """
    held = held_alike(receipts, is_one_host=alike is None)
    here = _digests(held, receipts)
    if alike is not None:
        if not set(alike) <= set(here):
            raise ValueError("what its ranks hold alike is not what was said when it was sealed")
        sections = tuple(section for section, _ in alike)
        held = {name: by for name, by in held.items() if is_shared(_path(by), sections)}
        here = alike
    if not held:
        return FilePlan("", tuple(tuple(_as_sealed(receipt)) for receipt in receipts))
    arrays = [
        AlikeArray(name, one.nbytes, _unit(one)) for name, by in held.items() for one in [_any(by)]
    ]
    shares = share_out(arrays, len(receipts) if ranks is None else ranks)
    files = (tuple(_placed(receipt, held, shares[receipt.rank])) for receipt in receipts)
    return FilePlan(checksum(compact(here).encode()), tuple(files))


def digests(receipts: Sequence[Receipt]) -> AlikeDigests:
    """What a host tells of its ranks: of each section, a digest of what they hold alike."""
    return _digests(held_alike(receipts, is_one_host=False), receipts)


def _digests(held: ByHolder, receipts: Sequence[Receipt]) -> AlikeDigests:
    found: dict[str, list[list[object]]] = {}
    for name, by in sorted(held.items()):
        one = _any(by)
        section = next(path for path in receipts[0].structures if is_shared(one.path, (path,)))
        found.setdefault(section, []).append([name, *map(list, (one.global_shape, one.xxh3))])
        found[section][-1].append(str(one.dtype))
    return tuple((path, checksum(compact(said).encode())) for path, said in sorted(found.items()))


def held_alike(receipts: Sequence[Receipt], *, is_one_host: bool) -> ByHolder:
    """What is the run's, not a rank's, and the same on all of these ranks that hold it.

    Whole arrays, if each of them holds it; with several hosts those of some size alone, and slices
    too: a framework declares them, and one rank of each host stores them.
    """
    least = 1 if is_one_host else LEAST_AMONG_HOSTS_BYTES
    if is_one_host and len(receipts) == 1:
        return {}
    shared = tuple(receipts[0].structures)
    found: dict[str, dict[int, Tensor]] = {}
    for receipt in receipts:
        for tensor in receipt.tensors:
            if tensor.nbytes >= least and not (is_one_host and tensor.index is not None):
                found.setdefault(tensor.name, {})[receipt.rank] = tensor
    return {
        name: by
        for name, by in found.items()
        if is_shared(_path(by), shared)
        and (len(by) == len(receipts) or _any(by).index is not None)
        and len({_kind(tensor) for tensor in by.values()}) == 1
    }


def _any(by: Mapping[int, Tensor]) -> Tensor:
    return next(iter(by.values()))


def _path(by: Mapping[int, Tensor]) -> str:
    return _any(by).path


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return str(tensor.dtype), tensor.global_shape, tensor.index, tensor.xxh3


def _unit(tensor: Tensor) -> int:
    """The fewest bytes after which a row and a checksum begin together; else all of them."""
    rows = tensor.shape[0] if tensor.shape else 1
    return min(math.lcm(tensor.nbytes // rows, CHUNK_BYTES), tensor.nbytes)


def _as_sealed(receipt: Receipt) -> list[WrittenTensor]:
    return [WrittenTensor(tensor, receipt.rank, tensor.begin) for tensor in receipt.tensors]


def _placed(receipt: Receipt, held: ByHolder, shares: Sequence[FileShare]) -> list[WrittenTensor]:
    """What is this rank's own, and its share of what is alike: where it lies, without gaps."""
    wanted = [one for one in _as_sealed(receipt) if one.tensor.name not in held]
    for name, begin, end in shares:
        rank = receipt.rank if receipt.rank in held[name] else min(held[name])
        tensor = held[name][rank]
        wanted.append(WrittenTensor(_rows(tensor, begin, end), rank, tensor.begin + begin))
    # What lies side by side in the buffer does so in the file: its order is the same.
    wanted.sort(key=lambda one: (*file_order(one.tensor), one.rank, one.source))
    found, at = [], 0
    for one in wanted:
        end = at + one.tensor.nbytes
        found.append(one._replace(tensor=replace(one.tensor, begin=at, end=end)))
        at = end
    return found


def _rows(tensor: Tensor, begin: int, end: int) -> Tensor:
    """The piece that has these bytes of a tensor: all of it, or whole rows."""
    index = tensor.index or tuple((0, size) for size in tensor.shape)
    shape, xxh3 = tensor.shape, tensor.xxh3
    if end - begin != tensor.nbytes:
        row, first = tensor.nbytes // shape[0], index[0][0]
        rows = (first + begin // row, first + end // row)
        index, shape = (rows, *index[1:]), (rows[1] - rows[0], *shape[1:])
        xxh3 = xxh3[begin // CHUNK_BYTES : -(-end // CHUNK_BYTES)]
    begin, end = tensor.begin + begin, tensor.begin + end
    return replace(tensor, index=index, shape=shape, xxh3=xxh3, begin=begin, end=end)
