"""A folder of compiled programs: read and written by several ranks at once, bounded by the agent.

What lies here is executed by whoever reads it. So nothing is taken from a folder or a file that
somebody else owns or may write, and an entry that does not match its checksum is removed. Where a
file's owner says nothing about who wrote it, a seal does (`cache.seal`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.cache.entry import CacheEntry, EntryError, decode, is_name, name_of
from holdfast.cache.seal import FileSealer, SealError, is_sealed
from holdfast.errors import HoldfastError
from holdfast.journal.atomic import TEMPORARY_SUFFIX, make_part, write_atomic
from holdfast.journal.regular import open_regular

ENTRY_MAX_BYTES = 4 << 30
STALE_DRAFT_S = 3600.0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CachedFile(NamedTuple):
    """One file of a tier."""

    name: str
    size_bytes: int
    used_unix_ns: int  # its time stamp: set at each use


class CacheTier:
    """One folder. It is made at the first write."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None] = lambda _: None,
        seal: FileSealer | None = None,
    ) -> None:
        """`say` takes a sentence about an entry that cannot be used; a `seal` is on all of them."""
        self.folder = folder
        self.refused: set[str] = set()  # names of files whose seal was not in order
        self._seal = seal
        self._tell = say
        self._said: set[str] = set()

    def get(self, key: str) -> CacheEntry | None:
        """The entry of this key; a damaged one is removed. Marks it as used now."""
        name = name_of(key)
        data = self.read(name)
        entry = None if data is None else self._decoded(name, data)
        if entry is None or entry.key != key:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.folder / name)
        return entry

    def look(self, name: str) -> CacheEntry | None:
        """The entry in a file of `entries()`; a damaged one is removed. Nobody has used it."""
        data = self.read(name)
        return None if data is None else self._decoded(name, data)

    def read_sound(self, name: str) -> bytes | None:
        """The bytes of a file, if they are the entry of that name; a damaged one is removed."""
        data = self.read(name)
        return None if data is None or self._decoded(name, data) is None else data

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, below its seal; None: there is none, or none to be trusted."""
        data = self._read(name)
        if data is None:
            return None
        if self._seal is None:
            if not is_sealed(data):
                return data
            self.say_once(f"{self.folder} has sealed programs: they need --cache-key-file")
            return None
        try:
            return self._seal.open(name, data)
        except SealError as why:
            self.refused.add(name)
            self.say_once(f"the compiled program {self.folder / name} is not used: {why}")
            return None

    def _read(self, name: str) -> bytes | None:
        path = self.folder / name
        try:
            if why := distrust(os.stat(self.folder, follow_symlinks=False)):  # noqa: PTH116
                self.say_once(f"{self.folder} {why}: no compiled program is taken from there")
                return None
            descriptor = open_regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.say_once(f"the compiled program {path} cannot be read: {error.strerror}")
            return None
        try:
            info = os.fstat(descriptor)
            why = distrust(info)
            if not why and info.st_size > ENTRY_MAX_BYTES:
                why = f"has more than {ENTRY_MAX_BYTES} bytes"
            if why:
                self.say_once(f"the compiled program {path} {why}: it is not used")
                return None
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read()
        except (OSError, MemoryError) as error:
            self.say_once(f"the compiled program {path} cannot be read: {error}")
            return None
        finally:
            os.close(descriptor)

    def put(self, entry: CacheEntry, *, durable: bool = False) -> bool:
        """Write an entry whole, or not at all; False when there is no place for it."""
        return self.write(entry.name, entry.encode(), durable=durable)

    def write(
        self, name: str, data: bytes, *, durable: bool = False, used_unix_ns: int | None = None
    ) -> bool:
        """The same for the bytes of a file, last used then; None: now."""
        try:
            make_part(self.folder, durable=durable)
            sealed = data if self._seal is None else self._seal.close(name, data)
            write_atomic(self.folder / name, sealed, durable=durable)
        except HoldfastError as error:
            self.say_once(f"a compiled program could not be kept: {error}")
            return False
        self.refused.discard(name)
        if used_unix_ns is not None:
            self.mark_used(name, used_unix_ns)
        return True

    def mark_used(self, name: str, used_unix_ns: int) -> None:
        """Somebody has used it then."""
        with contextlib.suppress(OSError):
            os.utime(self.folder / name, ns=(used_unix_ns, used_unix_ns))

    def entries(self) -> list[CachedFile]:
        """What is there, the last used first; nothing if the folder cannot be read."""
        found = []
        try:
            with os.scandir(self.folder) as listed:
                for item in listed:
                    if is_name(item.name) and item.is_file(follow_symlinks=False):
                        info = item.stat(follow_symlinks=False)
                        found.append(CachedFile(item.name, info.st_size, info.st_mtime_ns))
        except OSError:
            return []
        return sorted(found, key=lambda kept: (-kept.used_unix_ns, kept.name))

    def bound(self, limit_bytes: int, used_elsewhere: dict[str, int] | None = None) -> int:
        """Remove what was not used for longest, until it fits; gives how many files that were.

        `used_elsewhere`: when another tier saw them used; the later time counts.
        """
        elsewhere = used_elsewhere or {}

        def used(kept: CachedFile) -> int:
            return max(kept.used_unix_ns, elsewhere.get(kept.name, 0))

        total, removed = 0, 0
        for kept in sorted(self.entries(), key=used, reverse=True):
            total += kept.size_bytes
            if total > limit_bytes:
                with contextlib.suppress(OSError):
                    (self.folder / kept.name).unlink()
                    total -= kept.size_bytes
                    removed += 1
        return removed

    def sweep(self, now_unix_s: float) -> None:
        """Remove drafts of writers that were killed."""
        with contextlib.suppress(OSError):
            for draft in self.folder.glob(f".*{TEMPORARY_SUFFIX}"):
                if now_unix_s - draft.lstat().st_mtime > STALE_DRAFT_S:
                    draft.unlink()

    def remove(self, key: str) -> None:
        """An entry turned out to be of no use."""
        with contextlib.suppress(OSError):
            (self.folder / name_of(key)).unlink()

    def say_once(self, words: str) -> None:
        """Each sentence once: a folder that is not ours is met at every program."""
        if words not in self._said:
            self._said.add(words)
            self._tell(words)

    def _decoded(self, name: str, data: bytes) -> CacheEntry | None:
        try:
            entry = decode(data)
            if entry.name != name:
                raise EntryError("it is another program's")
        except EntryError as why:
            path = self.folder / name
            self.say_once(f"the compiled program {path} is damaged ({why}): it is compiled again")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return entry


def distrust(info: os.stat_result) -> str:
    """Why code in a file or folder of these attributes is not ours to run; '' if it is."""
    if stat.S_ISLNK(info.st_mode):
        return "is a link"
    if info.st_uid != os.geteuid():
        return f"belongs to user id {info.st_uid}"
    if info.st_mode & _OTHERS_MAY_WRITE:
        return "may be written by others"
    return ""
