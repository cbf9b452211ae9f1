"""Whole files or none: how small files get into a checkpoint folder, and what a full disk says."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import StoreUnavailable

_ADVICE = {
    errno.ENOSPC: "free some space or point the store elsewhere",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "point the store to a filesystem that can be written",
    errno.EACCES: "check the owner and the mode of the store",
}


@contextlib.contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn an OSError inside into `StoreUnavailable`: what failed, why, what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check that the store is there and healthy")
        why = (error.strerror or str(error)).lower()
        raise StoreUnavailable(f"{doing} failed: {why}; {advice}") from error


def replace(path: Path, data: bytes) -> None:
    """Write a file next to `path`, sync it, rename it there, sync the folder."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    with store_errors(f"writing {path}"):
        try:
            descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                write_all(descriptor, memoryview(data))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            fresh.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise


def write_all(descriptor: int, data: memoryview) -> None:
    """`os.write` until everything is written: one call moves at most 2 GiB, or up to a limit."""
    while data:
        data = data[os.write(descriptor, data) :]


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
