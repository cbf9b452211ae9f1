"""The copy that blocks training: all pieces of a tree into host memory, by several threads."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from holdfast.snapshot import arrays
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.layout import Placed

CHUNK_BYTES = 8 << 20
PARALLEL_FROM_BYTES = 32 << 20
MAX_COPY_THREADS = 8


def copy_all(placed: Sequence[Placed], memory: Bytes, sharers: int = 1) -> None:
    """Copy each piece to its place in `memory`, whose first byte is that of the data.

    `sharers`: how many processes of this host copy at the same time, each on its share of the
    cores. More threads than that would wait for one another, and training for all of them.
    """
    work = _chunks(placed, memory)
    threads = min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)) // max(1, sharers))
    total = placed[-1][0].end if placed else 0
    if total < PARALLEL_FROM_BYTES or threads < 2:
        for copy in work:
            arrays.run(copy)
        return
    pending = list(work)[::-1]  # popped from the end, by several threads: list.pop is atomic

    def drain() -> None:
        with contextlib.suppress(IndexError):  # another thread took the last one
            while True:
                arrays.run(pending.pop())

    helping = []
    with contextlib.suppress(RuntimeError):  # the interpreter is ending: no more threads
        helping += [_helpers().submit(drain) for _ in range(threads - 1)]
    try:
        drain()
    finally:
        pending.clear()
        for one in helping:  # who has not begun by now, for want of a core, is not waited for
            if not one.cancel():
                one.result()


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_COPY_THREADS - 1, "holdfast-copy")


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
