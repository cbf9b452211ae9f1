"""State trees to flat arrays and back.

`flatten` takes a tree apart into its arrays, by path, and a *structure*: plain JSON for everything
else. In the structure a number, a string, true, false and null are themselves, a list is a list,
and a dict with str keys is an object; whatever JSON cannot say is an object with the key "$":

    {"$": "array", "kind": "jax", "dtype": "float32", "shape": [8, 4]}   bytes are in the file
    {"$": "tuple", "of": [...]}
    {"$": "dict", "keys": [0, "0"], "of": [...]}                          int keys, or a key "$"
    {"$": "record", "type": "optax._src...", "plain": "tuple", "keys": ["count"], "of": [...]}
    {"$": "int", "hex": "0x1fff..."}      beyond ±2^53
    {"$": "float", "bits": "7ff0000000000000"}   not finite
    {"$": "complex", "of": [re, im]}      {"$": "bytes", "base64": "..."}
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.core.value import value
from holdfast.errors import Unstorable
from holdfast.snapshot import like as likeness
from holdfast.snapshot import nodes, paths
from holdfast.snapshot.arrays import INLINE_BYTES, Bytes, Leaf, copies, describe, run
from holdfast.snapshot.materialise import Kinds, adopt, native
from holdfast.snapshot.parts import is_part
from holdfast.snapshot.structure import (
    MAX_DEPTH,
    Array,
    Structure,
    decode,
    encode_dict,
    encode_float,
    encode_int,
    is_object,
)


@value
class Flat:
    """A tree taken apart. `leaves` are in tree order and still refer to the live arrays."""

    structure: Structure
    leaves: tuple[Leaf, ...]


Say = Callable[[Structure], Structure]


def flatten(tree: Any, say: Say = lambda said: said) -> Flat:
    """Take a tree apart without copying any array.

    `say` gets what is said of each value that stands in the structure itself, in tree order, and
    gives what is to stand there.

    Raises:
        Unstorable: a value that cannot be stored, or a cycle; it names the path.

    """
    leaves: list[Leaf] = []
    structure = _encode(tree, "", leaves, [], say)
    return Flat(structure, tuple(leaves))


def unflatten(flat: Flat, like: Any = None, *, kinds: Kinds = "numpy") -> Any:
    """Put a tree together again, with copies of its arrays (those this process holds whole).

    Without `like`: plain dicts, lists and tuples; arrays are numpy's, or of the kind they were with
    kinds="saved". With `like`: its containers, kinds, shardings.

    Raises:
        StateMismatch: the first difference to `like`, in tree order.

    """
    copied = {leaf.path: _copied(leaf) for leaf in flat.leaves}
    if like is None:
        return decode(flat.structure, lambda array: native(array, copied[array.path], kinds))
    likeness.check(flat.structure, like)

    def fetch(array: Array, target: Any) -> Any:
        return adopt(array, target, lambda: copied[array.path], None)

    return likeness.build(flat.structure, like, fetch)


def _copied(leaf: Leaf) -> Bytes:
    (piece,) = leaf.pieces
    target = np.empty(leaf.nbytes(piece), np.uint8)
    for copy in copies(leaf, piece, target):
        run(copy)
    return target


NOT_INLINE = object()


def inline(value: Any) -> Structure:
    """What is said of a value that stands in the structure itself; `NOT_INLINE` if it does not."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return encode_int(value)
    if kind is float:
        return encode_float(value)
    if kind is complex:
        return {"$": "complex", "of": [encode_float(value.real), encode_float(value.imag)]}
    if kind is str and len(value) <= INLINE_BYTES:
        return value
    if kind is bytes and len(value) <= INLINE_BYTES:
        return {"$": "bytes", "base64": base64.b64encode(value).decode("ascii")}
    return NOT_INLINE


def _encode(value: Any, path: str, leaves: list[Leaf], above: list[int], say: Say) -> Structure:
    kind = type(value)
    said = inline(value)
    if said is not NOT_INLINE:
        return say(said)
    leaf = describe(path, value)
    if leaf is not None:
        leaves.append(leaf)
        return _array(leaf)
    if id(value) in above:
        raise Unstorable(path, f"this {kind.__name__} contains itself; break the cycle")
    if len(above) >= MAX_DEPTH:
        raise Unstorable(path, f"nested more than {MAX_DEPTH} deep; flatten the state")
    above.append(id(value))
    if kind is dict and is_object(value):  # as most containers are: in half the time
        said = {
            key: _encode(child, paths.join(path, paths.piece(key)), leaves, above, say)
            for key, child in value.items()
        }
    else:
        node = nodes.open_node(value, path)
        if node is None:
            raise Unstorable(path, _why_not(value))
        children = [
            _encode(child, paths.join(path, piece), leaves, above, say)
            for piece, child in zip(node.pieces, node.children, strict=True)
        ]
        said = _container(node, children)
    above.pop()
    return said


def _container(node: nodes.Node, children: list[Structure]) -> Structure:
    if node.shape == "list":
        return children
    if node.shape == "tuple":
        return {"$": "tuple", "of": children}
    if node.shape == "dict":
        return encode_dict(node.keys, children)
    return {
        "$": "record",
        "type": node.type_name,
        "plain": node.plain,
        "keys": list(node.pieces),
        "of": children,
    }


def _array(leaf: Leaf) -> Structure:
    said: dict[str, Any] = {
        "$": "array",
        "kind": leaf.kind.value,
        "dtype": leaf.dtype,
        "shape": list(leaf.shape),
    }
    if leaf.impl is not None:
        said["impl"] = leaf.impl
    if leaf.weak:
        said["weak"] = True
    return said


def _why_not(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else _qualified(kind)
    if isinstance(value, type):
        return f"the class {value.__qualname__} is not data; leave it out of the state"
    if is_part(value) or hasattr(value, "state_dict") or hasattr(value, "get_state"):
        return f"a {name} is an object with a state of its own; hand it to run.track() instead"
    if isinstance(value, enum.Enum):
        return f"{value!s} is an enum; store its .value"
    if callable(value):
        return f"a {name} is code, not data; leave it out of the state"
    if isinstance(value, set | frozenset):
        return f"a {name} has no order; store a sorted list"
    return (
        f"a value of type {name} cannot be stored; a state holds arrays, numbers, str, bytes, "
        "None, and dicts, lists, tuples and registered pytree nodes of them"
    )


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
