"""What a tree's description has in common with the last one's: all but its arrays and values.

Thousands of arrays take 30 µs each to be described, and training waits. From one copy to the next
they are other arrays of the same kinds at the same places. So the tree is compared with the
*outline* of the last one: containers, keys, kinds, types and shapes. Where nothing else has come,
it is described as the last one was, and the values between the arrays (counters, learning rates)
are put into the text of the last header.

What of that must be asked of a tensor of PyTorch's is asked of all of them at once, which takes a
fifth of the time. A tensor is known by where its bytes are and what they mean, and not by its
object: of a module's tensors there are new ones each time, and one that stays may get other memory.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from holdfast.snapshot import dtensor, nodes, paths
from holdfast.snapshot.arrays import (
    ArrayKind,
    ArrayPiece,
    Leaf,
    bounds,
    describe,
    is_nowhere,
    plain_tensor,
)
from holdfast.snapshot.layout import Placed
from holdfast.snapshot.receipt import Index, Tensor
from holdfast.snapshot.sealed import compact
from holdfast.snapshot.structure import Structure
from holdfast.snapshot.tree import NOT_INLINE, Say, inline

Region = tuple[int, int]
"""Where bytes lie that follow one another: address, and how many."""


class Description(NamedTuple):
    """Where the arrays of a tree lie in the file, and the header's text.

    `outline`: what the tree is like, if that is known. `regions`: of each array, where it is now;
    None where that has to be looked at. `are_here`: all of these lie in the host's memory.
    `release` is called when nobody needs the arrays any more.
    """

    placed: Sequence[Placed]
    text: str
    outline: Outline | None = None
    regions: Sequence[Region | None] = ()
    are_here: bool = False
    release: Callable[[], None] = lambda: None


class Outline:
    """A tree, but for its arrays and values: it keeps none of them that nobody else needs."""

    def __init__(
        self, tree: Any, placed: Sequence[Placed], write: Callable[[Say, Structure], str]
    ) -> None:
        """`placed`: its arrays as they lie in the file.

        `write` gives the header's text, with what is said of each value of the tree, as
        `tree.flatten` says it, and with the step as it is given here.
        """
        found: list[Leaf] = []
        self._tensors = _Tensors()
        stored = {leaf.path: leaf for _, leaf, _ in placed}
        self._top = _outline(tree, "", _ArraysFound(found, self._tensors, stored))
        numbers = {leaf.path: number for number, leaf in enumerate(found)}
        plain = {number: place for place, number in enumerate(self._tensors.numbers)}
        self._order: list[tuple[Tensor, int, int, bool]] = []
        self._plain: list[int] = []  # of each array in the file, which tensor it is; -1: none
        for entry, leaf, piece in placed:
            number = numbers[leaf.path]
            which = [one is piece for one in leaf.pieces].index(True)
            is_whole = entry.shape == found[number].pieces[which].shape
            self._order.append((entry, number, which, is_whole))
            self._plain.append(plain.get(number, -1) if is_whole else -1)
        self._others = [place for place, one in enumerate(self._plain) if one < 0]
        self._spare: _Frame | None = None
        self.plan: Any = None  # what its user has made of it
        mark = f"value-{secrets.token_hex(16)}"  # nothing that a script stores
        self._text = write(lambda _: mark, mark).split(f'\\"{mark}\\"')

    def describe(self, tree: Any, step: int) -> Description | None:
        """The tree, if it is as this one; None: it is another one."""
        leaves: list[Any] = []
        said: list[Structure] = [step]
        try:
            if not self._top.take(tree, leaves, said):
                return None
            found = self._tensors.take(leaves)
        except Exception:  # who describes it in full will say what is wrong with it
            return None
        if found is None or len(said) != len(self._text) - 1:
            return None
        parts = [""] * (2 * len(said) + 1)
        parts[::2] = self._text
        parts[1::2] = [repr(one) if type(one) is int else _in_text(one) for one in said]
        tensors, regions, are_here = found
        frame, self._spare = self._spare or self._frame(), None
        frame.fill(tensors)
        for number, leaf in zip(self._tensors.numbers, frame.leaves, strict=True):
            leaves[number] = leaf
        for place in self._others:
            entry, number, which, is_whole = self._order[place]
            piece = leaves[number].pieces[which]
            frame.placed[place] = entry, leaves[number], piece if is_whole else _rows(entry, piece)

        def release() -> None:
            frame.clear(self._others)
            self._spare = frame

        regions.append(None)
        where = [regions[one] for one in self._plain]
        return Description(frame.placed, "".join(parts), self, where, are_here, release)

    def _frame(self) -> _Frame:
        leaves = self._tensors.leaves()
        placed: list[Any] = [None] * len(self._order)
        for place, one in enumerate(self._plain):
            if one >= 0:
                placed[place] = self._order[place][0], leaves[one], leaves[one].pieces[0]
        return _Frame(leaves, placed)


class _Frame:
    """Leaves that tensors are put into, for one copy after the other: to make them takes time."""

    def __init__(self, leaves: list[Leaf], placed: list[Any]) -> None:
        self.leaves = leaves
        self.placed = placed
        self._pieces = [leaf.pieces[0] for leaf in leaves]

    def fill(self, tensors: Iterable[Any]) -> None:
        for piece, tensor in zip(self._pieces, tensors, strict=True):
            piece.source = tensor

    def clear(self, others: Sequence[int]) -> None:
        for piece in self._pieces:
            piece.source = None
        for place in others:
            self.placed[place] = None


def _rows(entry: Tensor, piece: ArrayPiece) -> ArrayPiece:
    """What is stored of a piece, where that is some rows."""
    if entry.index is None:
        return piece
    first, last = entry.index[0]
    return ArrayPiece(entry.index, entry.shape, piece.source[first:last])


def _in_text(said: Structure) -> str:
    """A value within JSON that is a string within JSON."""
    kind = type(said)
    if kind is int or kind is float:
        return repr(said)
    return json.dumps(compact(said))[1:-1]


class _Value:
    """A value that stands in the structure."""

    def take(self, value: Any, _: list[Any], said: list[Structure]) -> bool:
        found = inline(value)
        said.append(found)
        return found is not NOT_INLINE


class _Plain:
    """A tensor of PyTorch's that is nothing more: `_Tensors` looks at it."""

    def take(self, value: Any, leaves: list[Any], _: list[Structure]) -> bool:
        leaves.append(value)
        return True


