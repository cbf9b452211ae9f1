"""The rows of a table: CSV or TSV with a line of names, or JSON, an object a line or one list."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.convert.lines import lines
from holdfast.convert.notes import LogPlace, Notes

DOCUMENT_LIMIT_CHARS = 16 << 20
Lines = Iterator[tuple[int, str]]
Rows = Iterator[tuple[int, Mapping[str, Any]]]


def rows(path: Path, notes: Notes) -> Rows:
    """Each row, by the names of its columns, with the number of its line."""
    found: Lines = (
        (number, text) for number, text in lines(path, notes) if text.strip() and text[0] != "#"
    )
    first = next(found, None)
    if first is None:
        return
    number, text = first
    if not text.lstrip().startswith(("{", "[")):
        yield from _separated(text, found, str(path), notes)
        return
    held = [first]
    if _json(text) is None:  # it may begin one value that goes on over many lines
        held += _held(found)
        value = _json("\n".join(line for _, line in held))
        if value is not None:
            held = []
            yield from _objects(number, value)
    for number, text in chain(held, found):
        value = _json(text)
        if value is None:
            notes.odd(LogPlace(str(path), number), "not JSON, or it breaks off: left out")
        yield from _objects(number, value)


def _held(found: Lines) -> Lines:
    """As many lines as one value of JSON may have."""
    chars = 0
    for number, text in found:
        yield number, text
        chars += len(text)
        if chars > DOCUMENT_LIMIT_CHARS:
            return


def _separated(text: str, found: Lines, file: str, notes: Notes) -> Rows:
    """The rows under a line of names."""
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    delimiter = max(",\t;", key=text.count)
    names = [n.strip() for n in _split(text, delimiter)]
    for number, text in found:
        fields = _split(text, delimiter)
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
        else:
            notes.odd(
                LogPlace(file, number), f"not the {len(names)} fields of the first line: left out"
            )


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader((text,), delimiter=delimiter), [])
    except csv.Error:
        return []


def _objects(number: int, value: object) -> Rows:
    """The objects of a value of JSON: itself, or those of a list."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield number, one


def _json(text: str) -> object:
    """What it says; None for what is no JSON."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found
