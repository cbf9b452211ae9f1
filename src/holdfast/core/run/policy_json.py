"""The journal's form of a run's policy: plain data with each part's name, read back with suspicion.

encode(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": "Optimal", …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.core.hang import deadline as hang
from holdfast.core.notices import plan as notice_plan
from holdfast.core.run import restart
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import policy as saves

_PARTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        RunPolicy,
        saves.Either, saves.Both, saves.Never, saves.EverySteps, saves.EverySeconds, saves.Optimal,
        restart.AllOf, restart.HopelessCauses, restart.SameFailure, restart.Budget,
        restart.BackOff, restart.CrashLoop,
        hang.HangPolicy,
        notice_plan.NoticePolicy,
    )
}  # fmt: skip


def encode(part: Any) -> Any:
    """A policy, or a value in one, as plain JSON-able data."""
    if is_dataclass(part) and not isinstance(part, type):
        name = type(part).__name__
        if _PARTS.get(name) is not type(part):
            raise TypeError(f"{name} is no policy that a journal can hold")
        values = {one.name: encode(getattr(part, one.name)) for one in fields(part)}
        return {"policy": name} | values
    if isinstance(part, Enum):
        return part.value
    return [encode(one) for one in part] if isinstance(part, tuple) else part


def decode(data: object) -> RunPolicy:
    """The inverse of `encode`. A field that is missing has its default; unknown ones are ignored.

    Raises ValueError for what is no policy, or one of a newer version.
    """
    policy: RunPolicy = _part(RunPolicy, data)
    return policy


def _read(wanted: Any, data: Any) -> Any:
    """A value of the type `wanted`, from plain data."""
    if get_origin(wanted) is UnionType:
        if data is None:
            return None
        (wanted,) = (one for one in get_args(wanted) if one is not type(None))
    if get_origin(wanted) is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{data!r} is no list")
        return tuple(_read(get_args(wanted)[0], one) for one in data)
    if issubclass(wanted, Enum):
        return wanted(data)
    if wanted in (int, float, bool):
        if type(data) is not wanted and not (wanted is float and type(data) is int):
            raise ValueError(f"{data!r} is no {wanted.__name__}")
        return data  # a whole number may stand for seconds: it stays one, as words show it
    return _part(wanted, data)


def _part(wanted: type[Any], data: Any) -> Any:
    name = data.get("policy") if isinstance(data, Mapping) else None
    kind = _PARTS.get(name) if isinstance(name, str) else None
    if kind is None or not issubclass(kind, wanted):
        raise ValueError(f"{name!r} is no {wanted.__name__} of this version")
    types = _types(kind.__name__)
    known = {key: _read(types[key], data[key]) for key in types if key in data}
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(str(error)) from None


@cache
def _types(name: str) -> dict[str, Any]:
    """Of the fields of that part."""
    types = get_type_hints(_PARTS[name])
    return {one.name: types[one.name] for one in fields(_PARTS[name])}
