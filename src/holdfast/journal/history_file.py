"""History files: a run's events as JSON lines on a disk or a pipe (docs/reference/history.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.core.history import History, parse
from holdfast.errors import ConfigurationError, HistoryError
from holdfast.journal.atomic import unavailable

BLOCK_BYTES = 1 << 20
STANDARD_INPUT = "-"


def read_history(path: str) -> History:
    """Read and check a whole history; `-` is standard input.

    Raises HistoryError naming the line that cannot be, ConfigurationError if there is no such file,
    StoreUnavailable if it cannot be read.
    """
    if path == STANDARD_INPUT:
        return parse(_blocks(sys.stdin.buffer))
    try:
        with Path(path).open("rb") as file:
            return parse(_blocks(file))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no history file {path}; check the path") from None
    except OSError as error:
        raise unavailable("read the history", Path(path), error) from error


def _blocks(file: BinaryIO) -> Iterator[str]:
    """The text in blocks of whole lines, so that a million of them are read at once and cheaply."""
    lines_before = 0
    rest = b""
    while data := file.read(BLOCK_BYTES):
        whole, end, rest_of_line = (rest + data).rpartition(b"\n")
        rest = rest_of_line
        if end:
            yield _text(whole + end, lines_before)
            lines_before += whole.count(b"\n") + 1
    if rest:
        yield _text(rest, lines_before)


def _text(block: bytes, lines_before: int) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        line = lines_before + block.count(b"\n", 0, error.start) + 1
        raise HistoryError(line, "these bytes are not UTF-8 text; write it as UTF-8") from None
