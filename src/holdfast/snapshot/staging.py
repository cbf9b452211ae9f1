"""The copy that blocks training, and nothing else: state trees into warm, reused host memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.snapshot.arrays import Bytes, begin_transfers
from holdfast.snapshot.layout import place
from holdfast.snapshot.memory import HUGE_PAGE_BYTES, copy_all, reserve, touch
from holdfast.snapshot.receipt import Tensor
from holdfast.snapshot.structure import Structure
from holdfast.snapshot.tree import flatten

GLOBAL = ("state",)
"""Top-level keys that belong to the run; everything else belongs to the rank that stored it."""

SLACK_BYTES = 1 << 20  # for what grows a little between saves: iterator states, long strings


@dataclass(slots=True)
class Captured:
    """A copy of a tree that later steps cannot change. `release` it when it is written."""

    structure: Structure
    shared: tuple[str, ...]  # paths whose arrays belong to the run, not to this rank alone
    rank: int
    world_size: int
    entries: tuple[Tensor, ...]
    data: memoryview
    _release: Callable[[], None] | None

    @property
    def nbytes(self) -> int:
        """Bytes of array data."""
        return self.data.nbytes

    def release(self) -> None:
        """Give the memory back to the next capture. Calling it again does nothing."""
        give_back, self._release = self._release, None
        if give_back is not None:
            self.data.release()
            give_back()


class Staging:
    """One rank's buffer. Grown when it must be, touched ahead of time, used again for each save."""

    def __init__(self) -> None:
        self._memory: Bytes = np.empty(0, np.uint8)
        self._busy = threading.Lock()

    def measure(self, tree: Any) -> int:
        """Bytes that a capture of this tree needs; raises `Unstorable` when it cannot be stored."""
        placed = place(flatten(tree).leaves)
        return placed[-1][0].end if placed else 0

    def reserve(self, size_bytes: int) -> None:
        """Have that much warm memory. Meant for a background thread; a capture waits for it."""
        with self._busy:
            self._grow(size_bytes)

    def prepare(self, tree: Any) -> None:
        """`reserve` what a capture of this tree needs; raises `Unstorable`."""
        self.reserve(self.measure(tree))

    def capture(
        self, tree: Any, rank: int = 0, world_size: int = 1, shared: Sequence[str] = GLOBAL
    ) -> Captured:
        """Copy everything. When this returns, buffers may be donated, changed or freed.

        Waits for a `reserve` under way, and for the previous capture to be released. `shared`:
        path prefixes of what belongs to the run as a whole; the rest is this rank's own.

        Raises:
            Unstorable: a value that cannot be stored; nothing was copied.

        """
        flat = flatten(tree)
        begin_transfers(flat.leaves)
        placed = place(flat.leaves)
        size = placed[-1][0].end if placed else 0
        self._busy.acquire()
        try:
            self._grow(size)
            copy_all(placed, self._memory)
            data = self._memory[:size].data.toreadonly()
        except BaseException:
            self._busy.release()
            raise
        entries = tuple(entry for entry, _, _ in placed)
        return Captured(
            flat.structure, tuple(shared), rank, world_size, entries, data, self._busy.release
        )

    def _grow(self, size_bytes: int) -> None:
        if self._memory.size >= size_bytes:
            return
        wanted = -(-(size_bytes + SLACK_BYTES) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        self._memory = np.empty(0, np.uint8)  # the old one first: never both at a time
        memory = reserve(wanted, inherited=False)
        touch(memory)
        self._memory = memory
