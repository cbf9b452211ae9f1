"""A log as lines of text: any size, in bounded memory, with whatever stands in between."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import IO, cast

from holdfast.convert.notes import Notes
from holdfast.convert.seen import Place
from holdfast.errors import ConfigurationError

BLOCK_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def lines(path: Path, notes: Notes) -> Generator[tuple[int, str], None, None]:
    """Each line with its number, without line end and terminal escapes; gzip is unpacked.

    A carriage return begins the line anew, as progress bars do: each such state is a line of its
    own, with the same number. Raises ConfigurationError for what cannot be opened or read.
    """
    number, rest, dropping = 1, b"", False
    for block in blocks(path):
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            if dropping:
                dropping = False
            else:
                for text in _states(piece):
                    yield number, text
            number += 1
        if len(rest) > MAX_LINE_BYTES:
            *states, rest = rest.split(b"\r")
            for state in states:
                for text in _states(state):
                    yield number, text
            if len(rest) > MAX_LINE_BYTES or dropping:
                if not dropping:
                    notes.odd(
                        Place(str(path), number),
                        f"the line is longer than {MAX_LINE_BYTES:,} bytes: its rest is left out",
                    )
                rest, dropping = b"", True
    if rest and not dropping:
        for text in _states(rest):
            yield number, text


def _states(piece: bytes) -> Generator[str, None, None]:
    for state in piece.split(b"\r") if b"\r" in piece else (piece,):
        if state:
            text = state.decode("utf-8", "replace")
            yield ESCAPES.sub("", text) if "\x1b" in text else text


def blocks(path: Path) -> Generator[bytes, None, None]:
    """The bytes of a file, unpacked if it is gzip, or of a pipe; raises ConfigurationError."""
    try:
        with path.open("rb") as file, _unpacked(file) as unpacked:
            while block := unpacked.read(BLOCK_BYTES):
                yield block
    except FileNotFoundError:
        raise ConfigurationError(f"there is no log {path}; check the path") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"the packed log {path} is damaged ({error}); unpack what is left of it with zcat"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"the log {path} cannot be read ({error.strerror or error}); give a file that you may "
            "read"
        ) from None


def _unpacked(file: io.BufferedReader) -> IO[bytes]:
    """The file, unpacked if it begins as gzip does."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.peek(2)[:2] == GZIP:
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    return file


def head(path: Path, size: int = BLOCK_BYTES) -> bytes:
    """The first bytes of a file, at most so many."""
    with closing(blocks(path)) as found:
        return next(found, b"")[:size]
