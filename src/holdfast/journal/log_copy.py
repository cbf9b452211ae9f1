"""A rank's output on its way from local scratch to the run store."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.journal.atomic import make_part, store_errors
from holdfast.journal.regular import open_regular

COPY_BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class LogCopy:
    """A growing text file and its copy."""

    live: Path
    stored: Path
    _copied_bytes: int = 0

    def sync(self) -> int:
        """Append what is new; raises StoreUnavailable."""
        before = self._copied_bytes
        with store_errors(f"copy {self.live.name}", self.stored), contextlib.ExitStack() as stack:
            try:
                source = open_regular(self.live)
            except FileNotFoundError:
                return 0
            stack.callback(os.close, source)
            if os.fstat(source).st_size == self._copied_bytes:
                return 0
            make_part(self.stored.parent)
            target = open_regular(self.stored, os.O_WRONLY | os.O_CREAT)
            stack.callback(os.close, target)
            while block := os.pread(source, COPY_BLOCK_BYTES, self._copied_bytes):
                os.pwrite(target, block, self._copied_bytes)
                self._copied_bytes += len(block)
        return self._copied_bytes - before
