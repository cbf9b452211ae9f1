"""A run's folder in memory, `BASE/holdfast-UID/KEY/ram/`: whose it is, and its sealed buffers.

Buffers outlive every process of the run, that is their use; so somebody must find those that nobody
will come back for. A folder says whose it is twice: `owner.json` names the supervisor's process,
and that process holds a lock on `owner.lock` for as long as it lives. The lock is the kernel's and
so is its end; it also tells of owners in other containers, whose process ids mean nothing here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.core.save.word import MAX_BUFFERS
from holdfast.core.value import value
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import encode_json, store_errors, write_atomic
from holdfast.journal.holder import RunHolder, Sign, look
from holdfast.journal.regular import is_real_folder, open_regular
from holdfast.journal.scratch import (
    OWNER_FILE,
    claim_folders,
    filesystem_of,
    is_remote,
    owner_of,
)
from holdfast.snapshot.receipt import MANIFEST
from holdfast.snapshot.sets import SetInfo, check_size, info, read_head

BASE = Path("/dev/shm")  # noqa: S108 - checked for owner, mode and links
FOLDER = "ram"
LOCK_FILE = "owner.lock"
OLD_S = 86_400.0  # a run that nobody started again for a day: its snapshots are of no use in memory
_TRY_S = 0.01
_TRIES = 500


class RamFolder:
    """A run's folder in memory, held by this process until `release`, `remove` or its end."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def is_there(self) -> bool:
        """Whether it is still the folder that is held: anybody may have emptied its file system."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._lock), (self.path / LOCK_FILE).lstat())
        return False

    def hold(self) -> None:
        """Hold it anew if it is gone: else the next run that needs room takes it for abandoned.

        The ranks make their buffers again. What cannot be held now is tried again at the next look.
        """
        if self._lock < 0 or self.is_there:
            return
        with contextlib.suppress(StoreUnavailable, OSError):
            again = claim_ram(self.path.parents[2], self.path.parent.name, tries=1)
            os.close(self._lock)
            self._lock = again._lock

    def release(self) -> None:
        """Leave the buffers to the run's next start on this host."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def remove(self) -> None:
        """The run is done, or all that was here is durable: free the memory. Never raises."""
        if self._lock >= 0:
            _remove(self.path)
        self.release()


def ram_path(base: Path, key: str) -> Path:
    """Where a run's folder in memory is on this host, if it is there."""
    return base.expanduser().absolute() / f"holdfast-{os.getuid()}" / key / FOLDER


def claim_ram(base: Path, key: str, *, tries: int = _TRIES) -> RamFolder:
    """Create a run's folder in memory, or take over the one that an earlier supervisor left.

    `key` is the run's `scratch_key`. The caller holds the run's lease, so nobody else of this run
    is alive; buffers that are there may hold a sealed set (`buffers.sealed_buffers`).

    Raises:
        StoreUnavailable: with the reason: not ours, a link, on a network, no space.

    """
    uid = os.getuid()
    base = base.expanduser().absolute()
    kind = filesystem_of(base)
    if not base.is_dir():
        raise StoreUnavailable(f"no snapshots in memory: {base} is not there")
    if is_remote(kind):
        raise StoreUnavailable(f"no snapshots in memory: {base} is on {kind}, which is not local")
    own = base / f"holdfast-{uid}"
    path = own / key / FOLDER
    for _ in range(tries):
        if reason := claim_folders(uid, own, own / key, path):
            raise StoreUnavailable(f"no snapshots in memory: {reason}")
        lock = _locked(path)
        if lock is not None:
            break
        time.sleep(_TRY_S)  # another run's process is removing what it takes for abandoned
    else:
        raise StoreUnavailable(
            f"no snapshots in memory: another process holds {path / LOCK_FILE}; "
            "end it, or name another folder with --memory-dir"
        )
    try:
        write_atomic(path / OWNER_FILE, encode_json(RunHolder.current().to_json()))
    except BaseException:
        os.close(lock)
        raise
    return RamFolder(path, lock)


