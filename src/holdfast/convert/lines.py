"""A log as lines of text: any size, in bounded memory, with whatever stands in between."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from holdfast.convert.notes import LogPlace, Notes
from holdfast.errors import ConfigurationError

HEAD_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def lines(
    path: Path, notes: Notes, longest_list: int = MAX_LINE_BYTES
) -> Generator[tuple[int, str], None, None]:
    """Each line with its number, without line end and terminal escapes; gzip is unpacked.

    A carriage return begins the line anew, as progress bars do: each such state is a line of its
    own, with the same number. Of a line that is too long nothing is told, but a first one that
    begins with a bracket may have `longest_list` bytes. Raises ConfigurationError for what cannot
    be opened or read.
    """
    number, rest, is_too_long = 1, b"", False
    with opened(path) as file:
        while piece := file.readline(MAX_LINE_BYTES):
            is_whole = piece.endswith(b"\n")
            *states, rest = (rest + piece.removesuffix(b"\n")).split(b"\r")
            if is_whole:
                states, rest = [*states, rest], b""
            if not is_too_long:
                yield from ((number, _text(state)) for state in states if state)
            if is_whole:
                number, is_too_long = number + 1, False
                continue
            longest = longest_list if number == 1 and rest[:1] == b"[" else MAX_LINE_BYTES
            if len(rest) > longest:
                if not is_too_long:
                    notes.odd(
                        LogPlace(str(path), number),
                        f"the line is longer than {longest:,} bytes: it is left out",
                    )
                rest, is_too_long = b"", True
    if rest and not is_too_long:
        yield number, _text(rest)


def _text(state: bytes) -> str:
    text = state.decode("utf-8", "replace")
    return ESCAPES.sub("", text) if "\x1b" in text else text


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file, unpacked if it is gzip, or a pipe; what fails within is a ConfigurationError."""
    try:
        with path.open("rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            is_packed = is_file and file.peek(2)[:2] == GZIP
            yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_packed else file
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


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file, at most so many."""
    with opened(path) as file:
        return file.read(size)
