"""An open journal: its header, checked, and how much there is to read. Without numpy.

The header is mapped, not read: the owner's count must come in one piece. Records are copied out of
the file by whoever wants them; a file that is cut short must not be a SIGBUS.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path

from holdfast.errors import JournalError
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import (
    CLOCKS_MAX_PAIRS,
    CLOCKS_OFFSET,
    HEADER_BYTES,
    IDENTITY_MAX_BYTES,
    IDENTITY_OFFSET,
    MAX_TIME_NS,
    PAGE_BYTES,
    RECORD_BYTES,
    WORD_BYTES,
    Identity,
    Word,
)
from holdfast.journal.mapping import WORD_FORMAT, Words
from holdfast.journal.rank_page import PageValues, check_header, page_values
from holdfast.journal.regular import open_regular

_PAGE_WORDS = PAGE_BYTES // WORD_BYTES
_CLOCKS_WORD = CLOCKS_OFFSET // WORD_BYTES


class OpenJournal:
    """A journal that is open for reading, and may be growing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and check the header.

        Raises JournalError: missing or unreadable, not a journal (yet), cut short, of a newer
        format version, or with an identity that is no identity.
        """
        self.path = Path(path)
        try:
            self.fd = open_regular(self.path)
        except OSError as problem:
            raise JournalError(
                f"cannot open the journal {self.path}: {problem.strerror}"
            ) from problem
        # Followers forget journals rather than close them: the descriptor goes with the object.
        self._closes = weakref.finalize(self, os.close, self.fd)
        self._closes.atexit = False  # the session's own exit still copies from it
        self._header = self._map_header()
        check_header(self._header, path)
        self.identity = self._read_identity()

    def count(self) -> int:
        """Records published and present in the file."""
        published: int = self._header[_PAGE_WORDS + Word.COUNT]
        present = (os.fstat(self.fd).st_size - HEADER_BYTES) // RECORD_BYTES
        return max(0, min(published, present))

    def values(self) -> PageValues:
        """The values of the page, as they are now."""
        return page_values(self._header[_PAGE_WORDS:])

    def clocks(self) -> tuple[ClockPair, ...]:
        """The clock pairs so far, oldest first; those that no clock can have said are left out."""
        pairs = min(self._header[_CLOCKS_WORD], CLOCKS_MAX_PAIRS)
        first = _CLOCKS_WORD + 1
        flat = self._header[first : first + 2 * pairs].tolist()
        read = map(ClockPair, flat[::2], flat[1::2])
        return tuple(pair for pair in read if max(pair) <= MAX_TIME_NS)

    def header_bytes(self) -> bytes:
        """Both header pages as they are now."""
        return bytes(self._header.cast("B"))

    def close(self) -> None:
        """Let go of the file."""
        self._header.release()
        self._closes()

    def _map_header(self) -> Words:
        size = os.fstat(self.fd).st_size
        if size < HEADER_BYTES:
            state = f"its header is cut short at {size} bytes" if size else "it is empty"
            raise JournalError(f"{self.path} is not a journal: {state}")
        mapped = mmap.mmap(self.fd, HEADER_BYTES, prot=mmap.PROT_READ)
        return memoryview(mapped).cast(WORD_FORMAT)

    def _read_identity(self) -> Identity:
        head = self._header.cast("B")
        length = self._header[IDENTITY_OFFSET // WORD_BYTES]
        start = IDENTITY_OFFSET + WORD_BYTES
        if length <= IDENTITY_MAX_BYTES:
            try:
                return Identity.from_json(bytes(head[start : start + length]))
            except ValueError:
                pass
        raise JournalError(f"{self.path} is damaged: it does not say who wrote it")
