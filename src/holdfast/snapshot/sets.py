"""Checkpoint sets: named, committed, listed, checked, and partial ones collected.

A set is `ckpt/AAAA-SSSSSSSSSSSS` (attempt, step) with a shard and a receipt per rank. It exists
for readers only once its manifest does, and the manifest is written after everything that it
speaks of is on disk. `first-commit.json` beside the sets remembers that there was one, so that
sets that vanish are missed instead of read as "never made".

Sets are named by paths. Where their bytes are (that folder, or an object store) the vault of the
folder above knows; nothing here depends on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.core.save.choose import Chain, on_chain
from holdfast.core.value import value
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.attempts import AttemptRecord
from holdfast.snapshot.external import check_sizes, external_of
from holdfast.snapshot.manifest import Manifest, ManifestHead, compose
from holdfast.snapshot.names import FIRST_COMMIT, parse_set_name, set_name
from holdfast.snapshot.receipt import MANIFEST, MAX_RANKS, Receipt, receipt_name, shard_name
from holdfast.snapshot.removal import is_doomed
from holdfast.snapshot.vault import Files, Vault, open_vault

__all__ = [
    "Finished",
    "SetInfo",
    "check_size",
    "commit",
    "finish_commits",
    "info",
    "list_sets",
    "newest_sound",
    "parse_set_name",
    "read_head",
    "read_manifest",
    "set_name",
    "sound_set",
    "vanished",
]

Head = TypeVar("Head", bound=ManifestHead)


@value
class SetInfo:
    """A committed set, as far as its manifest tells."""

    path: Path
    attempt: int
    step: int
    world_size: int
    nbytes: int  # of all shards
    created_unix_ns: int
    tags: tuple[str, ...]
    here: tuple[int, ...] | None = None  # these ranks' shards alone; None: all
    external: str = ""  # where the framework's checkpoint is that it stands for, if it does
    external_folder: str = ""  # of all of the framework's
    external_bytes: int = 0
    doomed_by: int | None = None  # the newest lease whose holder is removing it

    @property
    def name(self) -> str:
        """Unique in the run: its folder's name, or what that would be, of one in memory."""
        return set_name(self.attempt, self.step)

    @property
    def ranks(self) -> Sequence[int]:
        """Those whose shards are here."""
        return range(self.world_size) if self.here is None else self.here


def commit(
    set_dir: Path,
    world_size: int,
    *,
    tags: Sequence[str] = (),
    extras: Mapping[str, Any] | None = None,
    receipts: Sequence[Receipt] | None = None,
) -> SetInfo:
    """Make a set of which all ranks have written their shards visible; on return it is durable.

    `receipts`: those of `read_receipts`, where they have been read.

    Raises:
        CorruptCheckpoint: a receipt or shard is missing or torn, or the ranks disagree.
        StoreUnavailable: the manifest cannot be written; the set stays partial.

    """
    vault, name = open_vault(set_dir.parent), set_dir.name
    receipts = receipts or read_receipts(set_dir, world_size)
    created = time.time_ns()
    try:
        manifest = compose(receipts, created, dict(extras or {}), tags)
    except ValueError as error:
        raise CorruptCheckpoint(f"{vault.where(name)} cannot be committed: {error}") from error
    files = vault.files(name)
    for rank, receipt in enumerate(receipts):
        _check_size(vault, files, name, rank, receipt.file_bytes)
    if parse_set_name(name) != (manifest.attempt, manifest.step):
        raise CorruptCheckpoint(
            f"{vault.where(name)} holds step {manifest.step} of attempt {manifest.attempt}; "
            "a set may not be moved to another name"
        )
    value = manifest.to_json()
    try:
        vault.put_manifest(name, value)
    except StoreUnavailable:
        if not vault.files(name).has(MANIFEST):
            raise
        # Readers see it, and so no rank can write its shard again; perhaps it is not on disk yet.
        vault.put_manifest(name, value)
    # The set is durable: what fails from here on must not be told as if it were not. The next
    # commit writes this again.
    with contextlib.suppress(StoreUnavailable):
        if not vault.files("").has(FIRST_COMMIT):
            vault.write("", FIRST_COMMIT, {"set": name})
    return info(set_dir, manifest)