class _Tensors:
    """All plain tensors of a tree, by their numbers among its arrays."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._kinds: list[type] = []
        self._dtypes: list[Any] = []
        self._shapes: list[tuple[int, ...]] = []
        self._likes: list[Leaf] = []  # without the tensors
        self._sizes: list[int] = []
        self._may_be_conj = False

    def add(self, number: int, value: Any, leaf: Leaf) -> bool:
        """One of them, unless it is no plain one."""
        torch = sys.modules["torch"]
        is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) and leaf.held is None
        if not is_plain or value.is_neg() or value.is_conj():
            return False
        self.numbers.append(number)
        self._kinds.append(type(value))
        self._dtypes.append(value.dtype)
        self._shapes.append(leaf.shape)
        self._likes.append(leaf._replace(pieces=()))
        self._sizes.append(leaf.nbytes(leaf.pieces[0]))
        self._may_be_conj |= value.is_complex()
        return True

    def leaves(self) -> list[Leaf]:
        """Without the tensors."""
        return [one._replace(pieces=(ArrayPiece(None, one.shape, None),)) for one in self._likes]

    def take(self, leaves: list[Any]) -> tuple[list[Any], list[Region | None], bool] | None:
        """The tensors that lie among the leaves, and where they are; None: they are others.

        And whether all of them are in the host's memory.
        """
        values = [leaves[number] for number in self.numbers]
        if not values:
            return [], [], True
        if (
            [*map(type, values)] != self._kinds
            or [*map(_DTYPE, values)] != self._dtypes
            or [*map(_SHAPE, values)] != self._shapes
        ):
            return None
        kind = sys.modules["torch"].Tensor
        addresses = [*map(kind.data_ptr, values)]  # what has no bytes of its own raises an error
        if (
            any(map(kind.is_neg, values))
            or (self._may_be_conj and any(map(kind.is_conj, values)))
            or (0 in addresses and any(one.is_meta or is_nowhere(one) for one in values))
        ):
            return None
        are_whole = map(kind.is_contiguous, values)
        regions = [
            (address, size) if is_whole else None
            for address, size, is_whole in zip(addresses, self._sizes, are_whole, strict=True)
        ]
        # Their data: that memory stays, whatever becomes of the values.
        return [*map(_DATA, values)], regions, all(map(_IS_CPU, values))


_DTYPE, _SHAPE, _DATA, _IS_CPU = map(attrgetter, ("dtype", "shape", "data", "is_cpu"))


class _Tensor:
    """A tensor of PyTorch's."""

    def __init__(self, value: Any, leaf: Leaf) -> None:
        self._kind = type(value)
        self._dtype = value.dtype
        self._layout = value.layout
        self._shape = leaf.shape
        self._like = leaf[:4]

    def take(self, value: Any, leaves: list[Any], _: list[Structure]) -> bool:
        shape = self._shape
        if (
            type(value) is not self._kind
            or value.dtype is not self._dtype
            or value.shape != shape
            or value.layout is not self._layout
            or value.is_meta
        ):
            return False
        alias = plain_tensor(value)
        if is_nowhere(alias):
            return False
        leaves.append(Leaf(*self._like, shape, (ArrayPiece(None, shape, alias),)))
        return True


