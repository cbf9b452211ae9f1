"""Reading a structure (the JSON that `tree` describes) from disk: trusted in nothing.

Every function raises `ValueError` on what `tree` cannot have written; the caller, who knows the
file's name, turns that into `CorruptCheckpoint`.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast.core.value import value
from holdfast.snapshot import dtypes, paths
from holdfast.snapshot.arrays import ArrayKind

Structure = Any
"""JSON, as `tree` describes it."""

MAX_DEPTH = 200
MAX_DIMENSIONS = 64
SAFE_INT = 2**53
"""Integers up to here are exact in every JSON reader."""


def encode_int(value: int) -> Structure:
    """An int of any size. Hexadecimal, for Python refuses decimals of more than 4,300 digits."""
    return value if -SAFE_INT <= value <= SAFE_INT else {"$": "int", "hex": hex(value)}


def encode_float(value: float) -> Structure:
    """A float to the bit; finite ones stand as the shortest decimal that reads back equal."""
    if math.isfinite(value):
        return value
    return {"$": "float", "bits": struct.pack(">d", value).hex()}


def is_object(keys: Iterable[object]) -> bool:
    """Whether JSON can say a dict with these keys as an object: they are str, none of them "$"."""
    for key in keys:  # noqa: SIM110 - `all` would make a generator for each dict
        if type(key) is not str or key == "$":
            return False
    return True


def encode_dict(keys: Sequence[str | int], children: list[Structure]) -> Structure:
    """A dict: an object where JSON can say it."""
    if is_object(keys):
        return dict(zip(keys, children, strict=True))
    said = [key if isinstance(key, str) else encode_int(key) for key in keys]
    return {"$": "dict", "keys": said, "of": children}


@value
class Array:
    """An array that the structure says is in the file."""

    path: str
    kind: ArrayKind
    dtype: dtypes.Spec
    shape: tuple[int, ...]
    impl: str | None
    weak: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array; ValueError when its dtype is none."""
        return math.prod(self.shape) * dtypes.itemsize(self.dtype)


@value
class Container:
    """A container; `keys` are a dict's own keys, otherwise the pieces of the path."""

    path: str
    shape: str  # dict, list, tuple or record
    plain: str
    keys: tuple[str | int, ...]
    pieces: tuple[str, ...]
    children: tuple[Structure, ...]

    def items(self) -> Iterator[tuple[str, Structure]]:
        """The path of each child, and the child."""
        for piece, child in zip(self.pieces, self.children, strict=True):
            yield paths.join(self.path, piece), child


@value
class Value:
    """A leaf that stands in the structure itself."""

    path: str
    value: Any


def open_structure(said: Structure, path: str) -> Array | Container | Value:
    """One level of a structure; ValueError on rubbish."""
    if isinstance(said, list):
        return _sequence(path, "list", said)
    if not isinstance(said, dict):
        return Value(path, said)
    tag = said.get("$")
    if tag is None:
        keys = tuple(said)
        pieces = tuple(map(paths.piece, keys))
        return Container(path, "dict", "dict", keys, pieces, tuple(said.values()))
    if tag == "array":
        return _array(said, path)
    if tag == "tuple":
        return _sequence(path, "tuple", _field(said, "of", list))
    if tag == "dict":
        return _dict(said, path)
    if tag == "record":
        return _record(said, path)
    return Value(path, _scalar(tag, said))


def _field(said: dict[str, Any], name: str, kind: type) -> Any:
    found = said.get(name)
    if type(found) is not kind:
        raise ValueError(f"{name!r} of {said.get('$')!r} is {found!r}, not a {kind.__name__}")
    return found


def _sequence(path: str, shape: str, children: list[Structure]) -> Container:
    pieces = tuple(map(str, range(len(children))))
    return Container(path, shape, shape, pieces, pieces, tuple(children))


def _dict(said: dict[str, Any], path: str) -> Container:
    keys = tuple(
        _scalar("int", key) if isinstance(key, dict) else key for key in _field(said, "keys", list)
    )
    children = tuple(_field(said, "of", list))
    if not all(type(key) in (str, int) for key in keys) or len(set(keys)) != len(children):
        raise ValueError(f"the keys of a dict are {keys!r:.200}")
    return Container(path, "dict", "dict", keys, tuple(map(paths.piece, keys)), children)


def _record(said: dict[str, Any], path: str) -> Container:
    pieces = tuple(_field(said, "keys", list))
    children = tuple(_field(said, "of", list))
    plain = _field(said, "plain", str)
    sound = all(type(piece) is str and paths.is_piece(piece) for piece in pieces)
    if not sound or len(set(pieces)) != len(children):
        raise ValueError(f"the fields of a record are {pieces!r:.200}")
    if plain not in ("dict", "list", "tuple"):
        raise ValueError(f"a record is plainly a {plain!r:.200}")
    return Container(path, "record", plain, pieces, pieces, children)


