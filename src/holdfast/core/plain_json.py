"""Dataclasses as plain JSON-able data with each part's name, read back with suspicion.

    parts = Parts("policy", {RunPolicy, Optimal, ...})
    parts.write(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": …
    parts.read(RunPolicy, data)  # ValueError for what is none

What is read goes by the types of the fields. A field that is missing has its default, and unknown
ones are ignored: older and newer versions read each other as far as that goes.

A thousand hosts that answer an order say the same. What cannot change is made once for all who say
it one after the other, so plain data that was read is not changed any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

Read = Callable[[Any], Any]
Write = Callable[[Any], Any]
_ATOMS = frozenset({int, float, bool, str, NoneType})
_SCALARS = (int, float, bool, str)
_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Parts:
    """One family of dataclasses; in its data each part's name stands under `tag`.

    A dataclass that is not of the family may be a field of one that is: it needs no name. Nor does
    a named tuple.
    """

    def __init__(self, tag: str, kinds: Iterable[type[Any]], *, is_brief: bool = False) -> None:
        """`is_brief`: a field that has its default is left out."""
        self._tag = tag
        self._is_brief = is_brief
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._writes: dict[type[Any], Write] = {}  # by type: made once
        self._reads: dict[Any, Read] = {}
        self._named_reads: dict[type[Any], Read] = {}

    def write(self, part: Any) -> Any:
        """A part, or a value in one, as plain data. TypeError for what is not of the family."""
        kind = type(part)
        if kind in _ATOMS:
            return part
        write = self._writes.get(kind)
        if write is None:
            write = self._writes[kind] = self._write_of(kind)
        return write(part)

    def _write_of(self, kind: type[Any]) -> Write:
        write = self.write
        if is_dataclass(kind):
            name = kind.__name__
            if self._kinds.get(name) is not kind:
                raise TypeError(f"{name} is no {self._tag} that a journal can hold")
            of = {one.name: _default(one) for one in fields(kind)}
            return self._write_fields({self._tag: name}, of)
        if issubclass(kind, Enum):
            return lambda part: part.value
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            of = dict.fromkeys(kind._fields, MISSING) | getattr(kind, "_field_defaults", {})
            return self._write_fields({}, of)
        if issubclass(kind, tuple | list):
            return lambda part: [write(one) for one in part]
        return lambda part: part

    def _write_fields(self, begins: Mapping[str, str], of: Mapping[str, Any]) -> Write:
        """`of`: their names, each with its default; MISSING: it has none."""
        write = self.write
        each = tuple((name, default if self._is_brief else MISSING) for name, default in of.items())

        def fields_of(part: Any) -> dict[str, Any]:
            data: dict[str, Any] = {**begins}
            for name, default in each:
                value = getattr(part, name)
                if value is not default and (default is MISSING or value != default):
                    data[name] = value if type(value) in _ATOMS else write(value)
            return data

        return fields_of

    def read(self, wanted: Any, data: object) -> Any:
        """A value of the type `wanted`, from plain data; raises ValueError for what is none."""
        return self.reader(wanted)(data)

    def reader(self, wanted: Any) -> Read:
        """What reads values of that type: to look it up takes a while."""
        read = self._reads.get(wanted)
        if read is None:
            read = self._reads[wanted] = self._read_of(wanted)
        return read

    def _read_of(self, wanted: Any) -> Read:
        kind, of = get_origin(wanted), get_args(wanted)
        if kind is tuple and of[-1] is not ...:
            each = [self.reader(one) for one in of]
            return lambda data: tuple(
                [read(one) for read, one in zip(each, _listed(data, len(each)), strict=True)]
            )
        if kind in (tuple, list):
            item = self.reader(of[0])
            return lambda data: kind([item(one) for one in _listed(data)])
        options = of if isinstance(wanted, UnionType) else (wanted,)
        if len(options) == 2 and NoneType in options:
            (inner,) = (self.reader(one) for one in options if one is not NoneType)
            return lambda data: None if data is None else inner(data)
        if all(one is NoneType or one in _SCALARS for one in options):
            return _scalar(options)
        if len(options) == 1 and issubclass(wanted, Enum):
            member: Read = wanted
            return member
        if any(issubclass(kind, options) for kind in self._kinds.values()):
            return lambda data: self._named(options, data)
        return self._fields(wanted)

    def _named(self, options: tuple[type[Any], ...], data: Any) -> Any:
        is_mapping = type(data) is dict or isinstance(data, Mapping)
        name = data.get(self._tag) if is_mapping else None
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, options):
            wanted = options[0].__name__ if len(options) == 1 else self._tag
            raise ValueError(f"{name!r} is no {wanted} of this version")
        read = self._named_reads.get(kind)
        if read is None:
            read = self._named_reads[kind] = self._fields(kind)
        return read(data)

    def _fields(self, kind: type[Any]) -> Read:
        """Of a dataclass, or of a named tuple."""
        types = get_type_hints(kind)
        names = [one.name for one in fields(kind)] if is_dataclass(kind) else kind._fields
        each = {name: self.reader(types[name]) for name in names}

        def read(data: Any) -> Any:
            if type(data) is not dict and not isinstance(data, Mapping):
                raise ValueError(f"{kind.__name__} has no fields")
            values, name = {}, ""
            try:
                for name, value in data.items():
                    if (read_one := each.get(name)) is not None:
                        values[name] = read_one(value)
            except ValueError as error:
                raise ValueError(f"{name} of {kind.__name__}: {error}") from None
            try:
                return kind(**values)
            except TypeError as error:
                raise ValueError(str(error)) from None

        return _once(read)


def _once(read: Read) -> Read:
    """The same, which makes one part of what is equal and comes one after the other."""
    last: tuple[Any, Any] = (None, None)  # in one, for several threads may read

    def read_once(data: Any) -> Any:
        nonlocal last
        seen, part = last
        if seen is None or data != seen:
            part = read(data)
            last = data, part
        return part

    return read_once


def packed_json(data: Mapping[str, Any]) -> bytes:
    """As JSON in ASCII, with no space in it; raises ValueError or TypeError for what it has not."""
    return _ENCODE(data).encode()


def copied(part: Any) -> Any:
    """The same, to go on from apart. What cannot change is not copied."""
    kind = type(part)
    if kind in _ATOMS:
        return part
    copy = _copies.get(kind)
    if copy is None:
        copy = _copies[kind] = _copy_of(kind)
    return copy(part)


_copies: dict[type[Any], Callable[[Any], Any]] = {}  # by type: made once


def _copy_of(kind: type[Any]) -> Callable[[Any], Any]:
    if issubclass(kind, list | set):
        return kind  # of what cannot change
    if issubclass(kind, dict):
        return lambda part: {key: copied(value) for key, value in part.items()}
    if not is_dataclass(kind) or _is_frozen(kind):
        return lambda part: part
    names = [one.name for one in fields(kind)]

    def copy(part: Any) -> Any:
        other = object.__new__(kind)
        for name in names:
            value = getattr(part, name)
            setattr(other, name, value if type(value) in _ATOMS else copied(value))
        return other

    return copy


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _is_frozen(kind: Any) -> bool:
    """One that changes has no hash."""
    return kind.__hash__ is not None


def _listed(data: Any, length: int | None = None) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r} is no list")
    if length is not None and len(data) != length:
        raise ValueError(f"{data!r} has not {length} parts")
    return data


def _scalar(options: tuple[type[Any], ...]) -> Read:
    meant = " | ".join("None" if one is NoneType else one.__name__ for one in options)
    known = {*options, int} if float in options else {*options}

    def read(data: Any) -> Any:
        if type(data) not in known:
            raise ValueError(f"{data!r} is no {meant}")
        return data  # a whole number may stand for seconds: it stays one, as words show it

    return read
