"""Reading journals: a numpy view of the records, never more than was published.

Readers may read while the owner writes: records below the published count never change, and are
copied out of the file (no mapping of records: a file that is cut short must not be a SIGBUS).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.errors import JournalError
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import HEADER_BYTES, RECORD_BYTES, Identity
from holdfast.journal.opened import OpenJournal
from holdfast.journal.rank_page import PageValues
from holdfast.journal.sidecar import SidecarLine, read_sidecar, sidecar_path

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

CHUNK_RECORDS = 1 << 17  # 4 MiB: what one read asks for, whatever the count claims


def argument(records: Records) -> npt.NDArray[np.int64]:
    """The records' argument: tokens, span kind, source attempt or note type."""
    return (records["word"] >> np.uint64(16)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Journal:
    """All that one journal and its sidecar say. `records` has the dtype RECORD."""

    identity: Identity
    clocks: tuple[ClockPair, ...]
    values: PageValues
    records: Records
    sidecar: tuple[SidecarLine, ...]


def read_journal(path: str | os.PathLike[str]) -> Journal:
    """Read a whole journal; raises JournalError when it is none that this version can read."""
    with JournalReader(path) as reader:
        values = reader.values()
        pieces = list(reader.read_all())
        records = np.concatenate(pieces) if pieces else np.empty(0, RECORD)
        lines, _ = reader.read_sidecar()
        return Journal(reader.identity, reader.clocks(), values, records, tuple(lines))


class JournalReader(OpenJournal):
    """Reads the records of an open journal that may still be growing; never writes it."""

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_new(self, since_count: int = 0) -> Records:
        """Records `since_count` and up; a copy, of dtype RECORD.

        Fewer than were published when the file is shorter, or when one is not filled (kind 0), and
        never more than CHUNK_RECORDS: `read_all` goes on. Raises JournalError when the disk fails.
        """
        new = min(self.count() - since_count, CHUNK_RECORDS)
        if new <= 0:
            return np.empty(0, RECORD)
        start = HEADER_BYTES + since_count * RECORD_BYTES
        try:
            data = os.pread(self.fd, new * RECORD_BYTES, start)
        except OSError as problem:
            raise self._unreadable(problem) from problem
        records = np.frombuffer(data, RECORD, len(data) // RECORD_BYTES)
        kinds = records["kind"]
        if not kinds.all():
            records = records[: int(np.argmin(kinds != 0))]
        return records

    def read_all(self, since_count: int = 0) -> Iterator[Records]:
        """All records from `since_count` on, in pieces."""
        while len(records := self.read_new(since_count)):
            since_count += len(records)
            yield records

    def read_sidecar(
        self, since_offset: int = 0, wanted: Callable[[bytes], bool] | None = None
    ) -> tuple[list[SidecarLine], int]:
        """As `sidecar.read_sidecar`; raises JournalError."""
        try:
            return read_sidecar(sidecar_path(self.path), since_offset, wanted)
        except OSError as problem:
            raise self._unreadable(problem) from problem

    def _unreadable(self, problem: OSError) -> JournalError:
        path = problem.filename or self.path
        return JournalError(f"{path} cannot be read: {problem.strerror}")
