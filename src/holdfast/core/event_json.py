"""The journal's form of the run's events (`core.events`): plain data, read back with suspicion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_args

from holdfast.core.events import (
    Chosen,
    Event,
    Examined,
    Heard,
    Launched,
    Noticed,
    Opened,
    OwnFailure,
    RankExited,
    Resume,
    RollbackAsked,
    StacksCollected,
    Waited,
)
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang.events import RankLook, RankStack
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState, Scope
from holdfast.core.run.rollback import Wish
from holdfast.core.save import agree_events

_T = TypeVar("_T")
_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_NEWS: dict[str, type[agree_events.Event]] = {
    kind.__name__: kind for kind in get_args(agree_events.Event)
}


def encode(event: Event) -> dict[str, Any]:
    """The event as plain JSON-able data, with its type's name under `event`."""
    data = {"event": type(event).__name__, **_plain(event)}
    if isinstance(event, Heard):
        data["news"] = {"event": type(event.news).__name__, **data["news"]}
    return data


def _plain(value: Any) -> Any:
    """As `dataclasses.asdict`, for what events hold, in a tenth of its time."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is tuple:
        return [_plain(one) for one in value]
    if is_dataclass(kind):
        return {
            name: one if type(one := getattr(value, name)) in _ATOMS else _plain(one)
            for name, _ in _fields_of(kind)
        }
    return value.value if isinstance(value, Enum) else value


def decode(data: Mapping[str, Any]) -> Event:
    """The inverse of `encode`; unknown keys are ignored.

    Raises KeyError for an unknown event, ValueError for one whose fields are not those of its kind.
    """
    kind = _TYPES[str(data["event"])]
    parts = _PARTS.get(kind)
    return _made(kind, data) if parts is None else _made(kind, data, **parts(data))


# --- what holds more than plain values ------------------------------------------------------


def _resume(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"resume": _made(Resume, data.get("resume"))}


def _opened(data: Mapping[str, Any]) -> dict[str, Any]:
    wishes, own = data.get("wishes", ()), data.get("own_failures", ())
    if not (isinstance(wishes, Sequence) and isinstance(own, Sequence)):
        raise ValueError("Opened has no wishes, or no failures")
    return {
        "wishes": tuple(_made(Wish, wish) for wish in wishes),
        "own_failures": tuple(_made(OwnFailure, one) for one in own),
    }


def _waited(data: Mapping[str, Any]) -> dict[str, Any]:
    waited = data.get("waited")
    return {"waited": None if waited is None else _made(Waited, waited)}


def _wish(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"wish": _made(Wish, data.get("wish"))}


def _notice(data: Mapping[str, Any]) -> dict[str, Any]:
    told = data.get("notice")
    names: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    notice = _made(
        Notice,
        told,
        action=NoticeAction(str(names.get("action"))),
        state=NoticeState(str(names.get("state"))),
        scope=Scope(str(names.get("scope"))),
    )
    return {"notice": notice}


def _news(data: Mapping[str, Any]) -> dict[str, Any]:
    news = data.get("news")
    if not isinstance(news, Mapping):
        raise ValueError("Heard has no news")
    return {"news": _made(_NEWS[str(news.get("event"))], news)}


def _exit(data: Mapping[str, Any]) -> dict[str, Any]:
    told = data.get("exit")
    report = told.get("report") if isinstance(told, Mapping) else None
    return {"exit": _made(Exit, told, report=_made(RankReport, report) if report else None)}


def _ranks_of(part: type[Any]) -> _Parts:
    def parts(data: Mapping[str, Any]) -> dict[str, Any]:
        looks = data.get("ranks")
        if not isinstance(looks, Sequence):
            raise ValueError(f"{data['event']} has no ranks")
        return {"ranks": tuple(_made(part, one) for one in looks)}

    return parts


_Parts = Callable[[Mapping[str, Any]], dict[str, Any]]
_PARTS: dict[type[Any], _Parts] = {
    Chosen: _resume,
    Opened: _opened,
    Launched: _waited,
    RollbackAsked: _wish,
    Noticed: _notice,
    Heard: _news,
    RankExited: _exit,
    Examined: _ranks_of(RankLook),
    StacksCollected: _ranks_of(RankStack),
}


# --- fields ---------------------------------------------------------------------------------

_Fields = tuple[tuple[str, tuple[type, ...] | None], ...]
_fields: dict[type[Any], _Fields] = {}  # by dataclass: names, with the types that are checked
_ATOMS = frozenset({int, str, bool, float, NoneType})
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "str": (str,), "bool": (bool,),
    "int | None": (int, NoneType), "str | None": (str, NoneType),
}  # fmt: skip


def _fields_of(kind: type[Any]) -> _Fields:
    known = _fields.get(kind)
    if known is None:
        known = tuple((one.name, _KINDS.get(str(one.type))) for one in fields(kind))
        _fields[kind] = known
    return known


def _made(kind: type[_T], data: Any, **values: Any) -> _T:
    """A `kind` of the fields that it knows; ValueError when one is missing or of another type.

    `values`: those that are made already.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} has no fields")
    for name, wanted in _fields_of(kind):
        if name in data and name not in values:
            value = values[name] = data[name]
            if wanted and type(value) not in wanted:
                meant = " | ".join("None" if one is NoneType else one.__name__ for one in wanted)
                raise ValueError(f"{name} of {kind.__name__} is no {meant}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None
