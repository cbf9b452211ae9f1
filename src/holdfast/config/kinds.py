"""What values a setting takes: in words, and a parser for each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

AUTO, ON, OFF, HOT = "auto", "on", "off", "hot"
SAY, REPLACE = "say", "replace"
LEAVE, STAY, RELEASE = "leave", "stay", "release"
ENVIRONMENT, INSTANCE = "environment", "instance"
MOST_BUFFERS = 3
CACHE_BYTES = 2 << 30


class ValueKind(NamedTuple):
    """What values a setting takes: in words, and a parser that raises ValueError for others."""

    words: str
    parse: Callable[[object], Any]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def count(least: int) -> ValueKind:
    """Whole numbers from `least` on."""

    def parse(value: object) -> int:
        number = _whole(value)
        if number < least:
            raise ValueError
        return number

    return ValueKind(f"a whole number, {least} or more", parse)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        raise ValueError from None


def _seconds(value: object) -> float:
    number = _number(value)
    if not 0 <= number < 1e9:
        raise ValueError
    return number


def _period(value: object) -> float:
    number = _seconds(value)
    if not number:
        raise ValueError
    return number


def _flops(value: object) -> float:
    number = _number(value)
    if not 1 <= number <= 1e26:
        raise ValueError
    return number


def choice(*words: str) -> ValueKind:
    """One of some words."""

    def parse(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return ValueKind(" or ".join(f"`{word}`" for word in words), parse)


def _hang(value: object) -> str | float:
    if isinstance(value, str):
        if value in (AUTO, OFF):
            return value
        word, colon, least = value.partition(":")
        if colon and word == AUTO:
            return f"{AUTO}:{_period(least):g}"
    return _period(value)


def _buffers(value: object) -> str:
    """How many snapshots are held in memory, as text."""
    if isinstance(value, str) and value in (AUTO, OFF):
        return value
    number = _whole(value)
    if not 1 <= number <= MOST_BUFFERS:
        raise ValueError
    return str(number)


def _cache(value: object) -> str | int:
    if value in (AUTO, OFF):
        return str(value)
    size_bytes = _whole(value)
    if size_bytes < 1:
        raise ValueError
    return size_bytes


BUFFERS = ValueKind("`auto`, `off`, or how many snapshots, 1 to 3", _buffers)
CACHE = ValueKind("`auto` (2 GiB), `off`, or a number of bytes, 1 or more", _cache)
HANG = ValueKind("`auto`, `auto:SECONDS` (the least), `off`, or seconds, more than 0", _hang)
TEXT = ValueKind("text", _text)
SOURCES = ValueKind("`auto`, `off`, or names of sources with commas between them", _text)
EXPORTERS = ValueKind(
    "`prometheus[:PORT]`, `tensorboard:DIR`, `gcp:PROJECT/ZONE`, with commas between them", _text
)
FOLDER = ValueKind("a folder", _text)
FILE = ValueKind("a file", _text)
PLACE = ValueKind("a folder or a URL", _text)
SECONDS = ValueKind("seconds", _seconds)
PERIOD = ValueKind("seconds, more than 0", _period)
FLOPS = ValueKind("FLOPs, from 1 to 1e26 (`6.1e12`)", _flops)
