"""A stored structure against the tree a program wants: does it fit, and if so, build it.

Containers must have the same keys; a dict and a record (namedtuple, dataclass, pytree node) of the
same field names fit one another, a list and a tuple do not. Arrays must agree in shape and dtype;
numpy, jax and torch stand in for one another. A Python number and a 0-d array do too, where the
number is exact in the array's dtype: `step = 0` before the first jitted step is an array after it.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from holdfast.core.value import value
from holdfast.errors import StateMismatch
from holdfast.snapshot import dtypes, nodes, paths
from holdfast.snapshot.arrays import ArrayKind
from holdfast.snapshot.materialise import ANYTHING, PLAIN, StartArray, StartDict, adopt
from holdfast.snapshot.structure import (
    Array,
    Container,
    Structure,
    Value,
    arrays,
    decode,
    open_structure,
)

NOTHING = "nothing there"


@value
class WantedArray:
    """An array leaf of `like`: what must be stored under its path."""

    dtype: dtypes.Spec | None
    shape: tuple[int, ...]
    key_dtype: Any = None  # jax's extended dtype, where a typed PRNG key is wanted
    jax_dtype: dtypes.Spec | None = None  # an array of jax's may have this one instead

    def __str__(self) -> str:
        return array_words(self.key_dtype or self.dtype, self.shape)


def array_words(dtype: Any, shape: tuple[int, ...]) -> str:
    """`float32[8, 4]`."""
    return f"{dtype}{list(shape)}"


def wanted(leaf: Any) -> WantedArray | None:
    """What an array-like leaf asks for; None for a plain Python value."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return WantedArray(str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape))
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return WantedArray(None, tuple(leaf.shape), leaf.dtype)
        return WantedArray(dtypes.spec_of(np.dtype(leaf.dtype)), tuple(leaf.shape))
    if isinstance(leaf, np.ndarray | np.generic):
        return WantedArray(dtypes.spec_of(leaf.dtype), leaf.shape)
    if isinstance(leaf, StartArray):
        value = leaf.value
        return WantedArray(dtypes.spec_of(value.dtype), value.shape, None, _in_jax(value.dtype))
    return None


def _in_jax(dtype: np.dtype[Any]) -> dtypes.Spec | None:
    """What JAX makes of an array of numpy's: float32 of float64, unless it is told otherwise."""
    jax = sys.modules.get("jax")
    try:
        return dtypes.spec_of(jax.dtypes.canonicalize_dtype(dtype)) if jax is not None else None
    except TypeError:  # no array that jax takes
        return None


def check(said: Structure, like: Any, path: str = "") -> None:
    """Compare; raises `StateMismatch` at the first difference in `like`'s order."""
    opened = open_structure(said, path)
    if like is ANYTHING:
        return
    if like is PLAIN:
        if not _holds_plain(said, path):
            raise StateMismatch(path, "plain values", words(opened))
        return
    want = wanted(like)
    node = None if want is not None or is_plain(like) else _open(like, path)
    if node is None:
        if want is None and not is_plain(like):
            raise StateMismatch(path, f"a {type(like).__name__}", words(opened))
        _check_leaf(opened, like, want, path)
        return
    if not isinstance(opened, Container) or not _same_shape(node, opened):
        raise StateMismatch(path, _node_words(node), words(opened))
    have = dict(zip(opened.pieces, opened.children, strict=True))
    for piece, child in zip(node.pieces, node.children, strict=True):
        below = paths.join(path, piece)
        if piece not in have:
            raise StateMismatch(below, like_words(child, below), NOTHING)
        check(have[piece], child, below)
    wanted_pieces = set(node.pieces)
    for piece in opened.pieces:
        below = paths.join(path, piece)
        if piece not in wanted_pieces and not _may_come(like, have[piece], below):
            raise StateMismatch(below, NOTHING, words(open_structure(have[piece], below)))


