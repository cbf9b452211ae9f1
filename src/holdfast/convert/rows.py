"""The rows of a table: CSV or TSV with a line of names, or JSON, an object a line or one list."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.convert.lines import lines
from holdfast.convert.notes import Notes
from holdfast.convert.seen import LogPlace

DOCUMENT_LIMIT_CHARS = 16 << 20
NO_JSON = "not JSON, or it breaks off: left out"
Lines = Iterator[tuple[int, str]]
Rows = Iterator[tuple[int, Mapping[str, Any]]]


def rows(path: Path, notes: Notes) -> Rows:
    """Each row, by the names of its columns, with the number of its line."""
    return _rows(lines(path, notes), str(path), notes)


def _rows(found: Lines, file: str, notes: Notes, *, may_be_one: bool = True) -> Rows:
    """`may_be_one`: the first line may begin one value of JSON that goes on over many."""
    for number, text in found:
        if not text.strip() or text.startswith("#"):
            continue
        if not text.lstrip().startswith(("{", "[")):
            yield from _separated(number, text, found, file, notes)
            return
        value = _json(text)
        if value is None and may_be_one:
            held = [(number, text), *_held(found)]
            value = _json("\n".join(line for _, line in held))
            if value is None:
                yield from _rows(chain(held, found), file, notes, may_be_one=False)
                return
        if value is not None:
            yield from _objects(number, value)
            for later, line in found:
                yield from _objects(later, _json_or_odd(LogPlace(file, later), line, notes))
            return
        notes.odd(LogPlace(file, number), NO_JSON)


def _held(found: Lines) -> Lines:
    """As many lines as one value of JSON may have."""
    chars = 0
    for number, text in found:
        yield number, text
        chars += len(text)
        if chars > DOCUMENT_LIMIT_CHARS:
            return


def _separated(number: int, text: str, found: Lines, file: str, notes: Notes) -> Rows:
    """The rows under a line of names."""
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    delimiter = max(",\t;", key=text.count)
    names = [n.strip() for n in _split(text, delimiter) or ()]
    for number, text in found:
        if not text.strip():
            continue
        fields = _split(text, delimiter)
        if fields is None or len(fields) != len(names):
            notes.odd(
                LogPlace(file, number), f"not the {len(names)} fields of the first line: left out"
            )
        else:
            yield number, dict(zip(names, fields, strict=True))


def _split(text: str, delimiter: str) -> list[str] | None:
    try:
        return next(csv.reader((text,), delimiter=delimiter))
    except (csv.Error, StopIteration):
        return None


def _json(text: str) -> object:
    """What it says; None for what is no JSON."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def _json_or_odd(place: LogPlace, text: str, notes: Notes) -> object:
    value = _json(text) if text.strip() else ()
    if value is None:
        notes.odd(place, NO_JSON)
    return value


def _objects(number: int, value: object) -> Rows:
    """The objects of a value of JSON: itself, or those of a list."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield number, one