class _Sharded:
    """A DTensor of PyTorch's, where this rank stores the same boxes of it each time."""

    def __init__(self, value: Any, leaf: Leaf) -> None:
        self._kind = type(value)
        self._mesh = value.device_mesh
        self._placements = value.placements
        self._local = dtensor.local_of(value).shape
        self._boxes = dtensor.stored_boxes(leaf.path, value)
        self._dtype = value.dtype
        self._shape = leaf.shape
        self._like = leaf[:4]

    def take(self, value: Any, leaves: list[Any], _: list[Structure]) -> bool:
        if (
            type(value) is not self._kind
            or value.dtype is not self._dtype
            or value.shape != self._shape
            or value.device_mesh is not self._mesh
            or value.placements != self._placements
            or value.is_meta
        ):
            return False
        local = dtensor.local_of(value)
        if local.shape != self._local:
            return False
        pieces = []
        for box in self._boxes:
            part = plain_tensor(dtensor.cut_out(local, box))
            pieces.append(ArrayPiece(box.whole, tuple(part.shape), part))
        leaves.append(Leaf(*self._like, self._shape, tuple(pieces), held=value))
        return True


class _Described:
    """Any other array."""

    def __init__(self, leaf: Leaf) -> None:
        self._path = leaf.path
        self._about = _about(leaf)

    def take(self, value: Any, leaves: list[Any], _: list[Structure]) -> bool:
        leaf = describe(self._path, value)  # a short text has no such shape
        if leaf is None or _about(leaf) != self._about:
            return False
        leaves.append(leaf)
        return True


def _about(leaf: Leaf) -> tuple[Any, ...]:
    pieces = [(piece.index, piece.shape) for piece in leaf.pieces]
    return (*leaf._replace(pieces=(), held=leaf.held is not None), pieces)


