"""The copy that blocks training: all pieces of a tree into host memory, by several threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from holdfast.snapshot import arrays
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.layout import Placed

CHUNK_BYTES = 8 << 20
PARALLEL_FROM_BYTES = 32 << 20
MAX_COPY_THREADS = 8


def copy_all(placed: Sequence[Placed], memory: Bytes) -> None:
    """Copy each piece to its place in `memory`, whose first byte is that of the data."""
    work = _chunks(placed, memory)
    threads = min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)))
    total = placed[-1][0].end if placed else 0
    if total < PARALLEL_FROM_BYTES or threads < 2:
        for copy in work:
            arrays.run(copy)
        return
    pending = list(work)[::-1]  # popped from the end, by several threads: list.pop is atomic
    errors: list[BaseException] = []

    def drain() -> None:
        try:
            while pending:
                arrays.run(pending.pop())
        except IndexError:
            pass  # another thread took the last one
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=drain, daemon=True) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    drain()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]


def _chunks(placed: Sequence[Placed], memory: Bytes) -> Iterator[arrays.Copy]:
    """All copies; large plain ones cut up, so that threads share them evenly."""
    for entry, leaf, piece in placed:
        for target, source in arrays.copies(leaf, piece, memory[entry.begin : entry.end]):
            if isinstance(target, np.ndarray) and target.ndim == 1 and target.dtype == np.uint8:
                for start in range(0, target.size, CHUNK_BYTES):
                    stop = start + CHUNK_BYTES
                    yield target[start:stop], source[start:stop]
            else:
                yield target, source
