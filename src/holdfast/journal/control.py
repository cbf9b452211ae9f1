"""Control: what people ask of a run's supervisor, from anywhere that reaches the store.

    control/000003-stop.json

A request is bound to the lease epoch that held the run when it was made, and only that holder acts
on it. So a `stop` that its supervisor did not live to see cannot stop the next start of the run.
The supervisor removes a request before it acts: none is acted on twice.

A `rollback` is another matter: it is about the next attempt, whoever starts it. It stays until an
attempt's record names its id (`holdfast.journal.rollbacks`), so it can neither be lost nor granted
twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.core.value import value
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal import fields
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_part,
    read_json,
    store_errors,
)
from holdfast.journal.atomic import (
    remove as remove_file,
)
from holdfast.journal.fields import printable
from holdfast.journal.holder import RunHolder
from holdfast.journal.lease import LeaseState, view
from holdfast.journal.names import check_name, check_tag, new_id, shown
from holdfast.journal.store import RunFolder

_FILE = re.compile(r"(\d{1,9})-([a-z]{1,16})\.json")
REQUEST_MAX_BYTES = 1 << 16
MAX_LIMIT_S = 3600.0  # for a profile
MAX_WORDS = 2000


@value
class Request:
    """One request. `args` holds every argument of its verb, checked.

    | verb | args |
    |---|---|
    | `stop` | `now`: without saving; `grace_s`: seconds until the deadline, None: the run's own |
    | `save` | `tag`: a name that pins the set, or None |
    | `profile` | `name` of the profile, `rank`, `steps`, `limit_s` |
    | `rollback` | `to`: a step or a tag; `skip_batches`; `id` of this request; `words`: why |
    """

    number: int
    verb: str
    args: Mapping[str, Any]
    epoch: int
    sender: str  # who asks, in words
    sent_unix_ns: int


class TakenRequests(NamedTuple):
    """What lay in the inbox: requests to act on, in order, and a sentence for each of the rest."""

    requests: tuple[Request, ...]
    ignored: tuple[str, ...]


def request(folder: RunFolder, verb: str, **args: Any) -> Request:
    """Leave a request for the run's present supervisor; returns what was written.

    Raises ConfigurationError for a verb or an argument that cannot be, or when nobody supervises
    the run (there is nobody to ask, and a later start must not obey), StoreUnavailable. What lasts
    (`rollback`) may be asked at any time.
    """
    if verb in LASTING:
        args = {"id": new_id(), **args}
    checked = _checked(verb, args)
    lease = view(folder)
    if verb not in LASTING and lease.state not in (LeaseState.HELD, LeaseState.UNKNOWN):
        raise ConfigurationError(f"run {folder.name!r} is not running: there is nothing to {verb}")
    me = RunHolder.current()
    make_part(folder.control_dir)
    number = max((n for n, _ in _pending(folder)), default=0)
    while True:
        number += 1
        asked = Request(number, verb, checked, lease.epoch, f"{me.user}@{me.host}", time.time_ns())
        path = _path(folder, asked)
        try:
            create_exclusive(path, encode_json(_to_json(asked)))
        except FileExistsError:
            continue
        return asked


@dataclass(slots=True)
class ControlInbox:
    """The supervisor's end: requests to the holder of lease `epoch`.

    `since`: also those to the holders from that lease on, whose attempt it goes on with; None: not.
    """

    folder: RunFolder
    epoch: int
    since: int | None = None
    _stuck: set[Path] = field(default_factory=set, repr=False)
    _taken: set[str] = field(default_factory=set, repr=False)

    def take(self) -> TakenRequests:
        """Remove and return what was asked since the last call, oldest first.

        Rubbish, and requests to an earlier holder, are removed too and named in `ignored`; one to
        a later holder is left for that one. A file that cannot be removed is taken once and then
        passed over, and so is a request that lasts. Raises StoreUnavailable when the folder cannot
        be read.
        """
        requests: list[Request] = []
        ignored: list[str] = []
        pending = _pending(self.folder)
        self._stuck &= {path for _, path in pending}  # the name of one that went is free again
        for number, path in pending:
            if path in self._stuck:
                continue
            try:
                asked = _read(path, number)
            except FileNotFoundError:
                continue
            except (StoreUnavailable, ConfigurationError) as error:
                if _lasts(path) and isinstance(error.__cause__, OSError):
                    continue  # it is there, and can be read another time
                ignored.append(f"request {path.name} was ignored: {error}")
            else:
                if asked.verb in LASTING:
                    if asked.args["id"] not in self._taken:
                        self._taken.add(asked.args["id"])
                        requests.append(asked)
                    continue
                if asked.epoch > self.epoch:
                    continue
                if asked.epoch >= (self.epoch if self.since is None else self.since):
                    requests.append(asked)
                else:
                    ignored.append(
                        f"request {path.name} of {shown(asked.sender)} was ignored: "
                        f"it was meant for lease {asked.epoch}, this is lease {self.epoch}"
                    )
            self._remove(path)
        return TakenRequests(tuple(requests), tuple(ignored))

    def _remove(self, path: Path) -> None:
        try:
            remove_file(path)
        except StoreUnavailable:
            self._stuck.add(path)


def is_stop_asked(folder: RunFolder, epoch: int) -> bool:
    """Whether somebody has asked that holder to stop, and nobody has taken that request."""
    asked = ControlInbox(folder, epoch).take().requests
    return any(one.verb == "stop" for one in asked)


def lasting(folder: RunFolder) -> tuple[Request, ...]:
    """The requests that last and lie there, in order; rubbish is passed over.

    Raises StoreUnavailable when one may be there and cannot be read: it must not be forgotten.
    """
    found = []
    for number, path in _pending(folder):
        if not _lasts(path):
            continue
        try:
            found.append(_read(path, number))
        except (FileNotFoundError, ConfigurationError):
            continue
        except StoreUnavailable as error:
            if isinstance(error.__cause__, OSError):
                raise
    return tuple(asked for asked in found if asked.verb in LASTING)


def _lasts(path: Path) -> bool:
    return path.stem.partition("-")[2] in LASTING


def remove(folder: RunFolder, asked: Request) -> None:
    """Take a request away. Raises StoreUnavailable."""
    remove_file(_path(folder, asked))


def _path(folder: RunFolder, asked: Request) -> Path:
    return folder.control_dir / f"{asked.number:06d}-{asked.verb}.json"


def _pending(folder: RunFolder) -> list[tuple[int, Path]]:
    """Numbers and paths of the requests that lie there, in order."""
    found = []
    with store_errors("read the requests", folder.control_dir):
        try:
            names = os.listdir(folder.control_dir)  # noqa: PTH208 - asked several times a second
        except FileNotFoundError:
            return []
    for name in names:
        if match := _FILE.fullmatch(name):
            found.append((int(match[1]), folder.control_dir / name))
    return sorted(found)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError("must be a number of seconds, 0 or more")
    return float(value)


def _limit_s(value: object) -> float:
    seconds = _seconds(value)
    if not seconds or seconds > MAX_LIMIT_S:
        raise ValueError(f"must be more than 0 seconds, and at most {MAX_LIMIT_S:g}")
    return seconds


def _tag(value: object) -> str | None:
    return None if value is None else check_tag(str(value))


def _target(value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a step or a tag")
    if isinstance(value, int):
        return _count(value)
    return _count(int(value)) if value.isdecimal() else check_tag(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise ValueError("must be a whole number, 0 or more")
    return value


def _words(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_WORDS:
        raise ValueError(f"must be a text of {MAX_WORDS} characters at most")
    return printable(value)


def _name(value: object) -> str:
    return check_name(str(value))


_VERBS: Mapping[str, Mapping[str, tuple[object, Callable[[object], Any]]]] = {
    "stop": {"now": (False, _flag), "grace_s": (None, _seconds)},
    "save": {"tag": (None, _tag)},
    "profile": {
        "name": (None, _name),
        "rank": (0, _count),
        "steps": (5, _count),
        "limit_s": (60.0, _limit_s),
    },
    "rollback": {
        "to": (None, _target),
        "skip_batches": (0, _count),
        "id": (None, _name),
        "words": ("", _words),
    },
}
LASTING = ("rollback",)


def _checked(verb: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """All arguments of `verb`, defaults filled in; raises ConfigurationError."""
    known = _VERBS.get(verb)
    if known is None:
        known_words = f"{', '.join(list(_VERBS)[:-1])} or {list(_VERBS)[-1]}"
        raise ConfigurationError(f"{shown(verb)} is not a request; ask {known_words}")
    if strangers := sorted(set(args) - set(known)):
        raise ConfigurationError(f"{verb} has no argument {shown(strangers[0])}")
    values = {}
    for name, (default, parse) in known.items():
        try:
            values[name] = parse(args.get(name, default))
        except ValueError as error:
            given = shown(args.get(name, default))
            raise ConfigurationError(f"{verb}: {name} {error}, not {given}") from error
    return MappingProxyType(values)


def _to_json(asked: Request) -> dict[str, Any]:
    return {
        "verb": asked.verb,
        "args": dict(asked.args),
        "epoch": asked.epoch,
        "sender": asked.sender,
        "sent_unix_ns": asked.sent_unix_ns,
    }


def _read(path: Path, number: int) -> Request:
    raw = read_json(path, REQUEST_MAX_BYTES)
    try:
        verb, args = fields.text(raw, "verb"), fields.field(raw, "args")
        epoch, sender = fields.whole(raw, "epoch"), fields.text(raw, "sender")
        sent_unix_ns = fields.whole(raw, "sent_unix_ns")
        if not isinstance(args, dict):
            raise ValueError("its args are no object")
    except ValueError as error:
        raise StoreUnavailable(f"it is damaged ({error})") from error
    return Request(number, verb, _checked(verb, args), epoch, sender, sent_unix_ns)