class _Jax:
    """An array of JAX's, where this process stores the same parts of it each time."""

    def __init__(self, value: Any, leaf: Leaf) -> None:
        self._kind = type(value)
        self._dtype = value.dtype
        self._sharding = value.sharding
        self._like = leaf[:4]
        self._shape = leaf.shape
        self._weak = leaf.weak
        self._parts: list[tuple[int, Index | None, tuple[int, ...]]] | None = None
        if not value.is_fully_addressable:  # other processes have some
            self._parts = [
                (_place_of(value, piece.index), piece.index, piece.shape) for piece in leaf.pieces
            ]
        self._otherwise = _Described(leaf)

    def take(self, value: Any, leaves: list[Any], said: list[Structure]) -> bool:
        shape = self._shape
        if (
            type(value) is not self._kind
            or value.is_deleted()
            or value.dtype != self._dtype
            or (value.sharding is not self._sharding and value.sharding != self._sharding)
            or value.shape != shape
            or value.weak_type != self._weak
        ):
            return self._parts is None and self._otherwise.take(value, leaves, said)
        if self._parts is None:
            piece = ArrayPiece(None, shape, value)
            leaves.append(Leaf(*self._like, shape, (piece,), None, self._weak))
            return True
        pieces = tuple(
            [
                ArrayPiece(index, part_shape, value.addressable_data(place))
                for place, index, part_shape in self._parts
            ]
        )
        leaves.append(Leaf(*self._like, shape, pieces, None, self._weak, value))
        return True


def _place_of(array: Any, index: Index | None) -> int:
    """Which of the addressable shards of JAX's array has this slice of it; None: all of it."""
    shards = enumerate(array.addressable_shards)
    return next(at for at, one in shards if index in (None, bounds(one.index, array.shape)))


class _Container:
    """A dict, a list, a tuple, or what is taken apart like one."""

    def __init__(self, value: Any, path: str, found: _ArraysFound) -> None:
        node = nodes.open_node(value, path)
        if node is None:
            raise TypeError(f"{path} was something else a moment ago")
        self._kind = type(value)
        self._path = path
        self._keys = [*node.keys]
        self._key_kinds = [*map(type, node.keys)]
        self._about = _about_node(node)
        self._is_dict = node.shape == "dict"
        self._children = [
            _outline(child, paths.join(path, piece), found)
            for piece, child in zip(node.pieces, node.children, strict=True)
        ]
        self._are_plain = all(type(one) is _Plain for one in self._children)

    def take(self, value: Any, leaves: list[Any], said: list[Structure]) -> bool:
        kind = type(value)
        if kind is not self._kind:
            return False
        children: Any
        if kind is dict or (kind is OrderedDict and self._is_dict):
            if [*value] != self._keys or [*map(type, value)] != self._key_kinds:
                return False
            children = value.values()
        elif kind is list or kind is tuple:
            if len(value) != len(self._children):
                return False
            children = value
        else:
            node = nodes.open_node(value, self._path)
            if node is None or _about_node(node) != self._about:
                return False
            children = node.children
        if self._are_plain:
            leaves.extend(children)
            return True
        for known, child in zip(self._children, children, strict=True):
            if not known.take(child, leaves, said):
                return False
        return True


def _about_node(node: nodes.Node) -> tuple[Any, ...]:
    return node.shape, node.type_name, node.plain, node.keys, node.pieces


_Any = _Value | _Plain | _Tensor | _Sharded | _Jax | _Described | _Container


class _ArraysFound(NamedTuple):
    """Arrays of a tree, as far as it was looked at; `stored`: by path, what this rank has of it."""

    leaves: list[Leaf]
    tensors: _Tensors
    stored: dict[str, Leaf]


def _outline(value: Any, path: str, found: _ArraysFound) -> _Any:
    if inline(value) is not NOT_INLINE:
        return _Value()
    leaf = describe(path, value)
    if leaf is None:
        return _Container(value, path, found)
    if leaf.kind is ArrayKind.JAX and leaf.held is not None:
        leaf = found.stored.get(path, leaf._replace(pieces=()))
    found.leaves.append(leaf)
    if leaf.kind is ArrayKind.TORCH:
        if found.tensors.add(len(found.leaves) - 1, value, leaf):
            return _Plain()
        return _Tensor(value, leaf) if leaf.held is None else _Sharded(value, leaf)
    return _Jax(value, leaf) if leaf.kind is ArrayKind.JAX else _Described(leaf)