def _array(said: dict[str, Any], path: str) -> Array:
    shape = _field(said, "shape", list)
    if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**62 for n in shape):
        raise ValueError(f"the shape of an array is {shape!r:.200}")
    impl = said.get("impl")
    if impl is not None and type(impl) is not str:
        raise ValueError(f"the implementation of a PRNG key is {impl!r:.200}")
    dtype = said.get("dtype")
    if not isinstance(dtype, str | list):
        raise ValueError(f"the dtype of an array is {dtype!r:.200}")
    weak = said.get("weak", False) is True
    return Array(path, ArrayKind(_field(said, "kind", str)), dtype, tuple(shape), impl, weak)


def _scalar(tag: Any, said: dict[str, Any]) -> Any:
    if tag != said.get("$"):
        raise ValueError(f"{said!r:.200} is no {tag}")
    try:
        if tag == "int":
            return int(_field(said, "hex", str), 16)
        if tag == "float":
            return struct.unpack(">d", bytes.fromhex(_field(said, "bits", str)))[0]
        if tag == "bytes":
            return base64.b64decode(_field(said, "base64", str), validate=True)
        if tag == "complex":
            real, imaginary = (
                _scalar("float", part) if isinstance(part, dict) else part
                for part in _field(said, "of", list)
            )
            if type(real) is float and type(imaginary) is float:
                return complex(real, imaginary)
    except (struct.error, binascii.Error) as error:
        raise ValueError(f"{said!r:.200}: {error}") from error
    raise ValueError(f"{said!r:.200} means nothing to this version")


def leaves(said: Structure, path: str = "", depth: int = 0) -> Iterator[Array | Value]:
    """Every leaf of a structure, in tree order; ValueError on rubbish."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    opened = open_structure(said, path)
    if isinstance(opened, Container):
        for child_path, child in opened.items():
            yield from leaves(child, child_path, depth + 1)
    else:
        yield opened


def arrays(said: Structure, path: str = "") -> Iterator[Array]:
    """Every array of a structure, in tree order; ValueError on rubbish."""
    return (leaf for leaf in leaves(said, path) if isinstance(leaf, Array))


def has_same_arrays(said: Structure, known: Structure, depth: int = 0) -> bool:
    """Whether a structure differs from a known good one in values alone; ValueError on rubbish.

    It looks into what differs, and nowhere else: sets that follow one another are compared so.
    """
    if said == known:
        return True
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    one, other = open_structure(said, ""), open_structure(known, "")
    if not isinstance(one, Container) or not isinstance(other, Container):
        return isinstance(one, Value) and isinstance(other, Value)
    return (one.shape, one.plain, one.keys) == (other.shape, other.plain, other.keys) and all(
        has_same_arrays(child, before, depth + 1)
        for child, before in zip(one.children, other.children, strict=True)
    )


class _Nothing:
    """What `prune` leaves of a part in which no path fits; None is a value."""


NOTHING = _Nothing()


def prune(said: Structure, patterns: tuple[str, ...], path: str = "", depth: int = 0) -> Structure:
    """Only the leaves whose path fits a pattern; `NOTHING` when there are none.

    A dict loses the other keys. In lists, tuples and records the other places hold None, so that
    what is left keeps its index. ValueError on rubbish.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    opened = open_structure(said, path)
    if not isinstance(opened, Container):
        return said if any(paths.matches(pattern, path) for pattern in patterns) else NOTHING
    kept = [prune(child, patterns, child_path, depth + 1) for child_path, child in opened.items()]
    if all(child is NOTHING for child in kept):
        return NOTHING
    if opened.shape == "dict":
        pairs = [(k, v) for k, v in zip(opened.keys, kept, strict=True) if v is not NOTHING]
        return encode_dict([key for key, _ in pairs], [child for _, child in pairs])
    kept = [None if child is NOTHING else child for child in kept]
    return kept if opened.shape == "list" else {**said, "of": kept}


Fetch = Callable[[Array], Any]
"""From an array's description to the array in the program's kind."""


def decode(said: Structure, fetch: Fetch, path: str = "", depth: int = 0) -> Any:
    """The tree in plain dicts, lists and tuples; ValueError on rubbish."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    opened = open_structure(said, path)
    if isinstance(opened, Value):
        return opened.value
    if isinstance(opened, Array):
        return fetch(opened)
    children = [decode(child, fetch, child_path, depth + 1) for child_path, child in opened.items()]
    if opened.plain == "dict":
        return dict(zip(opened.keys, children, strict=True))
    return tuple(children) if opened.plain == "tuple" else children


def at(said: Structure, path: str) -> Structure:
    """The part of a structure under a path; null where there is none, ValueError on rubbish."""
    here = ""
    for piece in path.split("/") if path else ():
        opened = open_structure(said, here)
        if not isinstance(opened, Container) or piece not in opened.pieces:
            return None
        said = opened.children[opened.pieces.index(piece)]
        here = paths.join(here, piece)
    return said
