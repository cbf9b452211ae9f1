"""A host's ranks share the copy of what is the same on all of them: each stores a part of it.

What that is a framework declares: PyTorch's DDP by what it wraps (`session/replicated.py`), JAX by
an array's sharding (`own_replicas`).

Which part follows from the tree alone, and the trees of such ranks are alike: nobody has to be
asked. Where they are not, the parts make no whole set, which whoever seals it finds
(`check_parts`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.snapshot.arrays import ArrayKind, ArrayPiece, Leaf
from holdfast.snapshot.compared import is_below
from holdfast.snapshot.layout import stored_arrays
from holdfast.snapshot.manifest import Manifest, is_shared
from holdfast.snapshot.once import AlikeArray, FileShare, share_out
from holdfast.snapshot.receipt import Index

LEAST_CUT_BYTES = 1 << 20  # of a large array, rows of so many bytes stay together


def declared_paths(paths: Iterable[str], replicated: tuple[str, ...]) -> frozenset[str]:
    """The arrays that are declared to be the same on all ranks: those paths, and all below them."""
    below = frozenset(replicated)
    return frozenset([path for path in paths if is_below(path, below)]) if below else frozenset()


def own_replicas(
    leaves: Sequence[Leaf], shared: tuple[str, ...], ranks: int
) -> tuple[tuple[Leaf, ...], tuple[str, ...]]:
    """The same, but each process stores its own replica of what JAX keeps whole on all of them.

    Else one process stores it for all (`arrays.describe`), and nobody compares. And the paths of
    these arrays, which JAX declares to be equal. `shared`: paths of what belongs to the run.
    """
    found, paths = list(leaves), []
    for number, leaf in enumerate(leaves):
        array = leaf.held
        if (
            array is not None
            and leaf.kind is ArrayKind.JAX
            and _is_on_all(array.sharding, ranks)
            and is_shared(leaf.path, shared)
        ):
            piece = ArrayPiece(None, leaf.shape, array.addressable_data(0))
            found[number] = leaf._replace(pieces=(piece,))
            paths.append(leaf.path)
    return tuple(found), tuple(paths)


@functools.lru_cache(maxsize=256)
def _is_on_all(sharding: Any, ranks: int) -> bool:
    """Whether each of so many processes has all of an array that is sharded like this."""
    processes = {device.process_index for device in sharding.device_set}
    return bool(sharding.is_fully_replicated) and len(processes) == ranks


class ProvenArrays:
    """Of the declared arrays those that every whole set had: so each comparison was theirs, too.

    What comes later (a state that an optimizer makes after a warm-up) is each rank's own for the
    rest of the attempt: it would be taken from another rank before anybody has compared it.
    """

    def __init__(self) -> None:
        self._paths: frozenset[str] | None = None

    def narrow(self, declared: frozenset[str]) -> bool:
        """A whole set has these; whether there are fewer now."""
        before = self._paths
        self._paths = declared if before is None else before & declared
        return self._paths != before

    def lacks(self, declared: frozenset[str]) -> tuple[str, ...]:
        """Those of them that are not proven."""
        return tuple(sorted(declared - (self._paths or frozenset())))


def part_of(
    leaves: Sequence[Leaf],
    replicated: tuple[str, ...],
    number: int,
    ranks: int,
    unproven: tuple[str, ...] = (),
) -> tuple[Leaf, ...]:
    """What the rank of that number stores: all that is its own, and its part of the rest.

    `replicated`: paths of what is the same on all of these ranks, or prefixes of such; `unproven`:
    arrays below them that are each rank's own all the same.
    """
    own = frozenset(unproven)
    kinds = tuple(
        [
            (
                one.path,
                one.shape if _is_whole(one) and one.path not in own else None,
                one.itemsize,
                one.kind is not ArrayKind.JAX,  # a slice of it would be another program to run
            )
            for one in leaves
        ]
    )
    parts = _parts(kinds, replicated, number, ranks)
    return tuple(
        [
            leaf if part is None else _with(leaf, part)
            for leaf, part in zip(leaves, parts, strict=True)
        ]
    )


def _is_whole(leaf: Leaf) -> bool:
    return len(leaf.pieces) == 1 and leaf.pieces[0].index is None and 0 not in leaf.shape


_Kind = tuple[str, tuple[int, ...] | None, int, bool]  # the last: whether it may be cut
_Part = tuple[Index, ...]  # of an array: one range of rows, or none


@functools.lru_cache(maxsize=8)
def _parts(
    kinds: tuple[_Kind, ...], replicated: tuple[str, ...], number: int, ranks: int
) -> tuple[_Part | None, ...]:
    """For each array the part of it that is stored here; None: it is this rank's own.

    Training waits for it, and the state is the same from save to save: so it is remembered.
    """
    below = frozenset(replicated)
    shared = {
        path: (shape, itemsize, may_be_cut)
        for path, shape, itemsize, may_be_cut in kinds
        if shape is not None and is_below(path, below)
    }
    arrays = [
        AlikeArray(path, math.prod(about[0]) * about[1], _unit(*about))
        for path, about in shared.items()
    ]
    mine = {share.name: share for share in share_out(arrays, ranks)[number]}
    found: list[_Part | None] = []
    for path, *_ in kinds:
        if path not in shared:
            found.append(None)
        else:
            found.append((_rows(*shared[path][:2], mine[path]),) if path in mine else ())
    return tuple(found)


def _unit(shape: tuple[int, ...], itemsize: int, may_be_cut: bool) -> int:
    """Bytes of the fewest rows after which a large array may be cut; of all, where it may not."""
    if not shape or not may_be_cut:
        return math.prod(shape) * itemsize
    row = math.prod(shape[1:]) * itemsize
    return row * min(shape[0], math.ceil(LEAST_CUT_BYTES / row))


def _rows(shape: tuple[int, ...], itemsize: int, share: FileShare) -> Index:
    """Where these bytes of an array lie in it."""
    row = math.prod(shape[1:]) * itemsize
    whole = tuple((0, size) for size in shape)
    return ((share.begin // row, share.end // row), *whole[1:]) if shape else ()


def _with(leaf: Leaf, part: _Part) -> Leaf:
    """The leaf with that part of its array. Not by `dataclasses.replace`, which takes 3 µs."""
    pieces: tuple[ArrayPiece, ...] = ()
    for index in part:
        shape, source = leaf.shape, leaf.pieces[0].source
        if index and index[0] != (0, shape[0]):
            first, last = index[0]
            shape, source = (last - first, *shape[1:]), source[first:last]
        pieces = (ArrayPiece(index, shape, source),)
    return Leaf(*leaf[:5], pieces, leaf.impl, leaf.weak, leaf.held)


def check_parts(manifest: Manifest, facts: Sequence[dict[str, Any]]) -> None:
    """ValueError unless each rank finds every array of its tree, where some stored parts alone."""
    if not any(one.get("in_parts") for one in facts):
        return
    for rank, one in zip(manifest.ranks, facts, strict=True):
        for array in stored_arrays(one.get("structure")):
            stored = manifest.arrays.get(array.path)
            pieces = () if stored is None else stored.copy_of(rank)
            kinds = {(str(tensor.dtype), tensor.global_shape) for _, tensor in pieces}
            if kinds != {(str(array.dtype), array.shape)}:
                raise ValueError(f"rank {rank} finds no {array.path} among the parts of the ranks")
