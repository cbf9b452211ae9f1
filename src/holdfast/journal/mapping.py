"""Shared memory over files: reserved before it is mapped, absent from forked children.

A sparse mapping on a full disk is a SIGBUS that kills the trainer, so space is reserved first. A
forked child (a data loader's worker) must never write into its parent's journal: its mappings are
marked MADV_DONTFORK, and whoever holds one is told in the child, by `detach`, to forget it before
it is touched.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import weakref
from typing import TYPE_CHECKING, Literal, Protocol

# One 64-bit word. "L" costs a few percent less than "Q" where it is as wide.
WORD_FORMAT: Literal["L", "Q"] = "L" if struct.calcsize("L") == 8 else "Q"

if TYPE_CHECKING:
    Words = memoryview[int]
else:
    Words = memoryview  # not subscriptable before Python 3.14


class Detachable(Protocol):
    """Holds a mapping, and can let go of it for good."""

    def detach(self) -> None:
        """Let go of every mapping and file; from here on every operation is without effect."""


_holders: weakref.WeakSet[Detachable] = weakref.WeakSet()


def detach_in_forked_child(holder: Detachable) -> None:
    """Have `holder.detach()` called in every forked child, first thing."""
    _holders.add(holder)


def _detach_all() -> None:
    # At once, while the addresses are still a hole in the child: unmapping later could hit whatever
    # the child has mapped there by then.
    for holder in list(_holders):
        holder.detach()
    _holders.clear()


os.register_at_fork(after_in_child=_detach_all)


def reserve(fd: int, offset: int, length_bytes: int) -> None:
    """Make sure that these bytes of the file exist on the disk; raises OSError (no space)."""
    os.posix_fallocate(fd, offset, length_bytes)


def map_words(fd: int, offset: int, length_bytes: int) -> tuple[mmap.mmap, Words]:
    """Map reserved bytes of a file, shared; the view is of 64-bit words. Raises OSError."""
    slack = offset % mmap.ALLOCATIONGRANULARITY
    mapped = mmap.mmap(fd, slack + length_bytes, offset=offset - slack)
    mapped.madvise(mmap.MADV_DONTFORK)
    return mapped, memoryview(mapped)[slack:].cast(WORD_FORMAT)


def private_words(length_bytes: int) -> Words:
    """Words of nobody's: what a detached holder reads and writes without effect."""
    return memoryview(bytearray(length_bytes)).cast(WORD_FORMAT)


_abandoned: list[mmap.mmap] = []


def unmap(mapped: mmap.mmap, words: Words, *, is_shaken: bool = False) -> None:
    """Undo `map_words`; a view that somebody still uses keeps its mapping until they are done.

    `is_shaken`: descriptors of this process were closed behind our back. Python's mapping has one
    of its own and would close it, whosever it is by now: it is kept, to the process's end.
    """
    words.release()
    if is_shaken:
        _abandoned.append(mapped)
        return
    with contextlib.suppress(BufferError):  # another thread is using a slice: freed with that
        mapped.close()
