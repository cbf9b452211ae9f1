"""The lines of a trace on a disk: as fields, with what is odd or wrong about them."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from holdfast.core.history.line import shorten
from holdfast.errors import ConfigurationError, TraceError

NS_PER_S = 1_000_000_000
CLOCK_NS = 10**9 * NS_PER_S  # from here on (in 2001) a time is one of the clock, not of a run
LAST_NS = 10**10 * NS_PER_S  # 317 years
MAX_LINE_BYTES = 1 << 16
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A line's number, from 1, and its fields, without the space around them."""

    line: int
    fields: list[str]


@dataclass(slots=True)
class Lines:
    """Those that say something: not the blank ones, nor those that begin with `#`."""

    path: str | os.PathLike[str]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def wrong(self, line: int, message: str) -> TraceError:
        """The error for a line."""
        return TraceError(self.path, line, message)

    def note(self, line: int, message: str) -> None:
        """A line was odd, but there is one way only to take it."""
        self.notes.append(f"line {line} {message}")

    def fields(self, row: Row, *names: str) -> list[str]:
        """The fields of a line, one for each name."""
        if len(row.fields) != len(names):
            text, wanted = shorten(",".join(row.fields)), shorten(",".join(names))
            raise self.wrong(
                row.line,
                f"{text} has {len(row.fields)} of {len(names)} fields; write {wanted}",
            )
        return row.fields

    def number_ns(self, line: int, text: str, unit: str, unit_ns: int) -> int | None:
        """A time that is written as a number; None: it is not."""
        try:
            value = Decimal(text)
        except InvalidOperation:
            return None
        if not value.is_finite() or not 0 <= value <= LAST_NS // unit_ns:
            raise self.wrong(
                line,
                f"{shorten(text)} is not a time; write {unit}, from 0 to {LAST_NS // unit_ns}",
            )
        return int((value * unit_ns).to_integral_value())

    def date_ns(self, line: int, text: str) -> int:
        """A time that is written as ISO 8601 has it, since 1970; without a zone it is UTC."""
        try:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            since_ns = (at - EPOCH) // timedelta(microseconds=1) * 1000
        except ValueError:
            what = shorten(text.strip()) or "an empty field"
            raise self.wrong(
                line, f"{what} is not a time; write it like 2021-12-11 11:11:30"
            ) from None
        if not 0 <= since_ns <= LAST_NS:
            raise self.wrong(line, f"{shorten(text)} is before 1970 or after 2286; correct it")
        return since_ns

    def name(self, line: int, text: str) -> str:
        """A node's name."""
        if not text:
            raise self.wrong(line, "it names no node; write which one it was")
        return text


def read_lines(path: str | os.PathLike[str]) -> Lines:
    """Raise ConfigurationError when there is no such file, TraceError when it is not text."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no trace {path}; check the path") from None
    except OSError as error:
        raise ConfigurationError(
            f"the trace {path} cannot be read ({error.strerror}); give the path of a file that you "
            "may read"
        ) from None
    lines = Lines(path)
    for line, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        text = _text(lines, line, raw)
        if text and not text.startswith("#"):
            lines.rows.append(Row(line, _split(lines, line, text)))
    return lines


def _text(lines: Lines, line: int, raw: bytes) -> str:
    another = "a trace has short lines of text, so this is another file or a damaged one"
    if len(raw) > MAX_LINE_BYTES:
        raise lines.wrong(line, f"it is longer than {MAX_LINE_BYTES} bytes; {another}")
    try:
        return raw.decode().strip()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise lines.wrong(line, f"{byte}; {another}") from None


def _split(lines: Lines, line: int, text: str) -> list[str]:
    try:
        fields = next(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise lines.wrong(
            line, f"{shorten(text)} cannot be split at its commas ({error}); correct it"
        ) from None
    return [field.strip() for field in fields]
