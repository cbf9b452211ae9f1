"""Whole files or none: how every piece of metadata gets into a run store.

A reader of these files sees the old content or the new one, never a part, whatever dies when.
Both ways of writing fill a temporary file in the same folder and sync it; they differ in how it
gets its name: `rename` replaces, `link` refuses when the name is taken. The folder is synced last,
so a name that was reported as written survives a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.journal.fields import load_json
from holdfast.journal.regular import is_real_folder, read_regular, refuse_link
from holdfast.journal.remote import remote_of

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
TEMPORARY_SUFFIX = ".tmp"
JSON_MAX_BYTES = 1 << 20

_WORDS = {
    errno.ENOSPC: ("no space left on the disk of {path}", "free some space"),
    errno.EDQUOT: ("the disk quota at {path} is used up", "free some space or raise the quota"),
    errno.EFBIG: ("{path} would be too large", "raise the limit on file sizes (ulimit -f)"),
    errno.EROFS: ("the filesystem of {path} is read-only", "name a store that can be written"),
    errno.EACCES: ("no permission for {path}", "check its owner and mode"),
    errno.EPERM: ("{path} may not be changed", "check its owner, mode and filesystem"),
    errno.ENOENT: ("{path} is not there (any more)", "check that the store is mounted"),
    errno.EEXIST: ("{path} is a file, not a folder", "name another store"),
    errno.ENOTDIR: ("a part of the path {path} is a file, not a folder", "name another store"),
    errno.ESTALE: ("{path} vanished from the file server", "mount the store again"),
    errno.EIO: ("the disk of {path} reports an I/O error", "check the disk"),
    errno.ENAMETOOLONG: ("the path {path} is too long", "use a shorter store path or run name"),
    errno.EISDIR: ("{path} is a folder, not a file", "move it away"),
    errno.ENXIO: ("{path} is a pipe, a socket or a device, not a file", "move it away"),
    errno.ELOOP: ("{path} is a link, and none is followed inside a run", "move it away"),
}
_ABOUT_ITS_OWN_PATH = (errno.EISDIR, errno.ENXIO, errno.ELOOP)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextlib.contextmanager
def store_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an OSError inside into `StoreUnavailable`: what was tried, what is wrong, what to do."""
    try:
        yield
    except OSError as error:
        raise unavailable(doing, path, error) from error


def unavailable(doing: str, path: Path, error: OSError) -> StoreUnavailable:
    """The `StoreUnavailable` for an OSError met while `doing` something with `path`."""
    words, advice = _WORDS.get(
        error.errno or 0,
        (f"{error.strerror or error} ({{path}})", "check that the store can be reached"),
    )
    if error.errno in _ABOUT_ITS_OWN_PATH and error.filename:
        path = Path(os.fsdecode(error.filename))
    return StoreUnavailable(f"cannot {doing}: {words.format(path=path)}; {advice}")


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Create or replace `path` with `data`; on return it is on disk under its name.

    `durable=False` leaves out the syncs, for content that is stale after a crash anyway
    (heartbeats). Raises StoreUnavailable; the old content is then untouched.
    """
    remote = remote_of(path)
    if remote is not None:
        remote.put(path, data)
    drafted = _temporary(path, data, PRIVATE_FILE, durable)
    with store_errors(f"write {path.name}", path), drafted as draft:
        draft.replace(path)
        if durable:
            sync_folder(path.parent)
    if remote is not None:
        remote.written(path)


def write_plain(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Create or replace `path`, here and in no object store; whole, not synced. Raises OSError."""
    with _temporary(path, data, mode, False) as draft:
        draft.replace(path)


def remove(path: Path) -> None:
    """Remove a file, wherever its folder comes from; one that is not there is no trouble.

    Raises StoreUnavailable.
    """
    remote = remote_of(path)
    if remote is not None:
        remote.remove(path)
    with store_errors(f"remove {path.name}", path):
        path.unlink(missing_ok=True)