def read_receipts(set_dir: Path, world_size: int) -> list[Receipt]:
    """What each rank has written of a set; raises as `commit`."""
    vault, name = open_vault(set_dir.parent), set_dir.name
    return [_receipt(vault, name, rank) for rank in range(world_size)]


def _receipt(vault: Vault, name: str, rank: int) -> Receipt:
    try:
        return Receipt.from_json(vault.read(name, receipt_name(rank)))
    except ValueError as error:
        where = vault.where(name, receipt_name(rank))
        raise CorruptCheckpoint(f"{where} is no receipt: {error}") from error


def check_size(set_dir: Path, rank: int, want_bytes: int) -> None:
    """CorruptCheckpoint unless a rank's shard is there, a file, of that size; StoreUnavailable."""
    vault, name = open_vault(set_dir.parent), set_dir.name
    _check_size(vault, vault.files(name), name, rank, want_bytes)


def _check_size(vault: Vault, files: Files, name: str, rank: int, want_bytes: int) -> None:
    have_bytes = files.size(shard_name(rank))
    if have_bytes == want_bytes:
        return
    where = vault.where(name, shard_name(rank))
    if have_bytes is None:
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
        raise CorruptCheckpoint(f"{where} is missing") from missing
    raise CorruptCheckpoint(f"{where} has {have_bytes} bytes, not {want_bytes}")


def info(set_dir: Path, manifest: ManifestHead) -> SetInfo:
    """A set, as its manifest tells; raises CorruptCheckpoint."""
    external = external_of(manifest.extras)
    return SetInfo(
        path=set_dir,
        attempt=manifest.attempt,
        step=manifest.step,
        world_size=manifest.world_size,
        nbytes=sum(manifest.shards[rank].file_bytes for rank in manifest.ranks),
        created_unix_ns=manifest.created_unix_ns,
        tags=manifest.tags,
        here=manifest.here,
        external="" if external is None else f"{external.folder}/{external.path}",
        external_folder="" if external is None else external.folder,
        external_bytes=0 if external is None else external.nbytes,
    )


def read_manifest(set_dir: Path) -> Manifest:
    """The manifest of a set.

    Raises:
        CorruptCheckpoint: missing, torn, tampered with, or that of another set.
        StoreUnavailable: it may not be read.

    """
    return _read(open_vault(set_dir.parent), set_dir.name, Manifest.from_json)


def read_head(set_dir: Path) -> ManifestHead:
    """The same without a look at its arrays, which whoever restores it takes; raises likewise."""
    return _read(open_vault(set_dir.parent), set_dir.name, ManifestHead.from_json)


def _read(vault: Vault, name: str, read: Callable[[dict[str, Any]], Head]) -> Head:
    try:
        manifest = read(vault.read(name, MANIFEST))
    except ValueError as error:
        raise CorruptCheckpoint(f"{vault.where(name, MANIFEST)} is no manifest: {error}") from error
    if parse_set_name(name) not in (None, (manifest.attempt, manifest.step)):
        raise CorruptCheckpoint(
            f"{vault.where(name, MANIFEST)} is that of step {manifest.step} "
            f"of attempt {manifest.attempt}"
        )
    return manifest


def _sound_head(vault: Vault, files: Files, name: str) -> ManifestHead:
    """That of a set of which every shard has its size; raises as `read_manifest`."""
    manifest = _read(vault, name, ManifestHead.from_json)
    for rank, shard in enumerate(manifest.shards):
        _check_size(vault, files, name, rank, shard.file_bytes)
    if (external := external_of(manifest.extras)) is not None:
        check_sizes(external)
    return manifest


def list_sets(ckpt_dir: Path) -> tuple[tuple[SetInfo, ...], dict[str, str]]:
    """The committed sets, oldest first, and what is wrong with those that are not sound.

    Partial sets are neither. The second value maps a set's name to the reason in words; a choice
    must be told of them (`choose(sets, chain, bad)`), for a set that cannot be read was still made.

    Raises:
        StoreUnavailable: the folder is there and cannot be listed.

    """
    vault = open_vault(ckpt_dir)
    found: list[SetInfo] = []
    damage: dict[str, str] = {}
    for name, files in vault.look().items():
        if not files.has(MANIFEST):
            continue
        try:
            found.append(sound_set(vault, files, name, ckpt_dir))
        except CorruptCheckpoint as error:
            damage[name] = str(error)
    if not found and not damage:
        damage = vanished(vault)
    return tuple(sorted(found, key=lambda one: (one.attempt, one.step))), damage


