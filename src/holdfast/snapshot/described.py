"""What a tree's description has in common with the last one's: all but its arrays and values.

Thousands of arrays take 30 µs each to be described, and training waits. From one copy to the next
they are other arrays of the same kinds at the same places. So the tree is compared with the
*outline* of the last one: containers, keys, kinds, types and shapes. Where nothing else has come,
it is described as the last one was, and the values between the arrays (counters, learning rates)
are put into the text of the last header.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.snapshot import dtensor, nodes, paths
from holdfast.snapshot.arrays import ArrayKind, ArrayPiece, Leaf, describe, plain_tensor
from holdfast.snapshot.layout import Placed
from holdfast.snapshot.receipt import Tensor
from holdfast.snapshot.sealed import compact
from holdfast.snapshot.structure import Structure
from holdfast.snapshot.tree import NOT_INLINE, Say, inline


class Outline:
    """A tree, but for its arrays and values: it keeps none of them."""

    def __init__(
        self, tree: Any, placed: Sequence[Placed], write: Callable[[Say, Structure], str]
    ) -> None:
        """`placed`: its arrays as they lie in the file.

        `write` gives the header's text, with what is said of each value of the tree, as
        `tree.flatten` says it, and with the step as it is given here.
        """
        found: list[Leaf] = []
        self._top = _outline(tree, "", found)
        numbers = {leaf.path: number for number, leaf in enumerate(found)}
        self._order = [
            (entry, numbers[leaf.path], [one is piece for one in leaf.pieces].index(True))
            for entry, leaf, piece in placed
        ]
        mark = f"value-{secrets.token_hex(16)}"  # nothing that a script stores
        self._text = write(lambda _: mark, mark).split(f'\\"{mark}\\"')

    def describe(self, tree: Any, step: int) -> tuple[tuple[Placed, ...], str] | None:
        """Where the arrays of this tree lie, and the header's text; None: it is another one."""
        leaves: list[Leaf] = []
        said: list[Structure] = [step]
        try:
            is_same = self._top.take(tree, leaves, said)
        except Exception:  # who describes it in full will say what is wrong with it
            return None
        if not is_same or len(said) != len(self._text) - 1:
            return None
        placed = tuple(
            (entry, leaves[number], _stored(entry, leaves[number].pieces[piece]))
            for entry, number, piece in self._order
        )
        parts = [self._text[0]]
        for value, text in zip(map(_in_text, said), self._text[1:], strict=True):
            parts += value, text
        return placed, "".join(parts)


def _stored(entry: Tensor, piece: ArrayPiece) -> ArrayPiece:
    """What is stored of a piece: all of it, or some rows."""
    if entry.index is None or entry.shape == piece.shape:
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

    def take(self, value: Any, _: list[Leaf], said: list[Structure]) -> bool:
        found = inline(value)
        said.append(found)
        return found is not NOT_INLINE


class _Tensor:
    """A tensor of PyTorch's."""

    def __init__(self, value: Any, leaf: Leaf) -> None:
        self._kind = type(value)
        self._dtype = value.dtype
        self._layout = value.layout
        self._shape = leaf.shape
        self._like = leaf[:4]

    def take(self, value: Any, leaves: list[Leaf], _: list[Structure]) -> bool:
        shape = self._shape
        if (
            type(value) is not self._kind
            or value.dtype is not self._dtype
            or value.shape != shape
            or value.layout is not self._layout
            or value.is_meta
        ):
            return False
        leaves.append(Leaf(*self._like, shape, (ArrayPiece(None, shape, plain_tensor(value)),)))
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

    def take(self, value: Any, leaves: list[Leaf], _: list[Structure]) -> bool:
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

    def take(self, value: Any, leaves: list[Leaf], _: list[Structure]) -> bool:
        leaf = describe(self._path, value)  # a short text has no such shape
        if leaf is None or _about(leaf) != self._about:
            return False
        leaves.append(leaf)
        return True


def _about(leaf: Leaf) -> tuple[Any, ...]:
    pieces = [(piece.index, piece.shape) for piece in leaf.pieces]
    return (*leaf._replace(pieces=(), held=leaf.held is not None), pieces)


class _Jax:
    """An array of JAX's, whose parts this process has all."""

    def __init__(self, value: Any, leaf: Leaf) -> None:
        self._kind = type(value)
        self._dtype = value.dtype
        self._sharding = value.sharding
        self._like = leaf[:4]
        self._shape = leaf.shape
        self._weak = leaf.weak
        self._otherwise = _Described(leaf)

    def take(self, value: Any, leaves: list[Leaf], said: list[Structure]) -> bool:
        shape = self._shape
        if (
            type(value) is not self._kind
            or value.is_deleted()
            or value.dtype != self._dtype
            or value.sharding is not self._sharding
            or value.shape != shape
            or value.weak_type != self._weak
        ):
            return self._otherwise.take(value, leaves, said)
        piece = ArrayPiece(None, shape, value)
        leaves.append(Leaf(*self._like, shape, (piece,), None, self._weak))
        return True


class _Container:
    """A dict, a list, a tuple, or what is taken apart like one."""

    def __init__(self, value: Any, path: str, found: list[Leaf]) -> None:
        node = nodes.open_node(value, path)
        if node is None:
            raise TypeError(f"{path} was something else a moment ago")
        self._kind = type(value)
        self._path = path
        self._keys = [*node.keys]
        self._key_kinds = [*map(type, node.keys)]
        self._about = _about_node(node)
        self._children = [
            _outline(child, paths.join(path, piece), found)
            for piece, child in zip(node.pieces, node.children, strict=True)
        ]

    def take(self, value: Any, leaves: list[Leaf], said: list[Structure]) -> bool:
        kind = type(value)
        if kind is not self._kind:
            return False
        children: Any
        if kind is dict:
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
        for known, child in zip(self._children, children, strict=True):
            if not known.take(child, leaves, said):
                return False
        return True


def _about_node(node: nodes.Node) -> tuple[Any, ...]:
    return node.shape, node.type_name, node.plain, node.keys, node.pieces


_Any = _Value | _Tensor | _Sharded | _Jax | _Described | _Container


def _outline(value: Any, path: str, found: list[Leaf]) -> _Any:
    if inline(value) is not NOT_INLINE:
        return _Value()
    leaf = describe(path, value)
    if leaf is None:
        return _Container(value, path, found)
    found.append(leaf)
    if leaf.kind is ArrayKind.TORCH:
        return _Tensor(value, leaf) if leaf.held is None else _Sharded(value, leaf)
    if leaf.kind is ArrayKind.JAX and leaf.held is None:
        return _Jax(value, leaf)
    return _Described(leaf)
