"""Hosts that are to have no part of a run: a file for each, by whoever asks for that.

    quarantine/000003.json    host 3: why, who has asked, and when

It holds until the file is removed, whatever controller the run has, and between its starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import (
    encode_json,
    make_part,
    read_json,
    remove,
    store_errors,
    write_atomic,
)
from holdfast.journal.fields import text, whole_or_none
from holdfast.journal.holder import RunHolder
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

FOLDER = "quarantine"
MOST_CHARS = 500
MOST = 10_000  # files that are looked at
_FILE = re.compile(r"(\d{6})\.json")


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a host is to have no part of the run, and by whom."""

    reason: str
    sender: str
    sent_unix_ns: int | None
    is_automatic: bool = False  # the run has decided it by itself


def put_in_quarantine(
    folder: RunFolder, index: int, reason: str, *, is_automatic: bool = False
) -> None:
    """Host `index` is to have no part of the run; raises StoreUnavailable.

    What somebody wants stays as it is when the run comes to want it, too.
    """
    if is_automatic and index in quarantined(folder):
        return
    place = folder.path / FOLDER
    make_part(place)
    sender = str(RunHolder.current())
    fields = {
        "reason": _on_one_line(reason),
        "sender": sender,
        "sent_unix_ns": time.time_ns(),
        "automatic": is_automatic,
    }
    write_atomic(place / _name(index), encode_json(fields))


def release(folder: RunFolder, index: int, *, is_automatic: bool = False) -> bool:
    """It may have a part again; whether it might not. Raises StoreUnavailable.

    `is_automatic`: the run lets it back, and only if nobody else has put it there.
    """
    known = quarantined(folder).get(index)
    was_there = known is not None and (known.is_automatic or not is_automatic)
    if was_there:
        remove(folder.path / FOLDER / _name(index))
    return was_there


def quarantined(folder: RunFolder) -> dict[int, Quarantine]:
    """By the hosts' numbers. What cannot be read holds, too. Raises StoreUnavailable."""
    place = folder.path / FOLDER
    refresh(place)
    with store_errors("read the hosts in quarantine", place):
        # Of a run that is not there it is not known that there are none.
        if FOLDER not in os.listdir(folder.path):  # noqa: PTH208 - names are all we need
            return {}
        names = sorted(os.listdir(place))[:MOST]  # noqa: PTH208
    found = {}
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None:
            found[int(match[1])] = _read(place / name)
    return found


def _read(path: Path) -> Quarantine:
    with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError):
        raw = read_json(path)
        known = (
            _on_one_line(text(raw, "reason")),
            text(raw, "sender"),
            whole_or_none(raw, "sent_unix_ns"),
        )
        return Quarantine(*known, is_automatic=raw.get("automatic") is True)
    return Quarantine("for a reason that cannot be read", "an unknown process", None)


def _on_one_line(words: str) -> str:
    return " ".join(words.split())[:MOST_CHARS]


def _name(index: int) -> str:
    return f"{index:06d}.json"
