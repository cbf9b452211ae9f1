"""The journal's form of the run's events (`core.events`): plain data, read back with suspicion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
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
    data = {"event": type(event).__name__, **asdict(event)}
    if isinstance(event, Heard):
        data["news"] = {"event": type(event.news).__name__, **asdict(event.news)}
    return data


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


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "str": (str,), "bool": (bool,),
    "int | None": (int, NoneType), "str | None": (str, NoneType),
}  # fmt: skip


def _made(kind: type[_T], data: Any, **made: Any) -> _T:
    """A `kind` of the fields that it knows; ValueError when one is missing or of another type."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} has no fields")
    values = _known(kind, data) | made
    for field in fields(kind):  # type: ignore[arg-type] # every kind is a dataclass
        wanted = _KINDS.get(str(field.type))
        if wanted and field.name in values and type(values[field.name]) not in wanted:
            raise ValueError(f"{field.name} of {kind.__name__} is no {field.type}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}
