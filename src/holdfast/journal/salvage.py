"""Two copies of one growing file after a power cut: what either has is kept.

A live file of a boot that is over may lack any sector that the kernel had not written yet, its
stored copy any that was not synced; what is missing reads as zeros. Copying the one over the other,
as is right while the host lives, would lose what only the other has.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast.errors import JournalError
from holdfast.journal.atomic import store_errors
from holdfast.journal.layout import CHUNK_RECORDS, HEADER_BYTES, RECORD_BYTES
from holdfast.journal.opened import OpenJournal
from holdfast.journal.regular import open_regular
from holdfast.journal.sidecar import sidecar_path

SECTOR_BYTES = 512
_BLOCK_BYTES = 1 << 20
_KIND_OFFSET = 8  # of the byte in a record that is 0 until the record is there


def salvage_journal(live: Path, stored: Path) -> bool:
    """Put into `stored`, and its sidecar, what only the live journal has; durable on return.

    False when either is no journal, or they are not of one process: there is nothing to merge.
    Raises StoreUnavailable when the store cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            old = stack.enter_context(contextlib.closing(OpenJournal(live)))
            copy = stack.enter_context(contextlib.closing(OpenJournal(stored)))
        except JournalError:
            return False
        if old.identity != copy.identity:
            return False
        with store_errors("complete the journal", stored):
            salvage_text(sidecar_path(live), sidecar_path(stored))
            target = open_regular(stored, os.O_RDWR)
            stack.callback(os.close, target)
            _merge_records(old, copy, target)
            if old.count() > copy.count():
                os.pwrite(target, old.header_bytes(), 0)
            os.fdatasync(target)
    return True


def salvage_text(live: Path, stored: Path) -> None:
    """Put into `stored` what only the live text file has; durable on return. Raises OSError."""
    with contextlib.ExitStack() as stack:
        try:
            source = open_regular(live)
        except FileNotFoundError:
            return
        stack.callback(os.close, source)
        target = open_regular(stored, os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, target)
        for start in range(0, os.fstat(source).st_size, _BLOCK_BYTES):
            theirs = os.pread(target, _BLOCK_BYTES, start)
            ours = os.pread(source, _BLOCK_BYTES, start)
            merged = b"".join(
                max(theirs[at : at + SECTOR_BYTES], ours[at : at + SECTOR_BYTES], key=_text_bytes)
                for at in range(0, max(len(theirs), len(ours)), SECTOR_BYTES)
            )
            if merged != theirs:
                os.pwrite(target, merged, start)
        os.fdatasync(target)


def _text_bytes(sector: bytes) -> int:
    return len(sector.rstrip(b"\0"))  # there are none in text


def _merge_records(old: OpenJournal, copy: OpenJournal, target: int) -> None:
    count = max(old.count(), copy.count())
    for first in range(0, count, CHUNK_RECORDS):
        start = HEADER_BYTES + first * RECORD_BYTES
        length = min(CHUNK_RECORDS, count - first) * RECORD_BYTES
        theirs = os.pread(target, length, start).ljust(length, b"\0")
        ours = os.pread(old.fd, length, start).ljust(length, b"\0")
        if theirs != ours:
            os.pwrite(target, b"".join(map(_record, _split(theirs), _split(ours))), start)


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]


def _record(theirs: bytes, ours: bytes) -> bytes:
    return theirs if theirs[_KIND_OFFSET] else ours
