"""Reading journals: a numpy view of the records, never more than was published.

Readers may read while the owner writes: records below the published count never change, and are
copied out of the file (no mapping of records: a file that is cut short must not be a SIGBUS).
"""

from __future__ import annotations

import mmap
import os
import stat
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import JournalError
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import (
    CLOCKS_MAX_PAIRS,
    CLOCKS_OFFSET,
    HEADER_BYTES,
    IDENTITY_MAX_BYTES,
    IDENTITY_OFFSET,
    PAGE_BYTES,
    RECORD_BYTES,
    WORD_BYTES,
    Identity,
    Word,
)
from holdfast.journal.mapping import WORD_FORMAT
from holdfast.journal.sidecar import SidecarLine, read_sidecar, sidecar_path
from holdfast.journal.words import RankWords, check_header, rank_words

# `word` overlaps `kind` and `flags`; the argument is its upper 48 bits (see `argument`).
RECORD = np.dtype(
    {
        "names": ["time", "word", "kind", "flags", "step", "value"],
        "formats": ["<i8", "<u8", "u1", "u1", "<i8", "<i8"],
        "offsets": [0, 8, 8, 9, 16, 24],
        "itemsize": RECORD_BYTES,
    }
)

Records = npt.NDArray[np.void]

_PAGE_WORDS = PAGE_BYTES // WORD_BYTES
_CLOCKS_WORD = CLOCKS_OFFSET // WORD_BYTES


def argument(records: Records) -> npt.NDArray[np.int64]:
    """The records' argument: tokens, span kind, source attempt or note type."""
    return (records["word"] >> np.uint64(16)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Journal:
    """All that one journal and its sidecar say. `records` has the dtype RECORD."""

    identity: Identity
    clocks: tuple[ClockPair, ...]
    words: RankWords
    records: Records
    sidecar: tuple[SidecarLine, ...]


def read_journal(path: str | os.PathLike[str]) -> Journal:
    """Read a whole journal; raises JournalError when it is none that this version can read."""
    with JournalReader(path) as reader:
        words = reader.words()
        records = reader.read_new(0)
        lines, _ = reader.read_sidecar()
        return Journal(reader.identity, reader.clocks(), words, records, tuple(lines))


class JournalReader:
    """An open journal that may still be growing. Reads the file; never writes it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and check the header.

        Raises JournalError: missing or unreadable, not a journal (yet), cut short, of a newer
        format version, or with an identity that is no identity.
        """
        self.path = Path(path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise JournalError(
                f"cannot open the journal {self.path}: {problem.strerror}"
            ) from problem
        # Followers forget readers rather than close them: the descriptor goes with the object.
        self._closes = weakref.finalize(self, os.close, self._fd)
        self._closes.atexit = False  # a session still copies its journal while Python exits
        self._header = self._map_header()
        check_header(self._header, path)
        self.identity = self._read_identity()

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count(self) -> int:
        """Records published and present in the file."""
        published: int = self._header[_PAGE_WORDS + Word.COUNT]
        present = (os.fstat(self._fd).st_size - HEADER_BYTES) // RECORD_BYTES
        return max(0, min(published, present))

    def words(self) -> RankWords:
        """The words now."""
        return rank_words(self._header[_PAGE_WORDS:])

    def clocks(self) -> tuple[ClockPair, ...]:
        """The clock pairs so far, oldest first."""
        pairs = min(self._header[_CLOCKS_WORD], CLOCKS_MAX_PAIRS)
        first = _CLOCKS_WORD + 1
        flat = self._header[first : first + 2 * pairs].tolist()
        return tuple(map(ClockPair, flat[::2], flat[1::2]))

    def read_new(self, since_count: int = 0, limit: int | None = None) -> Records:
        """Records `since_count` and up, at most `limit` of them; a copy, of dtype RECORD.

        Fewer than were published when the file is shorter, or when one is not filled (kind 0).
        """
        new = self.count() - since_count
        if limit is not None:
            new = min(new, limit)
        if new <= 0:
            return np.empty(0, RECORD)
        data = os.pread(self._fd, new * RECORD_BYTES, HEADER_BYTES + since_count * RECORD_BYTES)
        records = np.frombuffer(data, RECORD, len(data) // RECORD_BYTES)
        kinds = records["kind"]
        if not kinds.all():
            records = records[: int(np.argmin(kinds != 0))]
        return records

    def read_sidecar(self, since_offset: int = 0) -> tuple[list[SidecarLine], int]:
        """The sidecar's whole lines from an offset on, and the next offset."""
        return read_sidecar(sidecar_path(self.path), since_offset)

    def header_bytes(self) -> bytes:
        """Both header pages as they are now."""
        return bytes(self._header.cast("B"))

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._fd

    def close(self) -> None:
        """Let go of the file."""
        self._header.release()
        self._closes()

    def _map_header(self) -> memoryview[int]:
        # Mapped, not read: the owner's count must come in one piece.
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(f"{self.path} is not a journal: it is not a file")
        size = status.st_size
        if size < HEADER_BYTES:
            state = f"its header is cut short at {size} bytes" if size else "it is empty"
            raise JournalError(f"{self.path} is not a journal: {state}")
        mapped = mmap.mmap(self._fd, HEADER_BYTES, prot=mmap.PROT_READ)
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
