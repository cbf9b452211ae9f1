"""A rank's output on its way from local scratch to the run store."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.journal.atomic import make_place, store_errors, sync_folder
from holdfast.journal.regular import open_regular

COPY_BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class LogCopy:
    """A growing text file and its copy."""

    live: Path
    stored: Path
    _copied_bytes: int = 0
    _synced_bytes: int = 0

    def sync(self, *, durable: bool = False) -> int:
        """Append what is new, and with `durable` have it on the disk; raises StoreUnavailable."""
        with store_errors(f"copy {self.live.name}", self.stored), contextlib.ExitStack() as stack:
            try:
                source = open_regular(self.live)
            except FileNotFoundError:
                return 0
            stack.callback(os.close, source)
            size_bytes = os.fstat(source).st_size
            if size_bytes == (self._synced_bytes if durable else self._copied_bytes):
                return 0
            before = self._copied_bytes
            make_place(self.stored)
            target = open_regular(self.stored, os.O_WRONLY | os.O_CREAT)
            stack.callback(os.close, target)
            if os.fstat(target).st_size < self._copied_bytes:  # not the file it was
                self._copied_bytes = 0
            while block := os.pread(source, COPY_BLOCK_BYTES, self._copied_bytes):
                os.pwrite(target, block, self._copied_bytes)
                self._copied_bytes += len(block)
            if durable:
                os.fdatasync(target)
                if not self._synced_bytes:
                    sync_folder(self.stored.parent)  # its name
                self._synced_bytes = self._copied_bytes
        return max(0, self._copied_bytes - before)
