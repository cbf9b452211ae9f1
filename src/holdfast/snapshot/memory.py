"""Large host memory whose page faults are few, and the copy into it that blocks training.

A fresh 4 KiB page costs a fault: for 1 GiB that is 4 to 10 times the copy into it. A private
anonymous mapping with MADV_HUGEPAGE takes one fault for 2 MiB (Python's default, MAP_SHARED, is
tmpfs underneath and gets small pages). Where huge pages are off, the advice does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from holdfast.snapshot import arrays
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.layout import Placed

HUGE_PAGE_BYTES = 2 << 20
TOUCH_BLOCK_BYTES = 32 << 20

_kept_from_children: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def reserve(size_bytes: int, *, inherited: bool = True) -> Bytes:
    """Writable zeros, aligned to a huge page and not touched yet; freed with the last view.

    `inherited=False` keeps the memory out of forked children: a data loader's worker then neither
    pays for it nor makes the parent's next write to each of its pages a copy.
    """
    if size_bytes <= 0:
        return np.empty(0, np.uint8)
    length = size_bytes + HUGE_PAGE_BYTES
    mapped = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    if not inherited:
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_DONTFORK)
            _kept_from_children.add(mapped)
    whole = np.frombuffer(mapped, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[start : start + size_bytes]


def touch(memory: Bytes) -> None:
    """Make every page present. Zeroes nothing that matters: only for memory not in use yet."""
    for start in range(0, memory.size, TOUCH_BLOCK_BYTES):  # numpy lets other threads run in each
        memory[start : start + TOUCH_BLOCK_BYTES : mmap.PAGESIZE] = 0


def _forget_in_child() -> None:
    # In the child these addresses are not mapped, or mapped to something else by now. Python must
    # never unmap them there, not even at exit: give each mapping a reference that is never dropped.
    for mapped in list(_kept_from_children):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))


os.register_at_fork(after_in_child=_forget_in_child)


CHUNK_BYTES = 8 << 20
PARALLEL_FROM_BYTES = 32 << 20
MAX_COPY_THREADS = 8


class Block(NamedTuple):
    """Bytes of the host that follow one another: where they go to in the data, and where they are.

    Whoever asks for its copy sees to it that the memory stays.
    """

    begin: int
    address: int
    nbytes: int


def copy_all(
    placed: Sequence[Placed], memory: Bytes, sharers: int = 1, blocks: Sequence[Block] = ()
) -> None:
    """Copy each piece to its place in `memory`, whose first byte is that of the data.

    `blocks`: more of them, of which no more needs to be asked. `sharers`: how many processes of
    this host copy at the same time, each on its share of the cores. More threads than that would
    wait for one another, and training for all of them.
    """
    base = memory.ctypes.data
    plain = (arrays.PlainCopy(base + to, source, nbytes) for to, source, nbytes in blocks)
    work = itertools.chain(itertools.chain.from_iterable(map(_cut, plain)), _chunks(placed, memory))
    threads = min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)) // max(1, sharers))
    total = sum(entry.end - entry.begin for entry, _, _ in placed)
    total += sum(block.nbytes for block in blocks)
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
    """All copies; plain ones cut up where they are large, so that threads share them evenly."""
    for entry, leaf, piece in placed:
        for copy in arrays.copies(leaf, piece, memory[entry.begin : entry.end]):
            yield from _cut(copy) if isinstance(copy, arrays.PlainCopy) else (copy,)


def _cut(copy: arrays.PlainCopy) -> Iterator[arrays.PlainCopy]:
    target, source, nbytes, held = copy
    for at in range(0, nbytes, CHUNK_BYTES):
        yield arrays.PlainCopy(target + at, source + at, min(CHUNK_BYTES, nbytes - at), held)
