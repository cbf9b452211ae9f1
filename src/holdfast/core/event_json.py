"""The journal's form of the run's events (`core.events`): plain data, read back with suspicion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, get_args

from holdfast.core.events import Event, Heard
from holdfast.core.plain_json import Parts
from holdfast.core.save import events as news

_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_FORM = Parts("event", get_args(news.Event))  # the one place where any may stand


def encode(event: Event) -> dict[str, Any]:
    """The event as plain JSON-able data, with its type's name under `event`."""
    data = {"event": type(event).__name__, **_plain(event)}
    if isinstance(event, Heard):
        data["news"] = {"event": type(event.news).__name__, **data["news"]}
    return data


def _plain(value: Any) -> Any:
    """What `dataclasses.asdict` gives, for what events hold, in a tenth of its time."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is tuple:
        return [_plain(one) for one in value]
    if is_dataclass(kind):
        return {
            name: one if type(one := getattr(value, name)) in _ATOMS else _plain(one)
            for name in _fields_of(kind)
        }
    return value.value if isinstance(value, Enum) else value


def decode(data: Mapping[str, Any]) -> Event:
    """The inverse of `encode`; unknown keys are ignored.

    Raises KeyError for an unknown event, ValueError for one whose fields are not those of its kind.
    """
    kind = _TYPES[str(data["event"])]
    event: Event = _FORM.read(kind, data)
    return event


# --- fields ---------------------------------------------------------------------------------

_fields: dict[type[Any], tuple[str, ...]] = {}  # of a dataclass: their names
_ATOMS = frozenset({int, str, bool, float, NoneType})


def _fields_of(kind: type[Any]) -> tuple[str, ...]:
    known = _fields.get(kind)
    if known is None:
        known = _fields[kind] = tuple(one.name for one in fields(kind))
    return known