def create_exclusive(path: Path, data: bytes) -> None:
    """Create `path` with the whole of `data`, only if nothing has that name yet.

    Of any number of callers, on any number of hosts, exactly one succeeds: `link` is atomic on the
    server, also on NFS, where O_EXCL followed by a write would show others an empty file. Raises
    FileExistsError to the losers, StoreUnavailable when the folder cannot be written.
    """
    taken = False
    remote = remote_of(path)
    if remote is not None:
        remote.create(path, data)  # whoever succeeds there is the only one
    drafted = _temporary(path, data, PRIVATE_FILE, True)
    with store_errors(f"create {path.name}", path), drafted as draft:
        try:
            os.link(draft, path, follow_symlinks=False)
        except FileExistsError:
            # NFS repeats a request whose answer was lost: the second link then fails although
            # the first one succeeded. Two names for our draft say that we won.
            taken = draft.stat().st_nlink != 2
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnavailable(
                    f"the filesystem of {path} has no hard links, which keep two supervisors "
                    "apart; put the store on another filesystem"
                ) from error
            raise
        if not taken:
            sync_folder(path.parent)
    if taken:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if remote is not None:
        remote.written(path)


def reserve(path: Path, size_bytes: int) -> None:
    """Make a file there whose room `create_reserved` uses once the disk is full; or do without."""
    if remote_of(path) is None:
        with contextlib.suppress(StoreUnavailable):
            write_atomic(path, b" " * size_bytes)


def create_reserved(path: Path, data: bytes, reserved: Path) -> None:
    """As `create_exclusive`, in the room of `reserved` where the disk has no other; it goes.

    Only for a name that nobody else creates.
    """
    try:
        create_exclusive(path, data)
    except StoreUnavailable:
        try:
            _fill(reserved, data)
            reserved.rename(path)
            sync_folder(path.parent)
        except OSError:
            pass
        else:
            return
        raise
    with contextlib.suppress(OSError):
        reserved.unlink(missing_ok=True)


def _fill(path: Path, data: bytes) -> None:
    """Overwrite a file from its beginning with JSON, after which blanks may stand."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: str | Path, max_bytes: int = JSON_MAX_BYTES) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises FileNotFoundError when there is no such file, StoreUnavailable when it cannot be read or
    is not one whole JSON object of at most `max_bytes`.
    """
    try:
        data = read_regular(path, max_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(f"read {Path(path).name}", Path(path), error) from error
    if len(data) > max_bytes:
        raise StoreUnavailable(
            f"{path} is larger than {max_bytes} bytes: it was not written by Holdfast; move it away"
        )
    try:
        value = load_json(data)
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged (not JSON: {error}); move it away") from error
    if not isinstance(value, dict):
        raise StoreUnavailable(f"{path} is damaged (not a JSON object); move it away")
    return value


def encode_json(value: dict[str, Any]) -> bytes:
    """One object as the bytes of a metadata file: readable, and ended by a newline."""
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def make_folder(path: Path, *, parents: bool = True, durable: bool = True) -> None:
    """Create `path` (mode 0700) and its parents where they are missing.

    On return they are on disk under their names; `durable=False` leaves that to a caller who syncs
    the folder above anyway. `parents=False` for a folder inside a store: a store that has vanished
    (unmounted, moved away) must be missed, and not begun anew in the empty place where it was.
    Raises StoreUnavailable.
    """
    with store_errors(f"create the folder {path.name}", path):
        missing: list[Path] = []
        while not path.is_dir() and (parents or not missing):
            missing.append(path)
            path = path.parent
        if durable and (parents or not missing):
            # The one that is there may be of somebody who was killed before he synced its name.
            with contextlib.suppress(PermissionError):  # then nobody like us made it
                sync_folder(path.parent)
        for folder in reversed(missing):
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
            if durable:
                sync_folder(folder.parent)


def make_part(path: Path, *, durable: bool = True) -> None:
    """Create a folder inside a run; raises StoreUnavailable, also when a link has its place.

    Through a link, what we write there would land outside the run. The folder above must be there.
    """
    make_folder(path, parents=False, durable=durable)
    with store_errors(f"use the folder {path.name}", path):
        if not is_real_folder(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def make_place(path: Path) -> None:
    """Make the folder for a new file inside a run, where it is missing; raises as `make_part`."""
    if not is_real_folder(path.parent):
        make_part(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_open(descriptor)
    finally:
        os.close(descriptor)


def sync_open(descriptor: int) -> None:
    """Fsync what is open for reading alone. Filesystems that cannot are forgiven."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF):
            raise


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, mode: int, durable: bool) -> Iterator[Path]:
    """A synced file with `data` beside `path`, gone afterwards unless it was renamed."""
    draft = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    refuse_link(path.parent)
    descriptor = os.open(draft, flags, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
