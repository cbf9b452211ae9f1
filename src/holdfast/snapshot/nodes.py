"""Containers: what counts as one, its children by path piece, and how to build another like it.

dict (str or int keys), list, tuple, namedtuple, dataclass and, when jax is already loaded, any type
registered as a pytree node (optax and flax states). The frameworks are never imported here.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from holdfast.core.value import value
from holdfast.errors import Unstorable
from holdfast.snapshot import paths

Shape = Literal["dict", "list", "tuple", "record"]
"""record: fields by name or position in a type of its own (namedtuple, dataclass, pytree node)."""


DICTS = (dict, OrderedDict, defaultdict, Counter)
"""Taken by their keys, whatever jax has registered: an int key comes back as a number."""


@value
class Node:
    """A container taken apart. `keys` are a dict's own keys, otherwise the pieces."""

    shape: Shape
    type_name: str
    plain: Literal["dict", "list", "tuple"]  # what it becomes where its type is not known
    keys: tuple[str | int, ...]
    pieces: tuple[str, ...]
    children: tuple[Any, ...]
    rebuild: Callable[[Sequence[Any]], Any]


def open_node(value: Any, path: str) -> Node | None:
    """Take a container apart; None when the value is a leaf.

    Raises:
        Unstorable: a dict key that is neither str nor int.

    """
    kind = type(value)
    if kind in DICTS:
        return _dict(value, path)
    if kind is list or kind is tuple:
        return _sequence(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _record(value, kind._fields, value, "tuple", lambda new: kind(*new))
    registered = _registered(value)
    if registered is not None:
        return registered
    if isinstance(value, dict):
        return _dict(value, path)
    if isinstance(value, list | tuple):
        return _sequence(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value))
        children = [getattr(value, name) for name in names]
        return _record(value, names, children, "dict", lambda new: _replace(value, names, new))
    return None


def _dict(value: dict[Any, Any], path: str) -> Node:
    keys = tuple(value)
    for key in keys:
        if type(key) is not str and type(key) is not int:
            raise Unstorable(
                path,
                f"a checkpoint's dict keys are str or int, not {key!r} ({type(key).__name__}); "
                "rename the key",
            )

    def rebuild(new: Sequence[Any]) -> Any:
        pairs = zip(keys, new, strict=True)
        if type(value) is dict:
            return dict(pairs)
        clone = copy.copy(value)  # keeps a defaultdict's factory, a subclass's attributes
        for key, item in pairs:  # by `update` a Counter would count
            clone[key] = item
        return clone

    pieces = tuple(paths.piece(key) for key in keys)
    return Node("dict", "dict", "dict", keys, pieces, tuple(value.values()), rebuild)


def _sequence(value: list[Any] | tuple[Any, ...]) -> Node:
    shape: Literal["list", "tuple"] = "list" if isinstance(value, list) else "tuple"
    pieces = tuple(str(index) for index in range(len(value)))
    return Node(shape, shape, shape, pieces, pieces, tuple(value), type(value))


def _record(
    value: Any,
    names: Sequence[str],
    children: Sequence[Any],
    plain: Literal["dict", "list", "tuple"],
    rebuild: Callable[[Sequence[Any]], Any],
) -> Node:
    pieces = tuple(paths.piece(name) for name in names)
    return Node("record", _name(value), plain, pieces, pieces, tuple(children), rebuild)


def _replace(value: Any, names: tuple[str, ...], new: Sequence[Any]) -> Any:
    """Like dataclasses.replace, and also for fields that are not arguments of `__init__`."""
    clone = copy.copy(value)
    for name, item in zip(names, new, strict=True):
        object.__setattr__(clone, name, item)  # frozen dataclasses refuse the plain assignment
    return clone


def _registered(value: Any) -> Node | None:
    """A pytree node of a loaded jax, opened one level deep."""
    jax = sys.modules.get("jax")
    tree_util = getattr(jax, "tree_util", None)
    if tree_util is None or value is None or hasattr(type(value), "__next__"):
        return None  # an iterator is no container, and jax refuses to be asked
    keyed, treedef = tree_util.tree_flatten_with_path(
        value, is_leaf=lambda other: other is not value
    )
    if len(keyed) == 1 and not keyed[0][0]:
        return None  # a leaf: the only path in it is the empty one
    keys = [_key(path[0]) for path, _ in keyed]
    pieces = tuple(paths.piece(key) for key in keys)
    if len(set(pieces)) < len(pieces):
        pieces = tuple(str(index) for index in range(len(keyed)))
    plain: Literal["dict", "list"] = "list" if all(type(key) is int for key in keys) else "dict"
    children = tuple(child for _, child in keyed)
    return Node("record", _name(value), plain, pieces, pieces, children, treedef.unflatten)


def _key(entry: Any) -> str | int:
    """The key of one jax path entry: an attribute's name, an index, or a dict key."""
    for attribute in ("name", "idx", "key"):
        found = getattr(entry, attribute, None)
        if type(found) is str or type(found) is int:
            return found
    return str(entry)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
