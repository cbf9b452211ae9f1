"""A file in memory that is mapped once, touched ahead of time, and written like any memory.

What the trainer copies into must cost no page fault while training waits, must never be a SIGBUS
(a sparse map on a full disk), must not be inherited by forked children, and must survive a script
that closes every descriptor. So: space is reserved before it is touched, no descriptor is kept, and
the range is marked MADV_DONTFORK. The mapping itself stays until the process ends.

Pages of 2 MiB where the kernel gives them: they are made by MADV_COLLAPSE (Linux 6.1) from extents
of which one small page is there. That takes a quarter of the time of touching small pages, needs no
setting of the machine, and a process that maps the file later has its pages at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from holdfast.journal.own_file import OwnFile
from holdfast.journal.regular import open_regular
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.cuda import CudaError, Pinned
from holdfast.snapshot.memory import HUGE_PAGE_BYTES

BLOCK_BYTES = 32 << 20  # one call to the kernel: long enough to be worth it, short enough to end
SPARE_BYTES = 64 << 20  # of address space, which costs nothing: a file that grows keeps its mapping

_MADV_POPULATE_WRITE = 23  # Linux 5.14; an error instead of a SIGBUS where there is no space
_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value

Stop = Callable[[], bool]


def _never() -> bool:
    return False


class SharedFile:
    """One file of shared memory. `memory` is the mapped range; only its first `size` bytes exist.

    Every method raises OSError (ENOSPC where there is no room); what the file held is then intact.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.memory: Bytes = np.empty(0, np.uint8)
        self.pinned: Pinned | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_mapped(self) -> bool:
        """Whether `open` has mapped a file that is still the one at `path`."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def open(self, size_bytes: int, *, keep: bool, stopped: Stop = _never) -> None:
        """Map the file, made if it is missing, with all its pages present. It is not pinned.

        A file that is shorter is made that long, unless `keep`: then its length stays. Contents
        stay in any case. `stopped` is asked now and then whether to give up (InterruptedError).
        """
        self._identity = None
        with self._opened(create=True) as descriptor:
            found = os.fstat(descriptor)
            length = found.st_size if keep else max(found.st_size, size_bytes)
            self._map(descriptor, max(length, size_bytes))
        try:
            if length > found.st_size:
                os.truncate(self.path, length)
            for start, stop in _blocks(0, length, found.st_size):
                if stopped():
                    raise InterruptedError(errno.EINTR, "not wanted any more", str(self.path))
                if start >= found.st_size:
                    self._collapse(start, stop)
                self._populate(start, stop)
        except OSError:
            os.truncate(self.path, found.st_size)
            raise
        self.size = length
        self._identity = (found.st_dev, found.st_ino)

    def pin(self, device: int) -> None:
        """Register all pages of the file with a device's driver; raises CudaError."""
        self.unpin()
        self.pinned = Pinned(self.memory.ctypes.data, whole_pages(self.size), device)

    def unpin(self) -> None:
        """No page is registered any more."""
        if self.pinned is not None:
            self.pinned.release()
            self.pinned = None

    def resize(self, size_bytes: int) -> None:
        """Give the file exactly this length; what is new of it exists before this returns.

        If it is pinned and gets other pages, they are registered anew, which takes its time.
        """
        pinned = self.pinned
        if pinned is None or pinned.size_bytes == whole_pages(size_bytes):
            self._resize(size_bytes)
            return
        self.unpin()
        self._resize(size_bytes)
        with contextlib.suppress(CudaError):  # copies are slower then
            self.pin(pinned.device)

    def _resize(self, size_bytes: int) -> None:
        if size_bytes == self.size:
            return
        with self._opened(create=False) as descriptor:
            if size_bytes > self.size:
                os.posix_fallocate(descriptor, self.size, size_bytes - self.size)
                if size_bytes > self.memory.size:
                    self._map(descriptor, size_bytes)
            else:
                os.ftruncate(descriptor, size_bytes)
            self.size = size_bytes

    @contextlib.contextmanager
    def _opened(self, *, create: bool) -> Iterator[int]:
        """A descriptor for this one use: one that is kept may be somebody else's by then.

        So may this one, where a thread could get no table of its own: then OSError, at the end.
        """
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        own = OwnFile(self.path, open_regular(self.path, flags), flags)
        try:
            descriptor = own.descriptor()
            found = os.fstat(descriptor)
            if not os.path.samestat(found, self.path.lstat()):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self.path))
            if found.st_uid != os.geteuid() or found.st_nlink != 1:
                raise OSError(errno.EPERM, "not a file of ours alone", str(self.path))
            if stat.S_IMODE(found.st_mode) & 0o077:
                os.fchmod(descriptor, 0o600)
            yield descriptor
        finally:
            own.close()
        if own.is_shaken:
            raise OSError(errno.EBADF, "the script closed its descriptor", str(self.path))

    def _map(self, descriptor: int, size_bytes: int) -> None:
        try:
            memory = _map_aligned(descriptor, size_bytes + size_bytes // 4 + SPARE_BYTES)
        except OSError:  # a limit on address space
            memory = _map_aligned(descriptor, size_bytes)
        self.unpin()
        old, self.memory = self.memory, memory
        if old.size:
            _libc().munmap(old.ctypes.data, old.size)

    def _collapse(self, start: int, stop: int) -> None:
        """Make new pages huge ones, where a whole one fits. If that cannot be, they are small."""
        first = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        last = stop // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        for place in range(first, last, HUGE_PAGE_BYTES):  # without any page none is collapsed
            self._populate(place, place + mmap.PAGESIZE)
        if first < last:
            _advise(self.memory, first, last, _MADV_COLLAPSE)

    def _populate(self, start: int, stop: int) -> None:
        """Have the pages in this process's tables; those that are not there are made."""
        start -= start % mmap.PAGESIZE
        problem = _advise(self.memory, start, stop, _MADV_POPULATE_WRITE)
        if problem == errno.EINVAL:  # an older kernel: they are reserved, and mapped when used
            with self._opened(create=False) as descriptor:
                os.posix_fallocate(descriptor, start, stop - start)
        elif problem:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def whole_pages(size_bytes: int) -> int:
    """The bytes of the pages that so many bytes of a file lie in."""
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _blocks(start: int, stop: int, cut: int) -> Iterator[tuple[int, int]]:
    """A range cut at `cut`, and where multiples of the block's size are."""
    while start < stop:
        end = min(stop, start - start % BLOCK_BYTES + BLOCK_BYTES)
        end = min(end, cut) if start < cut else end
        yield start, end
        start = end


def _map_aligned(descriptor: int, size_bytes: int) -> Bytes:
    """A shared mapping that begins where a huge page may; beyond the file's end it is untouchable.

    Not Python's mmap: that maps no more than the file has now, and lets go of it when it is freed,
    in a forked child too, where the addresses belong to somebody else.
    """
    libc = _libc()
    size_bytes = -(-size_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    whole = size_bytes + HUGE_PAGE_BYTES
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, whole, 0, private, -1, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    start = -(-address // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mmap(start, size_bytes, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0) == _FAILED:
        problem = ctypes.get_errno()
        libc.munmap(address, whole)
        raise OSError(problem, os.strerror(problem))
    libc.madvise(start, size_bytes, mmap.MADV_DONTFORK)
    for begin, end in ((address, start), (start + size_bytes, address + whole)):
        if begin < end:
            libc.munmap(begin, end - begin)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size_bytes).from_address(start)), np.uint8)


def _advise(memory: Bytes, start: int, stop: int, advice: int) -> int:
    """Advise on a part of the memory; 0, or the error's number. Lets go of the GIL."""
    address = int(memory.ctypes.data) + start
    return ctypes.get_errno() if _libc().madvise(address, stop - start, advice) else 0


@functools.cache
def _libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
    found.munmap.argtypes = (ctypes.c_void_p, size)
    found.madvise.argtypes = (ctypes.c_void_p, size, number)
    return found
