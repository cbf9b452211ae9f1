"""Dataclasses as plain JSON-able data with each part's name, read back with suspicion.

    parts = Parts("policy", {RunPolicy, Optimal, ...})
    parts.write(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": …
    parts.read(RunPolicy, data)  # ValueError for what is none

What is read goes by the types of the fields. A field that is missing has its default, and unknown
ones are ignored: older and newer versions read each other as far as that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

Read = Callable[[Any], Any]
_SCALARS = (int, float, bool, str)


class Parts:
    """One family of dataclasses; in its data each part's name stands under `tag`.

    A dataclass that is not of the family may be a field of one that is: it needs no name.
    """

    def __init__(self, tag: str, kinds: Iterable[type[Any]]) -> None:
        self._tag = tag
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._reads: dict[Any, Read] = {}  # by type: made once

    def write(self, part: Any) -> Any:
        """A part, or a value in one, as plain data. TypeError for what is not of the family."""
        if is_dataclass(part) and not isinstance(part, type):
            name = type(part).__name__
            if self._kinds.get(name) is not type(part):
                raise TypeError(f"{name} is no {self._tag} that a journal can hold")
            values = {one.name: self.write(getattr(part, one.name)) for one in fields(part)}
            return {self._tag: name} | values
        if isinstance(part, Enum):
            return part.value
        return [self.write(one) for one in part] if isinstance(part, tuple) else part

    def read(self, wanted: Any, data: object) -> Any:
        """A value of the type `wanted`, from plain data; raises ValueError for what is none."""
        read = self._reads.get(wanted)
        if read is None:
            read = self._reads[wanted] = self._read_of(wanted)
        return read(data)

    def _read_of(self, wanted: Any) -> Read:
        if get_origin(wanted) is tuple:
            return self._tuple(get_args(wanted))
        options = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
        if len(options) == 2 and NoneType in options:
            (inner,) = (one for one in options if one is not NoneType)
            return lambda data: None if data is None else self.read(inner, data)
        if all(one is NoneType or one in _SCALARS for one in options):
            return _scalar(options)
        if len(options) == 1 and isinstance(wanted, type) and issubclass(wanted, Enum):
            return wanted
        if any(issubclass(kind, options) for kind in self._kinds.values()):
            return lambda data: self._named(options, data)
        return self._fields(wanted)

    def _tuple(self, parts: tuple[Any, ...]) -> Read:
        def read(data: Any) -> Any:
            if not isinstance(data, list):
                raise ValueError(f"{data!r} is no list")
            if parts[-1] is ...:
                return tuple([self.read(parts[0], one) for one in data])
            if len(parts) != len(data):
                raise ValueError(f"{data!r} has not {len(parts)} parts")
            return tuple([self.read(*one) for one in zip(parts, data, strict=True)])

        return read

    def _named(self, options: tuple[type[Any], ...], data: Any) -> Any:
        name = data.get(self._tag) if isinstance(data, Mapping) else None
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, options):
            wanted = options[0].__name__ if len(options) == 1 else self._tag
            raise ValueError(f"{name!r} is no {wanted} of this version")
        read = self._reads.get((self._tag, kind))
        if read is None:
            read = self._reads[self._tag, kind] = self._fields(kind)
        return read(data)

    def _fields(self, kind: type[Any]) -> Read:
        types = get_type_hints(kind)
        wanted = tuple((one.name, types[one.name]) for one in fields(kind))

        def read(data: Any) -> Any:
            if not isinstance(data, Mapping):
                raise ValueError(f"{kind.__name__} has no fields")
            values = {}
            for name, of in wanted:
                if name in data:
                    try:
                        values[name] = self.read(of, data[name])
                    except ValueError as error:
                        raise ValueError(f"{name} of {kind.__name__}: {error}") from None
            try:
                return kind(**values)
            except TypeError as error:
                raise ValueError(str(error)) from None

        return read


def _scalar(options: tuple[type[Any], ...]) -> Read:
    meant = " | ".join("None" if one is NoneType else one.__name__ for one in options)
    known = {*options, int} if float in options else {*options}

    def read(data: Any) -> Any:
        if type(data) not in known:
            raise ValueError(f"{data!r} is no {meant}")
        return data  # a whole number may stand for seconds: it stays one, as words show it

    return read
