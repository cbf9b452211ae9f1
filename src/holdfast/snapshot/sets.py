"""Checkpoint sets in a folder: named, committed, listed, checked, and partial ones collected.

A set is `ckpt/AAAA-SSSSSSSSSSSS` (attempt, step) with a shard and a receipt per rank. It exists
for readers only once its manifest does, and the manifest is written after everything that it
speaks of is on disk. `first-commit.json` beside the sets remembers that there was one, so that
sets that vanish are missed instead of read as "never made".
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import store_errors, sync_folder
from holdfast.journal.regular import is_real_folder
from holdfast.snapshot.manifest import Manifest, compose
from holdfast.snapshot.receipt import MANIFEST, MAX_RANKS, Receipt, receipt_name, shard_name
from holdfast.snapshot.sealed import read_sealed, write_sealed

FIRST_COMMIT = "first-commit.json"
_NAME = re.compile(r"([0-9]{4,9})-([0-9]{12,13})")


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A committed set, as far as its manifest tells."""

    path: Path
    attempt: int
    step: int
    world_size: int
    nbytes: int  # of all shards
    created_unix_ns: int
    tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its folder's name, unique in the run."""
        return self.path.name


def set_name(attempt: int, step: int) -> str:
    """The folder of a set: sorts by attempt, then step."""
    return f"{attempt:04d}-{step:012d}"


def parse_set_name(name: str) -> tuple[int, int] | None:
    """(attempt, step) of a set's folder name; None when it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    attempt, step = int(found.group(1)), int(found.group(2))
    return (attempt, step) if set_name(attempt, step) == name else None


def commit(
    set_dir: Path,
    world_size: int,
    *,
    tags: Sequence[str] = (),
    extras: Mapping[str, Any] | None = None,
) -> SetInfo:
    """Make a set of which all ranks have written their shards visible; on return it is durable.

    Raises:
        CorruptCheckpoint: a receipt or shard is missing or torn, or the ranks disagree.
        StoreUnavailable: the manifest cannot be written; the set stays partial.

    """
    receipts = [_receipt(set_dir, rank) for rank in range(world_size)]
    created = time.time_ns()
    try:
        manifest = compose(receipts, created, dict(extras or {}), tags)
    except ValueError as error:
        raise CorruptCheckpoint(f"{set_dir} cannot be committed: {error}") from error
    for rank, receipt in enumerate(receipts):
        check_size(set_dir, rank, receipt.file_bytes)
    if parse_set_name(set_dir.name) != (manifest.attempt, manifest.step):
        raise CorruptCheckpoint(
            f"{set_dir} holds step {manifest.step} of attempt {manifest.attempt}; "
            "a set may not be moved to another name"
        )
    with store_errors("commit a checkpoint", set_dir):
        sync_folder(set_dir.parent)  # the folder's own name, before the manifest can be seen
    write_sealed(set_dir / MANIFEST, manifest.to_json())
    first = set_dir.parent / FIRST_COMMIT
    if not first.exists():
        write_sealed(first, {"set": set_dir.name})
    return info(set_dir, manifest)


def _receipt(set_dir: Path, rank: int) -> Receipt:
    path = set_dir / receipt_name(rank)
    try:
        return Receipt.from_json(read_sealed(path))
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} is no receipt: {error}") from error


def check_size(set_dir: Path, rank: int, want_bytes: int) -> None:
    """CorruptCheckpoint unless a rank's shard is there, a file, of that size; StoreUnavailable."""
    path = set_dir / shard_name(rank)
    try:
        have_bytes = path.lstat().st_size if path.is_file() and not path.is_symlink() else None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror}") from error
    if have_bytes is None:
        raise CorruptCheckpoint(f"{path} is missing")
    if have_bytes != want_bytes:
        raise CorruptCheckpoint(f"{path} has {have_bytes} bytes, not {want_bytes}")


def info(set_dir: Path, manifest: Manifest) -> SetInfo:
    """A set, as its manifest tells."""
    return SetInfo(
        path=set_dir,
        attempt=manifest.attempt,
        step=manifest.step,
        world_size=manifest.world_size,
        nbytes=sum(shard.file_bytes for shard in manifest.shards),
        created_unix_ns=manifest.created_unix_ns,
        tags=manifest.tags,
    )


def read_manifest(set_dir: Path) -> Manifest:
    """The manifest of a set.

    Raises:
        CorruptCheckpoint: missing, torn, tampered with, or that of another set.
        StoreUnavailable: it may not be read.

    """
    path = set_dir / MANIFEST
    try:
        manifest = Manifest.from_json(read_sealed(path))
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} is no manifest: {error}") from error
    if parse_set_name(set_dir.name) not in (None, (manifest.attempt, manifest.step)):
        raise CorruptCheckpoint(
            f"{path} is that of step {manifest.step} of attempt {manifest.attempt}"
        )
    return manifest


