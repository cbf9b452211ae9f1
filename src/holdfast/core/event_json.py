"""The journal's form of the run's events (`core.events`): plain data, read back with suspicion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args

from holdfast.core import agree_events
from holdfast.core.events import (
    Chosen,
    Event,
    Examined,
    Heard,
    Launched,
    Noticed,
    Opened,
    RankExited,
    Resume,
    RollbackAsked,
    StacksCollected,
    Waited,
)
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang_events import RankLook, RankStack
from holdfast.core.notices import Notice, NoticeAction, NoticeState, Scope
from holdfast.core.rollback import Wish

_T = TypeVar("_T")
_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_NEWS: dict[str, type[agree_events.Event]] = {
    kind.__name__: kind for kind in get_args(agree_events.Event)
}


def encode(event: Event) -> dict[str, Any]:
    """The event as plain JSON-able data, with its type's name under `event`."""
    data = {"event": type(event).__name__, **_plain(event)}
    if isinstance(event, Heard):
        data["news"] = {"event": type(event.news).__name__, **_plain(event.news)}
    return data


def _plain(value: Any) -> Any:
    """As `dataclasses.asdict`, for what events hold, in an eighth of its time."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is tuple:
        return [_plain(one) for one in value]
    if is_dataclass(kind):
        return {name: _plain(getattr(value, name)) for name, _ in _fields_of(kind)}
    return value


def _fields_of(kind: type[Any]) -> _Fields:
    known = _fields.get(kind)
    if known is None:
        known = tuple((one.name, _KINDS.get(str(one.type))) for one in fields(kind))
        _fields[kind] = known
    return known


def decode(data: Mapping[str, Any]) -> Event:
    """The inverse of `encode`; unknown keys are ignored.

    Raises KeyError for an unknown event, ValueError for one whose fields are not those of its kind.
    """
    kind = _TYPES[str(data["event"])]
    values = _known(kind, data)
    if kind is Chosen:
        values["resume"] = _made(Resume, values.get("resume"))
    elif kind is Opened:
        wishes = values.get("wishes", ())
        if not isinstance(wishes, Sequence):
            raise ValueError(f"{kind.__name__} has no wishes")
        values["wishes"] = tuple(_made(Wish, wish) for wish in wishes)
    elif kind is Launched:
        waited = values.get("waited")
        values["waited"] = None if waited is None else _made(Waited, waited)
    elif kind is RollbackAsked:
        values["wish"] = _made(Wish, values.get("wish"))
    elif kind is Noticed:
        told = values.get("notice")
        names: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
        values["notice"] = _made(
            Notice,
            told,
            action=NoticeAction(str(names.get("action"))),
            state=NoticeState(str(names.get("state"))),
            scope=Scope(str(names.get("scope"))),
        )
    elif kind is Heard:
        news = values.get("news")
        if not isinstance(news, Mapping):
            raise ValueError(f"{kind.__name__} has no news")
        values["news"] = _made(_NEWS[str(news.get("event"))], news)
    elif kind is Examined or kind is StacksCollected:
        part: type[Any] = RankLook if kind is Examined else RankStack
        looks = values.get("ranks")
        if not isinstance(looks, Sequence):
            raise ValueError(f"{kind.__name__} has no ranks")
        values["ranks"] = tuple(_made(part, one) for one in looks)
    elif kind is RankExited:
        told = values.get("exit")
        report = told.get("report") if isinstance(told, Mapping) else None
        values["exit"] = _made(Exit, told, report=_made(RankReport, report) if report else None)
    return _made(kind, values)


_Fields = tuple[tuple[str, tuple[type, ...] | None], ...]
_fields: dict[type[Any], _Fields] = {}  # by dataclass: names, with the types that are checked
_ATOMS = frozenset({int, str, bool, float, NoneType})
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "str": (str,), "bool": (bool,),
    "int | None": (int, NoneType), "str | None": (str, NoneType),
}  # fmt: skip


def _made(kind: type[_T], data: Any, **made: Any) -> _T:
    """A `kind` of the fields that it knows; ValueError when one is missing or of another type."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} has no fields")
    values = _known(kind, data) | made
    for name, wanted in _fields_of(kind):
        if wanted and name in values and type(values[name]) not in wanted:
            meant = " | ".join("None" if one is NoneType else one.__name__ for one in wanted)
            raise ValueError(f"{name} of {kind.__name__} is no {meant}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name, _ in _fields_of(kind) if name in data}
