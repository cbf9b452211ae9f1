"""A sealed buffer of the memory tier, written to its place in the run store.

The bytes and the receipts are the very ones that the seal made: nothing is encoded anew. What is in
memory is compared with its checksums on the way, so that a set that went bad there does not take a
good one's place on disk. Done by a process of its own (`agent.drainer`); the manifest is written by
the run's controller, when it knows that every shard is there (`sets.commit`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import make_part, store_errors
from holdfast.journal.regular import open_regular
from holdfast.snapshot.receipt import CHUNK_BYTES, MANIFEST, Receipt, receipt_name, shard_name
from holdfast.snapshot.sealed import checksum, read_sealed, write_sealed
from holdfast.snapshot.sets import read_manifest
from holdfast.snapshot.shard import _write


def drain_set(
    buffer: Path,
    set_dir: Path,
    *,
    attempt: int,
    step: int,
    durable: Callable[[int], None] = lambda _rank: None,
) -> int:
    """Write every rank's shard and receipt; `durable` hears of each. Returns the bytes of all.

    A shard that an earlier try has finished is not written again. Raises:

    StoreUnavailable: the store is full, away or failing (no partial file is left), or the set is
        committed already.
    CorruptCheckpoint: what is in memory is not what was sealed, or another set.
    """
    manifest = read_manifest(buffer)
    if (manifest.attempt, manifest.step) != (attempt, step):
        raise CorruptCheckpoint(
            f"{buffer} holds step {manifest.step} of attempt {manifest.attempt}, "
            f"not step {step} of attempt {attempt}"
        )
    make_part(set_dir)
    total_bytes = 0
    for rank in range(manifest.world_size):
        try:
            receipt = Receipt.from_json(read_sealed(buffer / receipt_name(rank)))
        except ValueError as error:
            raise CorruptCheckpoint(f"{buffer / receipt_name(rank)}: {error}") from error
        if not _is_there(set_dir, receipt):
            _drain_shard(buffer, set_dir, receipt)
        durable(rank)
        total_bytes += receipt.file_bytes
    return total_bytes


def _is_there(set_dir: Path, receipt: Receipt) -> bool:
    """Whether this very shard is durable: a receipt only ever follows its data."""
    path = set_dir / shard_name(receipt.rank)
    try:
        known = Receipt.from_json(read_sealed(set_dir / receipt_name(receipt.rank)))
        return known == receipt and path.lstat().st_size == receipt.file_bytes
    except (CorruptCheckpoint, ValueError, OSError):
        return False


def _drain_shard(buffer: Path, set_dir: Path, receipt: Receipt) -> None:
    path = set_dir / shard_name(receipt.rank)
    receipt_path = set_dir / receipt_name(receipt.rank)
    data = _shard(buffer / shard_name(receipt.rank), receipt)
    verify(data, receipt, buffer)
    with store_errors(f"save step {receipt.step}", path):
        if (set_dir / MANIFEST).exists():
            raise StoreUnavailable(
                f"saving step {receipt.step} failed: {set_dir} is a committed checkpoint already; "
                "every attempt saves a step once"
            )
        receipt_path.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        _write(path, b"", data)
    try:
        write_sealed(receipt_path, receipt.to_json())
    except StoreUnavailable:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # a shard without a receipt is of no use: free its space
        raise


def _shard(path: Path, receipt: Receipt) -> memoryview:
    """A rank's file in memory, mapped for as long as somebody has a view of it."""
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise CorruptCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        size = os.fstat(descriptor).st_size
        if size != receipt.file_bytes:
            raise CorruptCheckpoint(f"{path} has {size} bytes, not {receipt.file_bytes}")
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)


def verify(data: memoryview, receipt: Receipt, place: Path) -> None:
    """CorruptCheckpoint unless a shard's bytes have the checksums of its receipt."""
    begin = receipt.data_begin
    if checksum(data[:begin]) != receipt.header_xxh3:
        raise CorruptCheckpoint(_words(place, receipt, "header"))
    for tensor in receipt.tensors:
        for number, expected in enumerate(tensor.xxh3):
            start = begin + tensor.begin + number * CHUNK_BYTES
            stop = min(start + CHUNK_BYTES, begin + tensor.end)
            if checksum(data[start:stop]) != expected:
                raise CorruptCheckpoint(_words(place, receipt, tensor.name))


def _words(place: Path, receipt: Receipt, what: str) -> str:
    return (
        f"{place / shard_name(receipt.rank)}: {what} is not what was sealed; "
        "something overwrote the memory of this host"
    )
