"""Bringing a live journal home: its growth, copied to the run store about once a second.

The live file is on local disk or tmpfs and is never touched. What is in the store is at every
moment a journal of its own: sidecar first, then records, then the header with the count of what
was copied.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast.errors import JournalError, StoreUnavailable
from holdfast.journal.atomic import make_place, sync_folder
from holdfast.journal.layout import (
    CHUNK_RECORDS,
    HEADER_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    WORD_BYTES,
    Word,
)
from holdfast.journal.opened import OpenJournal
from holdfast.journal.regular import open_regular
from holdfast.journal.sidecar import sidecar_path

_BLOCK_BYTES = 1 << 20
_COUNT_OFFSET = PAGE_BYTES + WORD_BYTES * Word.COUNT


class Replicator:
    """Copies one live journal and its sidecar to their place in the run store.

    The live file may not be there yet, may belong to a process that is dead, and a copy may have
    been begun by a replicator that is gone: `sync` takes up from what is in the store.
    """

    def __init__(self, live: str | os.PathLike[str], stored: str | os.PathLike[str]) -> None:
        """Nothing is opened before `sync`."""
        self.live = Path(live)
        self.stored = Path(stored)
        self._open: OpenJournal | None = None
        self._header = b""
        self._records = 0
        self._sidecar_bytes = 0
        self._synced_header: bytes | None = None  # on the disk by now; None: not even the names
        self._synced_text_bytes = -1

    def sync(self, *, durable: bool = False) -> int:
        """Copy what is new; gives how many bytes of records and text that was.

        0 when the live file is not there yet, or not yet a journal. With `durable` the copy and
        its name are also synced to the disk. Raises StoreUnavailable when the store cannot be
        written, or holds another process's journal in this place; nothing is lost then, the next
        call tries again.
        """
        if self._open is None and not self._begin():
            return 0
        assert self._open is not None  # noqa: S101 -- for the type checker
        try:
            return self._copy(self._open, durable)
        except OSError as problem:
            raise StoreUnavailable(
                f"cannot copy the journal to {self.stored}: {problem.strerror}"
            ) from problem

    def close(self) -> None:
        """Let go of the live file."""
        live, self._open = self._open, None
        if live is not None:
            live.close()

    def _begin(self) -> bool:
        try:
            live = OpenJournal(self.live)
        except JournalError:
            return False
        try:
            with contextlib.closing(OpenJournal(self.stored)) as stored:
                if stored.identity != live.identity:
                    raise StoreUnavailable(
                        f"{self.stored} is the journal of another process "
                        f"({stored.identity.incarnation}); it is not overwritten"
                    )
                # The end of a copy that was cut off may not have reached the disk: once more.
                self._records = max(0, stored.count() - CHUNK_RECORDS)
        except JournalError:
            self._records = 0  # nothing there, or only the beginning of a header
        except BaseException:
            live.close()
            raise
        self._open = live
        return True

    def _copy(self, live: OpenJournal, durable: bool) -> int:
        # The count first: every line that a record below it points to has been written.
        count = live.count()
        flags = os.O_WRONLY | os.O_CREAT
        make_place(self.stored)
        text_bytes = self._copy_sidecar(flags, durable)
        page = bytearray(live.header_bytes())
        page[_COUNT_OFFSET : _COUNT_OFFSET + WORD_BYTES] = count.to_bytes(WORD_BYTES, "little")
        header = bytes(page)
        synced = self._synced_header, self._synced_text_bytes
        is_synced = not durable or synced == (header, self._sidecar_bytes)
        if count == self._records and header == self._header and is_synced:
            return text_bytes
        start = HEADER_BYTES + self._records * RECORD_BYTES
        end = HEADER_BYTES + count * RECORD_BYTES
        fd = open_regular(self.stored, flags)
        try:
            if os.fstat(fd).st_size < start:  # not the file it was
                start = HEADER_BYTES
            _copy_bytes(live.fd, fd, start, end)
            _write_all(fd, header, 0)
            if durable:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        if durable:
            if self._synced_header is None:
                sync_folder(self.stored.parent)  # the files' names
            self._synced_header, self._synced_text_bytes = header, self._sidecar_bytes
        self._records = count
        self._header = header
        return text_bytes + end - start

    def _copy_sidecar(self, flags: int, durable: bool) -> int:
        try:
            source = open_regular(sidecar_path(self.live))
        except FileNotFoundError:
            return 0
        start = self._sidecar_bytes
        try:
            end = os.fstat(source).st_size
            if end <= start and (not durable or self._synced_text_bytes == end):
                return 0
            fd = open_regular(sidecar_path(self.stored), flags)
            try:
                if os.fstat(fd).st_size < start:
                    start = 0
                _copy_bytes(source, fd, start, end)
                if durable:
                    os.fdatasync(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)
        self._sidecar_bytes = end
        return max(0, end - start)


def _copy_bytes(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        block = os.pread(source, min(_BLOCK_BYTES, end - start), start)
        if not block:
            raise OSError(0, "the live file became shorter")
        _write_all(target, block, start)
        start += len(block)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
