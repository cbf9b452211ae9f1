"""Small metadata files: sealed with a checksum, replaced as a whole, durable on return.

A sealed file is JSON whose first line holds the xxh3 of all the bytes that follow it:

    {"xxh3": "0123456789abcdef", "sealed":
    { ... }}
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import write_atomic
from holdfast.journal.regular import open_regular

MAX_SEALED_BYTES = 1 << 30
_LAST_BYTES = b"}\n"
_FIRST_LINE = re.compile(rb'\{"xxh3": "([0-9a-f]{16})", "sealed":\n')
_FIRST_LINE_BYTES = 64


def compact(value: Any) -> str:
    """JSON in ASCII without spaces, and without NaN, which JSON has not."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def parse(data: bytes) -> Any:
    """Read JSON; ValueError on anything else, also on NaN, and on nesting that no one wrote."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def checksum(data: bytes | memoryview) -> str:
    """xxh3, 64 bits, as 16 hexadecimal digits."""
    import xxhash  # not above: what only names sets must stay light to import

    return xxhash.xxh3_64_hexdigest(data)


def write_sealed(path: Path, value: Any) -> None:
    """Create or replace a sealed file; it and its name are on disk when this returns.

    Raises:
        StoreUnavailable: the disk is full, read-only or failing; nothing is left behind.

    """
    write_atomic(path, seal(value))


def seal(value: Any) -> bytes:
    """The bytes of a sealed file."""
    rest = f"{compact(value)}}}\n".encode("ascii")
    return b'{"xxh3": "%s", "sealed":\n' % checksum(rest).encode() + rest


def read_sealed(path: Path) -> dict[str, Any]:
    """Read and verify a sealed file.

    Raises:
        CorruptCheckpoint: missing, cut short, or not what was written.
        StoreUnavailable: it is there, and may not be read.

    """
    try:
        data = _read(path)
    except FileNotFoundError as error:
        raise CorruptCheckpoint(f"{path} is missing") from error
    except PermissionError as error:
        raise StoreUnavailable(f"{path} may not be read; check its owner and mode") from error
    except OSError as error:
        raise CorruptCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
    return unseal(data, str(path))


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """What a sealed file's bytes say; CorruptCheckpoint, naming `where` they are from."""
    found = _FIRST_LINE.match(data)
    if found is None:
        raise CorruptCheckpoint(f"{where} is not a sealed file of this version")
    rest = data[found.end() :]
    if checksum(rest) != found.group(1).decode():
        raise CorruptCheckpoint(f"{where} is not what was written: its checksum differs")
    try:
        value = parse(rest.removesuffix(_LAST_BYTES))
    except ValueError as error:
        raise CorruptCheckpoint(f"{where} holds no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptCheckpoint(f"{where} holds no object")
    return value


def _read(path: Path) -> bytes:
    """The file's bytes; none when its two ends say that it is none of ours. Raises OSError.

    The ends are looked at first: a hole of a gigabyte is not worth a gigabyte of memory.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        first = os.pread(descriptor, _FIRST_LINE_BYTES, 0)
        last = os.pread(descriptor, len(_LAST_BYTES), max(0, size - len(_LAST_BYTES)))
        if size > MAX_SEALED_BYTES or last != _LAST_BYTES or not _FIRST_LINE.match(first):
            return b""
        data = b""
        while len(data) < size and (block := os.pread(descriptor, size - len(data), len(data))):
            data = data + block if data else block
        return data
    finally:
        os.close(descriptor)
