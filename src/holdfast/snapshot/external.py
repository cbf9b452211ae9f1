"""Checkpoints that somebody else writes (a framework), as a set knows them: files and checksums.

A set can stand for one: its own shard holds what the framework does not keep (data positions,
random generators), and its receipts say which files the framework has written. So what is chosen,
verified and gone back to is the framework's checkpoint. Its files are never changed or removed.

The place is told in two halves: the folder that the script has named, and the path below it. Who
restores takes the folder from the script again, never from the store, which may name any place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.core.value import value
from holdfast.errors import ConfigurationError, CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import sync_folder, sync_open
from holdfast.snapshot.receipt import number, objects, text

READ_BYTES = 16 << 20
MAX_FILES = 1_000_000
KEY = "external"
"""Of a manifest's extras."""


@value
class ExternalFile:
    """A file of a checkpoint: its name below the checkpoint's path ("" : that is the file)."""

    name: str
    nbytes: int
    xxh3: str


@value
class External:
    """A framework's checkpoint: `path` below `folder`. `seen`: how many files it has in all.

    `files`: of a receipt, those that this rank has read; of a manifest, all.
    """

    folder: str
    path: str
    seen: int
    files: tuple[ExternalFile, ...]

    @property
    def nbytes(self) -> int:
        """Of the files that are listed."""
        return sum(file.nbytes for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        files = [{"name": one.name, "bytes": one.nbytes, "xxh3": one.xxh3} for one in self.files]
        return {"folder": self.folder, "path": self.path, "seen": self.seen, "files": files}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> External:
        """The inverse; ValueError on what `to_json` cannot have written."""
        files = tuple(
            ExternalFile(text(one, "name"), number(one, "bytes"), text(one, "xxh3"))
            for one in objects(said, "files")
        )
        for name in (text(said, "path"), *(file.name for file in files)):
            if not _is_below(name):
                raise ValueError(f"{name!r:.100} is no path below a folder")
        return cls(text(said, "folder"), text(said, "path"), number(said, "seen"), files)


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def below(folder: Path, path: str | os.PathLike[str]) -> str:
    """A checkpoint's path below the folder; raises ConfigurationError when it is elsewhere."""
    whole, base = Path(path).absolute(), folder.absolute()
    if whole == base or not whole.is_relative_to(base) or ".." in whole.parts:
        raise ConfigurationError(
            f"the checkpoint {whole} is not below {base}, the folder that was named for checkpoints"
        )
    return whole.relative_to(base).as_posix()


def read_external(folder: Path, path: str, rank: int, world_size: int) -> External:
    """What lies there now, the checksums of this rank's share. Raises CorruptCheckpoint.

    All ranks must call it when all of the checkpoint is there: each reads some of its files, and
    brings them to the disk, for frameworks leave that to the kernel.
    """
    place = folder / path
    names = sorted(_names(place))
    if not names:
        raise CorruptCheckpoint(f"{place}: no checkpoint was written there")
    if len(names) > MAX_FILES:
        raise CorruptCheckpoint(f"{place}: {len(names)} files are more than {MAX_FILES}")
    mine = [_read(place, name, is_new=True) for name in names[rank::world_size]]
    if rank == 0:
        _sync_names(folder, place, names)
    return External(str(folder.absolute()), path, len(names), tuple(mine))


def united(parts: Sequence[External]) -> External:
    """One checkpoint, of what its ranks have read; ValueError when they saw different things."""
    first = parts[0]
    for part in parts:
        if (part.folder, part.path, part.seen) != (first.folder, first.path, first.seen):
            raise ValueError(
                "the ranks name different checkpoints of the framework: "
                f"{first.path} with {first.seen} files, {part.path} with {part.seen}"
            )
    files = sorted((file for part in parts for file in part.files), key=lambda one: one.name)
    if len(files) != first.seen or len({file.name for file in files}) != first.seen:
        raise ValueError(f"the ranks have read {len(files)} of {first.seen} files of {first.path}")
    return External(first.folder, first.path, first.seen, tuple(files))


def external_of(extras: Mapping[str, Any]) -> External | None:
    """The framework's checkpoint that a set stands for, by its manifest; None: it is whole itself.

    Raises CorruptCheckpoint.
    """
    said = extras.get(KEY)
    if said is None:
        return None
    try:
        if not isinstance(said, dict):
            raise ValueError(f"it is {said!r:.50}")
        return External.from_json(said)
    except ValueError as error:
        raise CorruptCheckpoint(f"the manifest's word of the framework's files: {error}") from error


def check_sizes(external: External) -> None:
    """CorruptCheckpoint unless each file is there with its size.

    Where the folder itself is not there, this host does not see it: its ranks will tell.
    """
    folder = Path(external.folder)
    if not folder.is_dir():
        return
    place = folder / external.path
    for file in external.files:
        where = place / file.name
        try:
            have_bytes = where.stat().st_size
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{where} of the framework's checkpoint is gone") from error
        except OSError as error:
            raise StoreUnavailable(f"{where} cannot be looked at: {error.strerror}") from error
        if have_bytes != file.nbytes:
            raise CorruptCheckpoint(f"{where} has {have_bytes} bytes, not {file.nbytes}")


def is_removed(external: External) -> bool:
    """Whether nothing of the checkpoint is there any more."""
    return not (Path(external.folder) / external.path).exists()


def verify_external(external: External, folder: Path, rank: int = 0, world_size: int = 1) -> None:
    """Read this rank's share of the files below `folder`; CorruptCheckpoint on the first flaw."""
    place = folder / external.path
    for file in external.files[rank::world_size]:
        if _read(place, file.name) != file:
            where = place / file.name
            raise CorruptCheckpoint(f"{where} is not what the framework wrote: its bytes differ")


def _names(place: Path) -> Iterator[str]:
    if place.is_file():
        yield ""
        return
    for root, _, files in os.walk(place):
        for name in files:
            whole = Path(root, name)
            if whole.is_file():
                yield whole.relative_to(place).as_posix()


def _sync_names(folder: Path, place: Path, names: Sequence[str]) -> None:
    """Make the names themselves durable, from the files up to the folder."""
    folders = {folder}
    for name in names:
        for above in (place / name).parents:
            if above in folders:
                break
            folders.add(above)
    try:
        for one in sorted(folders):
            sync_folder(one)
    except OSError as error:
        raise StoreUnavailable(
            f"{place} cannot be brought to the disk: {error.strerror}"
        ) from error


def _read(place: Path, name: str, *, is_new: bool = False) -> ExternalFile:
    """Its checksum. `is_new`: it was just written, and is brought to the disk, too."""
    import xxhash

    digest, nbytes = xxhash.xxh3_64(), 0
    where = place / name if name else place
    try:
        # Links are the user's to arrange (`journal.regular`); a pipe or a device is nobody's file.
        descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise CorruptCheckpoint(f"{where} is no file")
            buffer = memoryview(bytearray(min(READ_BYTES, max(1, found.st_size))))
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                nbytes += count
            if is_new:
                sync_open(descriptor)
    except FileNotFoundError as error:
        raise CorruptCheckpoint(f"{where} of the framework's checkpoint is gone") from error
    except OSError as error:
        raise CorruptCheckpoint(f"{where} cannot be read: {error.strerror}") from error
    return ExternalFile(name, nbytes, digest.hexdigest())