def sound_set(vault: Vault, files: Files, name: str, ckpt_dir: Path) -> SetInfo:
    """A set of which every shard has its size; raises as `read_manifest`."""
    found = info(ckpt_dir / name, _sound_head(vault, files, name))
    epoch = files.doomed_by()
    return found if epoch is None else replace(found, doomed_by=epoch)


def newest_sound(ckpt_dir: Path, chain: Chain) -> tuple[SetInfo | None, dict[str, str]]:
    """The set that a restart would use now, and what is wrong with those it would pass over.

    Only these are read: of a long run's sets the first one nearly always. Raises StoreUnavailable.
    """
    vault = open_vault(ckpt_dir)
    sets = vault.look()
    generation = {attempt: place for place, (attempt, _) in enumerate(chain)}
    known = [(name, place) for name in sets if (place := parse_set_name(name)) is not None]
    mine = [(name, place) for name, place in known if on_chain(chain, *place)]
    damage: dict[str, str] = {}
    for name, _ in sorted(mine, key=lambda one: (generation[one[1][0]], -one[1][1])):
        if sets[name].has(MANIFEST):
            try:
                return sound_set(vault, sets[name], name, ckpt_dir), damage
            except CorruptCheckpoint as error:
                damage[name] = str(error)
    is_empty = not any(files.has(MANIFEST) for files in sets.values())
    return None, vanished(vault) if is_empty else damage


def vanished(vault: Vault) -> dict[str, str]:
    """Of a folder without any set: the one that was made here once, and that it is gone."""
    if not vault.files("").has(FIRST_COMMIT):
        return {}
    where = vault.where("", FIRST_COMMIT)
    reason = f"{where} says that checkpoints were made here, and none is left"
    try:
        name = vault.read("", FIRST_COMMIT).get("set")
    except CorruptCheckpoint:
        name = None
    return {name if isinstance(name, str) and parse_set_name(name) else set_name(0, 0): reason}


class Finished(NamedTuple):
    """What became of the sets without a manifest, and what is left of an earlier supervisor."""

    done: tuple[SetInfo, ...]  # every shard is durable: complete now
    lacking: tuple[str, ...]  # they lack a shard or are being removed: they never will be whole
    trouble: StoreUnavailable | None  # why one of which every shard is durable is not complete
    doomed: tuple[str, ...]  # complete sets that are being removed


def finish_commits(
    ckpt_dir: Path,
    in_use: Collection[str] = (),
    *,
    older_than: tuple[int, int] | None = None,
    records: Callable[[], Sequence[AttemptRecord]] = tuple,
) -> Finished:
    """Complete the sets of which every rank's receipt is there: only the manifest is missing.

    For a controller that starts: its predecessor died between the last acknowledgement and the
    manifest. Left alone are those `in_use`, and those that are not before that (attempt, step).
    `records`: of the run's attempts, by which marks are judged.
    """
    done, lacking, doomed, trouble = [], [], [], None
    vault = open_vault(ckpt_dir)
    for name, files in vault.look().items():
        epoch = files.doomed_by()
        is_marked = epoch is not None and is_doomed(name, epoch, records())
        is_old = older_than is None or (parse_set_name(name) or older_than) < older_than
        if files.has(MANIFEST):
            doomed += [name] if is_marked else []
            continue
        if name in in_use or not is_old:
            continue
        try:
            if is_marked:
                raise CorruptCheckpoint(f"{vault.where(name)} is being removed")
            done.append(commit(ckpt_dir / name, _world_size(vault, name)))
        except CorruptCheckpoint:
            if not vault.files(name).has(MANIFEST):  # else its writer was faster than we
                lacking.append(name)
        except StoreUnavailable as error:
            trouble = trouble or error
    return Finished(tuple(done), tuple(lacking), trouble, tuple(doomed))


def _world_size(vault: Vault, name: str) -> int:
    """How many ranks write a set without a manifest; CorruptCheckpoint where rank 0's is none."""
    world_size = _receipt(vault, name, 0).world_size
    if not 1 <= world_size <= MAX_RANKS:
        raise CorruptCheckpoint(f"{vault.where(name)} cannot be of {world_size} ranks")
    return world_size