def starting_values(tree: Any) -> Any:
    """A tree that a script starts with, as a `like` for what it became: values are not structure.

    Plain values and lists of them take whatever plain values are stored; None and empty containers
    take anything. To dicts plain values may have come. Arrays of numpy's take what training made of
    them, by numpy or by JAX. Other arrays stay as they are.
    """
    if tree is None or (type(tree) in (dict, list, tuple) and not tree):
        return ANYTHING
    if is_plain(tree):
        return PLAIN
    if isinstance(tree, np.ndarray | np.generic):
        return StartArray(tree)
    if type(tree) in nodes.DICTS:
        empty = copy.copy(tree)  # a defaultdict keeps its factory
        empty.clear()
        return StartDict(empty, {key: starting_values(value) for key, value in tree.items()})
    if type(tree) in (list, tuple):
        values = [starting_values(value) for value in tree]
        return PLAIN if all(map(_is_open, values)) else type(tree)(values)
    node = nodes.open_node(tree, "") if wanted(tree) is None else None
    return tree if node is None else node.rebuild([starting_values(one) for one in node.children])


def _is_open(like: Any) -> bool:
    """Whether plain values that are stored need not be looked at one by one."""
    if isinstance(like, StartDict):
        return type(like.empty) is dict and all(map(_is_open, like.of.values()))
    return like is PLAIN or like is ANYTHING


def _open(like: Any, path: str) -> nodes.Node | None:
    return nodes.open_node(like.of if isinstance(like, StartDict) else like, path)


def _may_come(like: Any, said: Structure, path: str) -> bool:
    """Whether a dict of a script's start may have got this as it trained."""
    return isinstance(like, StartDict) and (not like.of or _holds_plain(said, path))


def _holds_plain(said: Structure, path: str) -> bool:
    """Whether a structure holds no array but single numbers, and long text and bytes."""
    texts = (ArrayKind.BYTES, ArrayKind.TEXT)
    return not any(
        (array.shape or array.kind is ArrayKind.KEY) and array.kind not in texts
        for array in arrays(said, path)
    )


def is_plain(value: Any) -> bool:
    """Whether a value is stored as it is, and is no array."""
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def _same_shape(node: nodes.Node, opened: Container) -> bool:
    keyed = ("dict", "record")
    return node.shape == opened.shape or (node.shape in keyed and opened.shape in keyed)


def _check_leaf(
    opened: Array | Container | Value, like: Any, want: WantedArray | None, path: str
) -> None:
    if isinstance(opened, Array):
        fits = _array_fits(opened, want) if want is not None else _becomes_python(opened, like)
    elif isinstance(opened, Value):
        if want is not None:
            fits = number_as(opened.value, want) is not None
        else:
            fits = type(opened.value) is type(like)
    else:
        fits = False
    if not fits:
        raise StateMismatch(path, like_words(like, path), words(opened))


def _array_fits(array: Array, want: WantedArray) -> bool:
    if want.key_dtype is None:
        kept = array.dtype == want.dtype
        taken = array.kind is ArrayKind.JAX and array.dtype == want.jax_dtype
        same = (kept or taken) and array.shape == want.shape
        return same and array.kind not in (ArrayKind.KEY, ArrayKind.BYTES, ArrayKind.TEXT)
    if array.kind is not ArrayKind.KEY:
        return False
    jax = sys.modules["jax"]
    data = jax.ShapeDtypeStruct(array.shape, np.uint32)
    try:
        key = jax.eval_shape(lambda d: jax.random.wrap_key_data(d, impl=array.impl), data)
    except (TypeError, ValueError):  # an implementation that this jax does not know
        return False
    return bool(key.shape == want.shape and key.dtype == want.key_dtype)


def _becomes_python(array: Array, like: Any) -> bool:
    if array.kind in (ArrayKind.BYTES, ArrayKind.TEXT):
        return type(like) is (bytes if array.kind is ArrayKind.BYTES else str)
    if array.shape or array.kind is ArrayKind.KEY:
        return False
    letters = {bool: "b", int: "iu", float: "f", complex: "c"}.get(type(like), "")
    return _number_kind(array.dtype) in tuple(letters)


def _number_kind(spec: dtypes.Spec) -> str:
    """Numpy's letter: b, i, u, f or c; of ml_dtypes' types too."""
    name = spec if isinstance(spec, str) else ""
    for prefix, letter in (("bool", "b"), ("int", "i"), ("uint", "u"), ("complex", "c")):
        if name.startswith(prefix):
            return letter
    return "f" if name.startswith(("float", "bfloat")) else ""


def number_as(value: Any, want: WantedArray) -> np.generic | None:
    """A Python number as a 0-d array's element; None when it is not exactly that."""
    if want.shape or want.dtype is None or type(value) not in (bool, int, float, complex):
        return None
    if (type(value) is bool) != (want.dtype == "bool"):
        return None
    try:
        with np.errstate(all="ignore"):
            element: Any = np.asarray(value).astype(dtypes.numpy_dtype(want.dtype))[()]
        same = element.item() == value or (math.isnan(value) and math.isnan(element.item()))
    except (TypeError, ValueError, OverflowError):
        return None
    return element if same else None


