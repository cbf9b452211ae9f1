"""Paths in a state tree: how a leaf is named in files, errors and `only=` patterns.

A path is the keys from the top to the leaf, joined by "/": `state/params/layers/0/w`. A list index
and an int key are written as the number. A str key is written as itself, except that the bytes of
characters that would be ambiguous are written `%XX` (UTF-8): "/", "%", brackets, "*", "?", control
characters, lone surrogates, and the first character of a key that looks like a number, so that
`{0: a, "0": b}` has the two paths `0` and `%30`. The empty key is a single `%`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SPECIAL = re.compile(r"[\x00-\x1f\x7f-\x9f/%\[\]*?\ud800-\udfff]")
_NUMBER = re.compile(r"-?[0-9]+")


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=65536)
def _str_piece(key: str) -> str:
    if not key:
        return "%"
    piece = _SPECIAL.sub(lambda match: _percent(match.group()), key)
    if _NUMBER.fullmatch(piece):
        return _percent(piece[0]) + piece[1:]
    return piece


def piece(key: str | int) -> str:
    """One key as it stands in a path."""
    return _str_piece(key) if isinstance(key, str) else str(key)


def is_piece(text: str) -> bool:
    """Whether `piece` can have given this."""
    return bool(text) and not _SPECIAL.search(text.replace("%", ""))


def join(parent: str, child: str) -> str:
    """The path of the child with this piece."""
    return f"{parent}/{child}" if parent else child


def readable(path: str) -> str:
    """The path with its escapes undone: what a person would type in a pattern."""
    raw = re.sub(
        rb"%([0-9A-F]{2})", lambda m: bytes([int(m.group(1), 16)]), path.encode("utf-8", "replace")
    )
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    out = ""
    for token in re.findall(r"/\*\*$|\*\*/|\*\*|\*|\?|[^*?]", pattern):
        out += {
            "/**": "(?:/.*)?",  # `a/**` is a and everything under it
            "**/": "(?:.*/)?",
            "**": ".*",
            "*": "[^/]*",
            "?": "[^/]",
        }.get(token, re.escape(token))
    return re.compile(out, re.DOTALL)


def matches(pattern: str, path: str) -> bool:
    """Whether the glob fits the whole path: `*` and `?` stay inside a piece, `**` crosses "/"."""
    compiled = _compiled(pattern)
    return bool(compiled.fullmatch(path) or ("%" in path and compiled.fullmatch(readable(path))))