def list_sets(ckpt_dir: Path) -> tuple[tuple[SetInfo, ...], dict[str, str]]:
    """The committed sets, oldest first, and what is wrong with those that are not sound.

    Partial sets are neither. The second value maps a set's name to the reason in words; a choice
    must be told of them (`choose(sets, chain, bad)`), for a set that cannot be read was still made.

    Raises:
        StoreUnavailable: the folder is there and cannot be listed.

    """
    found: list[SetInfo] = []
    damage: dict[str, str] = {}
    for folder in _folders(ckpt_dir):
        if not _has_manifest(folder):
            continue
        try:
            manifest = read_manifest(folder)
            for rank, shard in enumerate(manifest.shards):
                check_size(folder, rank, shard.file_bytes)
        except CorruptCheckpoint as error:
            damage[folder.name] = str(error)
            continue
        found.append(info(folder, manifest))
    if not found and not damage:
        damage = _vanished(ckpt_dir)
    return tuple(sorted(found, key=lambda one: (one.attempt, one.step))), damage


def _folders(ckpt_dir: Path) -> Iterator[Path]:
    """Folders that are named like sets, sorted."""
    with store_errors("list the checkpoints", ckpt_dir):
        if not ckpt_dir.exists():
            return
        folders = [path for path in ckpt_dir.iterdir() if parse_set_name(path.name) is not None]
    yield from sorted(path for path in folders if is_real_folder(path))


def _has_manifest(folder: Path) -> bool:
    """Whether anything has the manifest's name: be it a dead link, the set was once complete."""
    return os.path.lexists(folder / MANIFEST)


def _vanished(ckpt_dir: Path) -> dict[str, str]:
    path = ckpt_dir / FIRST_COMMIT
    if not path.exists():
        return {}
    reason = f"{path} says that checkpoints were made here, and none is left"
    try:
        name = read_sealed(path).get("set")
    except CorruptCheckpoint:
        name = None
    return {name if isinstance(name, str) and parse_set_name(name) else set_name(0, 0): reason}


def quick_check(set_dir: Path) -> tuple[bool, str]:
    """Whether the manifest is sound and every shard there with its exact size; and the reason."""
    try:
        manifest = read_manifest(set_dir)
        for rank, shard in enumerate(manifest.shards):
            check_size(set_dir, rank, shard.file_bytes)
    except (CorruptCheckpoint, StoreUnavailable) as error:
        return False, str(error)
    return True, f"{len(manifest.shards)} shards of the right size; contents not read"


def partial_sets(ckpt_dir: Path) -> tuple[str, ...]:
    """The names of sets without a manifest: being written, or given up."""
    return tuple(one.name for one in _folders(ckpt_dir) if not _has_manifest(one))


def finish_commits(ckpt_dir: Path) -> tuple[SetInfo, ...]:
    """Commit the partial sets of which every rank's receipt is there: only the manifest is missing.

    For a controller that starts: its predecessor died between the last acknowledgement and the
    manifest, and the set is whole. Sets that cannot be committed are left alone.
    """
    done = []
    for name in partial_sets(ckpt_dir):
        set_dir = ckpt_dir / name
        try:
            world_size = _receipt(set_dir, 0).world_size
            if 1 <= world_size <= MAX_RANKS:
                done.append(commit(set_dir, world_size))
        except CorruptCheckpoint:
            continue
    return tuple(done)


def collect_partial(ckpt_dir: Path, in_use: Collection[str] = ()) -> tuple[str, ...]:
    """Delete sets that were never committed, except those `in_use`; returns their names."""
    gone = []
    for name in partial_sets(ckpt_dir):
        if name not in in_use:
            delete_set(ckpt_dir / name)
            gone.append(name)
    return tuple(gone)


def delete_set(set_dir: Path) -> None:
    """Remove a set: first the manifest, durably, so that it is never half visible.

    Raises:
        StoreUnavailable: it cannot be removed; it may be partial now, but never half a set.

    """
    with store_errors("delete a checkpoint", set_dir):
        (set_dir / MANIFEST).unlink(missing_ok=True)
        if set_dir.exists():
            sync_folder(set_dir)
            try:
                shutil.rmtree(set_dir)
            except RecursionError:  # folders in folders, a thousand deep: none of ours
                raise OSError(errno.ENAMETOOLONG, "nested too deep", str(set_dir)) from None
            sync_folder(set_dir.parent)
