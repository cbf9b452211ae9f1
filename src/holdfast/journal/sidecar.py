"""The sidecar: rare facts that need text, one JSON object a line, beside the journal.

A line is written before the record that points to it, so a record's line is always there. A reader
forgives what a crash leaves: a torn last line, a torn line in the middle (a full disk), bytes that
are not UTF-8.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.journal.fields import load_json
from holdfast.journal.layout import MAX_LINE_BYTES, SIDECAR_SUFFIX
from holdfast.journal.own_file import OwnFile
from holdfast.journal.regular import open_regular

Payload = dict[str, Any]

_BLOCK_BYTES = 1 << 20
# default=str: a path or a numpy number in a note must not cost the note.
_ENCODE = json.JSONEncoder(separators=(",", ":"), default=str).encode


def sidecar_path(journal: str | os.PathLike[str]) -> Path:
    """Where the sidecar of this journal lies."""
    return Path(journal).with_suffix(SIDECAR_SUFFIX)


class SidecarWriter:
    """Appends lines; never raises for want of space. Any thread, but no signal handler."""

    __slots__ = ("_file", "_lock", "_size_bytes", "_torn")

    def __init__(self, path: Path | None) -> None:
        """Create the file, mode 0600; None: a writer that writes nowhere. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file: OwnFile | None = None
        if path is not None:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = OwnFile(path, fd, flags)
        self._lock = threading.Lock()
        self._size_bytes = 0
        self._torn = False

    def write(self, payload: Payload) -> int | None:
        """Append one line; its byte offset, or None when it could not be written whole."""
        return self.write_all([payload])[0]

    def write_all(self, payloads: Iterable[Payload]) -> list[int | None]:
        """The same of several, with one system call."""
        lines = [_encode(payload) for payload in payloads]
        nowhere: list[int | None] = [None] * len(lines)
        file = self._file
        if file is None or not lines:
            return nowhere
        with self._lock:
            # Close the half line that a full disk left behind.
            data = b"".join([b"\n" if self._torn else b"", *lines])
            try:
                written = os.write(file.descriptor(), data)
            except OSError:
                return nowhere
            offset = self._size_bytes + self._torn
            self._size_bytes += written
            self._torn = written < len(data)
            offsets: list[int | None] = []
            for line in lines:
                is_whole = offset + len(line) <= self._size_bytes
                offsets.append(offset if is_whole else None)
                offset += len(line)
            return offsets

    def close(self) -> None:
        """Close the file; later writes go nowhere."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _encode(payload: Payload) -> bytes:
    line = _ENCODE(payload)
    if len(line) >= MAX_LINE_BYTES:
        line = json.dumps({"cut": len(line), "text": line[: MAX_LINE_BYTES // 8]})
    return line.encode("ascii") + b"\n"


class SidecarLine(NamedTuple):
    """One readable line: its byte offset, and the object it holds."""

    offset: int
    payload: Payload


def read_sidecar(
    path: str | os.PathLike[str],
    since_offset: int = 0,
    wanted: Callable[[bytes], bool] | None = None,
) -> tuple[list[SidecarLine], int]:
    """All whole lines from `since_offset` on, and the offset to go on from.

    Lines that are no JSON object are passed over; so is what is longer than any writer writes, and
    what is not `wanted` by its bytes: to parse it is most of what reading costs. A last line
    without its newline is left for the next call. A missing file has no lines. Raises OSError when
    the file is there but cannot be read.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return [], since_offset
    lines: list[SidecarLine] = []
    offset = since_offset
    try:
        while block := os.pread(fd, _BLOCK_BYTES, offset):
            whole = _take_lines(block, offset, lines, wanted)
            if not whole and len(block) <= MAX_LINE_BYTES:
                break  # a line that is still being written
            # A line that never ends is not ours; nor is a hole, of which there may be terabytes.
            offset = offset + whole if whole else _next_data(fd, offset + len(block))
    finally:
        os.close(fd)
    return lines, offset


def _take_lines(
    block: bytes, offset: int, lines: list[SidecarLine], wanted: Callable[[bytes], bool] | None
) -> int:
    """Append the whole lines of a block that lies at `offset`; gives how many bytes they are."""
    position = 0
    while (end := block.find(b"\n", position)) >= 0:
        line = block[position:end]
        if wanted is None or wanted(line):
            payload = _decode(line)
            if payload is not None:
                lines.append(SidecarLine(offset + position, payload))
        position = end + 1
    return position


def _next_data(fd: int, offset: int) -> int:
    """Where, from `offset` on, the file has bytes that were ever written; its end if nowhere."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as problem:
        if problem.errno == errno.ENXIO:
            return max(offset, os.fstat(fd).st_size)
        return offset  # a filesystem that does not tell


def _decode(line: bytes) -> Payload | None:
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        payload = load_json(line.decode())
    except ValueError:  # UnicodeDecodeError is one
        return None
    return payload if isinstance(payload, dict) else None