def reclaim(
    base: Path,
    *,
    but: str,
    enough: Callable[[], bool] = lambda: True,
    uid: int | None = None,
) -> tuple[Path, ...]:
    """Remove what dead supervisors of other runs left in memory; returns the folders removed.

    Only of this user, only where the owner is certainly gone, and only what is older than a day;
    younger ones, oldest first, while there is not `enough` room for what the caller wants. `but`:
    the key of one's own run. Never raises: what cannot be removed stays.
    """
    own = base.expanduser().absolute() / f"holdfast-{os.getuid() if uid is None else uid}"
    now_s, gone = time.time(), []
    with contextlib.suppress(OSError):
        others = sorted((_last_used_s(path), path) for path in _folders(own, but))
        for used_s, path in others:
            if (now_s - used_s > OLD_S or not enough()) and _take(path):
                gone.append(path)
    return tuple(gone)


def _folders(own: Path, but: str) -> Iterator[Path]:
    uid = int(own.name.rpartition("-")[2])
    for key in own.iterdir() if _is_own(own, uid) else ():
        path = key / FOLDER
        if key.name != but and _is_own(key, uid) and _is_own(path, uid):
            yield path


def _is_own(folder: Path, uid: int) -> bool:
    return is_real_folder(folder) and folder.lstat().st_uid == uid


def _last_used_s(path: Path) -> float:
    """When a set was last sealed or begun in it, or it was claimed."""
    times = [path.lstat().st_mtime]
    with contextlib.suppress(OSError):
        times += [entry.lstat().st_mtime for entry in path.iterdir()]
    return max(times)


def _take(path: Path) -> bool:
    """Remove a folder whose owner is dead; False when it may live, or comes back this moment."""
    holder = owner_of(path)
    if holder is not None and look(holder) is Sign.ALIVE:
        return False
    try:
        lock = _locked(path)
    except (OSError, StoreUnavailable):
        return False
    if lock is None:
        return False
    try:
        return _remove(path)
    finally:
        os.close(lock)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of the folder; None when another process does, or did."""
    place = path / LOCK_FILE
    with store_errors("hold the snapshots in memory", place):
        try:
            descriptor = open_regular(place, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            return None  # the folder was removed this moment
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever removed the folder held the lock of a file that is no longer there.
        if os.fstat(descriptor).st_ino == place.lstat().st_ino:
            return descriptor
    except OSError:
        pass  # held, or the folder is gone
    os.close(descriptor)
    return None


def _remove(path: Path) -> bool:
    """Remove a folder whose lock is held; the lock's file last. False when something stays."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.name == LOCK_FILE:
                continue
            if is_real_folder(entry):
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        (path / LOCK_FILE).unlink(missing_ok=True)
        path.rmdir()
        with contextlib.suppress(OSError):  # live journals may be beside it, other runs above it
            path.parent.rmdir()
            path.parent.parent.rmdir()
        return True
    return False


@value
class SealedBuffer:
    """A buffer that restores. `number` is its own: its folder is `buffer-NUMBER`."""

    number: int
    info: SetInfo


def buffer_name(number: int) -> str:
    """The folder of a buffer in a run's memory folder."""
    return f"buffer-{number}"


def sealed_buffers(ram_dir: Path) -> tuple[tuple[SealedBuffer, ...], dict[int, str]]:
    """The sealed buffers of a run's memory folder, oldest first; and what is wrong with others.

    Contents are not read: a restore does, and compares. Buffers without a manifest are neither.
    """
    found: list[SealedBuffer] = []
    damage: dict[int, str] = {}
    for number in range(MAX_BUFFERS):
        folder = ram_dir / buffer_name(number)
        if not is_real_folder(folder) or not os.path.lexists(folder / MANIFEST):
            continue
        try:
            manifest = read_head(folder)
            for rank in manifest.ranks:
                check_size(folder, rank, manifest.shards[rank].file_bytes)
        except (CorruptCheckpoint, StoreUnavailable) as error:
            damage[number] = str(error)
            continue
        found.append(SealedBuffer(number, info(folder, manifest)))
    return tuple(sorted(found, key=lambda one: (one.info.attempt, one.info.step))), damage
