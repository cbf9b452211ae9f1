"""Sets in a folder: a file is on disk under its name before the next one that speaks of it is.

Data is synced, then the receipt renamed into place and the folder synced; the manifest is last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.value import value
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import make_part, store_errors, sync_folder
from holdfast.journal.flow import Flow
from holdfast.journal.regular import is_real_folder, open_regular
from holdfast.snapshot.names import (
    doing,
    doomed_by,
    doomed_name,
    given_up,
    is_committed,
    parse_set_name,
)
from holdfast.snapshot.receipt import MANIFEST, Receipt, receipt_name, shard_name
from holdfast.snapshot.sealed import read_sealed, write_sealed

WRITE_BLOCK_BYTES = 4 << 20
READ_BLOCK_BYTES = 1 << 20  # stays in a core's cache between the read and its checksum


@value
class FolderFiles:
    """The files of one set, looked at when asked."""

    path: Path

    def has(self, file: str) -> bool:
        """Whether anything has that name: be it a dead link, it was once there."""
        return os.path.lexists(self.path / file)

    def size(self, file: str) -> int | None:
        """Bytes of a plain file; None when there is none. StoreUnavailable."""
        path = self.path / file
        try:
            return path.lstat().st_size if path.is_file() and not path.is_symlink() else None
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror}") from error

    def doomed_by(self) -> int | None:
        """The newest lease whose holder is removing the set; None: none is. StoreUnavailable."""
        with store_errors("list a checkpoint", self.path), contextlib.suppress(FileNotFoundError):
            return doomed_by(os.listdir(self.path))  # noqa: PTH208 - names are all we need
        return None


class FolderShard:
    """An open shard."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = open_regular(path)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{path} is missing") from error
        except PermissionError as error:
            raise StoreUnavailable(f"{path} may not be read; check its owner") from error
        except OSError as error:
            raise CorruptCheckpoint(f"{path} cannot be opened: {error.strerror}") from error
        self.nbytes = os.fstat(self._descriptor).st_size

    def read_into(self, target: memoryview, offset: int, what: str) -> None:
        """Fill `target` from there; CorruptCheckpoint when that cannot be."""
        done = 0
        while done < target.nbytes:
            try:
                count = os.preadv(self._descriptor, [target[done:]], offset + done)
            except OSError as error:
                raise CorruptCheckpoint(
                    f"{self._path}: {what} cannot be read: {error.strerror or error}"
                ) from error
            if count == 0:
                raise CorruptCheckpoint(f"{self._path} ends inside {what}")
            done += count

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


class FolderVault:
    """See `holdfast.snapshot.vault.Vault`."""

    block_bytes = READ_BLOCK_BYTES
    readers: int | None = None

    def __init__(self, root: Path) -> None:
        self._root = root

    def where(self, name: str, file: str = "") -> str:
        """The path."""
        return str(self._root / name / file)

    def look(self) -> dict[str, FolderFiles]:
        """Folders that are named like sets; StoreUnavailable."""
        with store_errors("list the checkpoints", self._root):
            if not self._root.exists():
                return {}
            named = [path for path in self._root.iterdir() if parse_set_name(path.name) is not None]
        return {path.name: FolderFiles(path) for path in sorted(named) if is_real_folder(path)}

    def files(self, name: str) -> FolderFiles:
        """The files of one set."""
        return FolderFiles(self._root / name)

    def read(self, name: str, file: str) -> dict[str, Any]:
        """A sealed file; CorruptCheckpoint, StoreUnavailable."""
        return read_sealed(self._root / name / file)

    def write(self, name: str, file: str, value: Any) -> None:
        """Create or replace a sealed file; StoreUnavailable."""
        write_sealed(self._root / name / file, value)

    def open(self, name: str, file: str) -> FolderShard:
        """A shard; CorruptCheckpoint, StoreUnavailable."""
        return FolderShard(self._root / name / file)

    def put_data(
        self,
        name: str,
        rank: int,
        data: Sequence[memoryview],
        flow: Flow | None = None,
    ) -> None:
        """A rank's shard, synced. What an earlier, failed try left there is replaced."""
        set_dir = self._root / name
        path = set_dir / shard_name(rank)
        make_part(set_dir)
        with store_errors(doing(name), path):
            if (set_dir / MANIFEST).exists():
                raise is_committed(name, str(set_dir))
            (set_dir / receipt_name(rank)).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            if not _write(path, data, flow):
                raise given_up(name)

    def put_receipt(self, name: str, receipt: Receipt) -> None:
        """Acknowledge a shard. Without a receipt it is of no use: then its space is freed."""
        set_dir = self._root / name
        try:
            write_sealed(set_dir / receipt_name(receipt.rank), receipt.to_json())
        except StoreUnavailable:
            with contextlib.suppress(OSError):
                (set_dir / shard_name(receipt.rank)).unlink(missing_ok=True)
            raise

    def put_manifest(self, name: str, value: dict[str, Any]) -> None:
        """The set's own name first, before the manifest can be seen."""
        with store_errors("commit a checkpoint", self._root / name):
            sync_folder(self._root)
        write_sealed(self._root / name / MANIFEST, value)

    def doom(self, name: str, epoch: int) -> None:
        """Mark a set. Not synced: the mark is for supervisors of now, not for after a power cut."""
        path = self._root / name / doomed_name(epoch)
        what = "mark a checkpoint as being removed"
        with store_errors(what, path), contextlib.suppress(FileNotFoundError):
            os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))

    def delete(self, name: str) -> None:
        """Remove a set, the manifest first and durably, the marks last."""
        set_dir = self._root / name
        with store_errors("delete a checkpoint", set_dir):
            (set_dir / MANIFEST).unlink(missing_ok=True)
            if set_dir.exists():
                sync_folder(set_dir)
                for path in set_dir.iterdir():
                    if doomed_by([path.name]) is None and not is_real_folder(path):
                        path.unlink(missing_ok=True)
                try:
                    shutil.rmtree(set_dir)
                except RecursionError:  # folders in folders, a thousand deep: none of ours
                    raise OSError(errno.ENAMETOOLONG, "nested too deep", str(set_dir)) from None
                sync_folder(self._root)


def _write(path: Path, data: Sequence[memoryview], flow: Flow | None) -> bool:
    """A new file with these bytes, on disk. Removed again if that fails or is to stop: False."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    done = False
    try:
        try:
            position = 0
            for view in data:
                for start in range(0, view.nbytes, WRITE_BLOCK_BYTES):
                    block = view[start : start + WRITE_BLOCK_BYTES]
                    _write_all(descriptor, block)
                    _start_writeback(descriptor, position, block.nbytes)
                    position += block.nbytes
                    if flow is not None and not flow.goes_on(block.nbytes):
                        return False
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        done = True
    finally:
        if not done:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return True


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:  # one call moves at most 2 GiB, or up to a limit
        data = data[os.write(descriptor, data) :]


def _load_sync_file_range() -> Callable[[int, int, int], Any] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    write = 2  # SYNC_FILE_RANGE_WRITE

    def start(descriptor: int, offset: int, size: int) -> Any:
        return function(descriptor, offset, size, write)

    return start


_sync_file_range = _load_sync_file_range()


def _start_writeback(descriptor: int, offset: int, size: int) -> None:
    """Ask the kernel to start writing these bytes to the disk now, and not only at the fsync.

    A hint: the disk works while the next block is copied. Durability still comes from fsync, which
    also reports what went wrong; the hint's own result says nothing more.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, offset, size)
