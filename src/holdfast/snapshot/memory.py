"""Large host memory whose page faults are few, or paid ahead of time.

A fresh 4 KiB page costs a fault: for 1 GiB that is 4 to 10 times the copy into it. A private
anonymous mapping with MADV_HUGEPAGE takes one fault for 2 MiB (Python's default, MAP_SHARED, is
tmpfs underneath and gets small pages). Where huge pages are off, the advice does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref

import numpy as np

from holdfast.snapshot.arrays import Bytes

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
    with contextlib.suppress(OSError, AttributeError):  # a kernel, or a platform, without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    if not inherited:
        with contextlib.suppress(OSError, AttributeError):
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