def words(opened: Array | Container | Value) -> str:
    """What is stored, for an error."""
    if isinstance(opened, Array):
        if opened.kind in (ArrayKind.BYTES, ArrayKind.TEXT):
            return f"a {opened.kind.value}"
        dtype = f"key data of {opened.impl}, {opened.dtype}" if opened.impl else opened.dtype
        return array_words(dtype, opened.shape)
    if isinstance(opened, Value):
        return "None" if opened.value is None else f"a {type(opened.value).__name__}"
    return _container_words(opened.shape, opened.pieces)


def like_words(like: Any, path: str) -> str:
    """What is wanted, for an error."""
    if like is ANYTHING:
        return "something"
    if like is PLAIN:
        return "plain values"
    want = wanted(like)
    if want is not None:
        return str(want)
    node = None if is_plain(like) else _open(like, path)
    if node is not None:
        return _node_words(node)
    return "None" if like is None else f"a {type(like).__name__}"


def _node_words(node: nodes.Node) -> str:
    return _container_words(node.shape, node.pieces)


def _container_words(shape: str, pieces: tuple[str, ...]) -> str:
    if shape in ("list", "tuple"):
        return f"a {shape} of {len(pieces)}"
    shown = ", ".join(pieces[:6]) + (", …" if len(pieces) > 6 else "")
    return f"a {shape} with {shown}" if pieces else f"an empty {shape}"


def targets(said: Structure, like: Any, path: str = "") -> Iterator[tuple[Array, Any]]:
    """The stored arrays, each with the leaf of `like` that it will be; `check` must have passed."""
    opened = open_structure(said, path)
    if isinstance(opened, Array):
        yield opened, like
    if not isinstance(opened, Container) or like is PLAIN or like is ANYTHING:
        return
    node = _open(like, path)
    if node is None:
        return
    have = dict(zip(opened.pieces, opened.children, strict=True))
    for piece, child in zip(node.pieces, node.children, strict=True):
        yield from targets(have[piece], child, paths.join(path, piece))


Fetch = Callable[[Array, Any], Any]
"""From a stored array and the leaf of `like` to the array in that leaf's kind."""


def build(said: Structure, like: Any, fetch: Fetch, path: str = "") -> Any:
    """The stored values in `like`'s containers; `check` must have passed."""
    if like is PLAIN or like is ANYTHING:
        return decode(said, lambda array: fetch(array, PLAIN), path)
    opened = open_structure(said, path)
    if isinstance(opened, Array):
        return fetch(opened, like)
    if isinstance(opened, Value):
        return _value(opened, like)
    if isinstance(like, StartDict):
        return _grown(opened, like, fetch)
    node = nodes.open_node(like, path)
    if node is None:  # check has compared the two
        raise ValueError(f"{path}: a container where the program wants a leaf")
    have = dict(zip(opened.pieces, opened.children, strict=True))
    return node.rebuild(
        [
            build(have[piece], child, fetch, paths.join(path, piece))
            for piece, child in zip(node.pieces, node.children, strict=True)
        ]
    )


def _grown(opened: Container, like: StartDict, fetch: Fetch) -> Any:
    """A dict in the order in which it was saved, with what has come to it."""
    mine = {paths.piece(key): key for key in like.of}
    made = copy.copy(like.empty)
    for stored, (below, child) in zip(opened.keys, opened.items(), strict=True):
        key = mine.get(below.rpartition("/")[2], stored)
        made[key] = build(child, like.of.get(key, PLAIN), fetch, below)
    return made


def _value(opened: Value, like: Any) -> Any:
    like = like.value if isinstance(like, StartArray) else like
    want = wanted(like)
    if want is None:
        return opened.value
    element = number_as(opened.value, want)
    if element is None or want.dtype is None:  # check has compared the two
        raise ValueError(f"{opened.path}: {opened.value!r} is not {want}")
    raw = np.frombuffer(element.tobytes(), np.uint8).copy()
    weak = bool(getattr(like, "weak_type", False))
    stored = Array(opened.path, ArrayKind.NUMPY, want.dtype, (), None, weak)
    return adopt(stored, like, lambda: raw, None)
