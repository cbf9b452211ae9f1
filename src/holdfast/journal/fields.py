"""What a small JSON file says, field by field: checked, because anything may stand there.

`json` reads more than we ever write: Infinity, numbers of any size, halves of surrogate pairs that
no terminal takes, nesting as deep as the stack. Each function raises ValueError on what cannot be,
and nothing else; whoever knows the file's name turns that into an error that names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_WHOLE = 2**63 - 1
MAX_ATTEMPT = 999_999_999  # nine digits: as in the names of sets and requests
MAX_RANKS = 1_000_000
_SHOWN_CHARS = 50


def load_json(data: bytes | str) -> Any:
    """The value that JSON text stands for; ValueError for other text, also for too deep nesting."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def field(raw: Mapping[str, Any], key: str) -> Any:
    """A field that must be there."""
    try:
        return raw[key]
    except KeyError:
        raise ValueError(f"it has no {key}") from None


def whole(raw: Mapping[str, Any], key: str, low: int = 0, high: int = MAX_WHOLE) -> int:
    """A whole number within the bounds, as an int; true and 1.0 are none."""
    value = field(raw, key)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"its {key} is {_shown(value)}")
    return value


def whole_or_none(
    raw: Mapping[str, Any], key: str, low: int = 0, high: int = MAX_WHOLE
) -> int | None:
    """The same, where null may stand."""
    return None if field(raw, key) is None else whole(raw, key, low, high)


def text(raw: Mapping[str, Any], key: str) -> str:
    """A string, fit for printing and for UTF-8."""
    value = field(raw, key)
    if not isinstance(value, str):
        raise ValueError(f"its {key} is {_shown(value)}")
    return printable(value)


def target(raw: Mapping[str, Any], key: str) -> int | str | None:
    """Where a rollback goes: a step (below 0 too: a script may have reckoned so), a tag or null."""
    value = field(raw, key)
    if value is None or isinstance(value, str):
        return None if value is None else printable(value)
    return whole(raw, key, low=-MAX_WHOLE)


def texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings, fit for printing."""
    value = field(raw, key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"its {key} is {_shown(value)}")
    return tuple(map(printable, value))


def printable(value: str) -> str:
    """The same text; halves of surrogate pairs, which cannot be encoded, become question marks."""
    return value.encode("utf-8", "replace").decode()


def _shown(value: object) -> str:
    shown = ascii(value) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"
