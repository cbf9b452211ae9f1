"""What all ranks hold alike goes to the store once: which rank's file gets what of it. Pure.

    files = written_once(receipts)

Data-parallel ranks hold the same model to the last bit, and a sealed buffer has the checksums that
show it. Such an array is one piece of one rank's file on disk, as a JAX array is that one process
stores; a large one is cut into ranges of rows, one for each of several files. A cut is only made
where a row and a checksum of the seal begin together, so nothing has to be hashed anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.snapshot.manifest import is_shared
from holdfast.snapshot.receipt import CHUNK_BYTES, Receipt, Tensor


class Alike(NamedTuple):
    """An array that all ranks hold alike. Where it is large, it may be cut after each unit."""

    path: str
    nbytes: int
    unit_bytes: int


class Share(NamedTuple):
    """Bytes of an array that one rank's file gets."""

    path: str
    begin: int
    end: int


class Written(NamedTuple):
    """A tensor as it lies in the file on disk; its bytes begin at `source` in the buffer's data."""

    tensor: Tensor
    source: int


def share_out(arrays: Iterable[Alike], files: int) -> tuple[tuple[Share, ...], ...]:
    """Who writes what: for each file its shares, every byte of every array in exactly one of them.

    In the order of their paths the arrays make one row of bytes, of which each file gets its part:
    a whole array goes where its middle lies. An array that is larger than one file's part of the
    sum is cut. What a file gets differs from that part by no more than the largest array or unit.
    """
    arrays = sorted(arrays)
    total = sum(array.nbytes for array in arrays)
    found: list[list[Share]] = [[] for _ in range(files)]
    before = 0
    for array in arrays:
        unit = array.unit_bytes if array.nbytes * files > total else array.nbytes
        for begin in range(0, array.nbytes, unit or 1):
            end = min(begin + unit, array.nbytes)
            middle = 2 * before + begin + end  # twice of it
            mine = found[middle * files // (2 * total)]
            if mine and mine[-1].path == array.path:
                begin = mine.pop().begin
            mine.append(Share(array.path, begin, end))
        before += array.nbytes
    return tuple(map(tuple, found))


def written_once(receipts: Sequence[Receipt]) -> list[list[Written]]:
    """What goes to disk of each rank's shard, in the order of the file. `receipts`: of all ranks.

    With one rank, or where nothing is alike, that is all of each.
    """
    alike = {tensor.path: tensor for tensor in held_alike(receipts)}
    arrays = [Alike(path, one.nbytes, _unit(one)) for path, one in alike.items()]
    shares = share_out(arrays, len(receipts))
    return [
        _placed(receipt, alike, {share.path: share for share in mine})
        for receipt, mine in zip(receipts, shares, strict=True)
    ]


def as_sealed(receipt: Receipt) -> list[Written]:
    """All of a shard, as it lies in the buffer."""
    return [Written(tensor, tensor.begin) for tensor in receipt.tensors]


def held_alike(receipts: Sequence[Receipt]) -> list[Tensor]:
    """The arrays of the run, not of a rank, that each of several ranks holds whole and the same."""
    first, *others = receipts
    shared = tuple(first.structures)
    known = [{one.path: one for one in receipt.tensors} for receipt in others]
    return [
        tensor
        for tensor in first.tensors
        if others
        and tensor.nbytes
        and is_shared(tensor.path, shared)
        and all(_is_same(tensor, tensors.get(tensor.path)) for tensors in known)
    ]


def _is_same(one: Tensor, other: Tensor | None) -> bool:
    """Both of them whole, with the same bytes by their checksums."""
    if other is None or one.index is not None or other.index is not None:
        return False
    kinds = [(str(each.dtype), each.global_shape, each.xxh3) for each in (one, other)]
    return kinds[0] == kinds[1]


def _unit(tensor: Tensor) -> int:
    """The fewest bytes after which a row and a checksum begin together; else all of them."""
    rows = tensor.shape[0] if tensor.shape else 1
    return min(math.lcm(tensor.nbytes // rows, CHUNK_BYTES), tensor.nbytes)


def _placed(receipt: Receipt, alike: dict[str, Tensor], mine: dict[str, Share]) -> list[Written]:
    """What is this rank's own, and its share of what is alike, without gaps."""
    found: list[Written] = []
    at = 0
    for tensor in receipt.tensors:
        begin, end = 0, tensor.nbytes
        if tensor.path in alike:
            if tensor.path not in mine:
                continue
            _, begin, end = mine[tensor.path]
            chunks = slice(begin // CHUNK_BYTES, -(-end // CHUNK_BYTES))
            tensor = _rows(tensor, begin, end)
            tensor = tensor.with_checksums(tensor.xxh3[chunks])
        place = replace(tensor, begin=at, end=at + end - begin)
        found.append(Written(place, tensor.begin + begin))
        at = place.end
    return found


def _rows(tensor: Tensor, begin: int, end: int) -> Tensor:
    """The piece of a whole array that has these bytes of it: all of it, or whole rows."""
    whole = tuple((0, size) for size in tensor.shape)
    if end - begin == tensor.nbytes:
        return replace(tensor, index=whole)
    row = tensor.nbytes // tensor.shape[0]
    rows = (begin // row, end // row)
    return replace(tensor, index=(rows, *whole[1:]), shape=(rows[1] - rows[0], *tensor.shape[1:]))
