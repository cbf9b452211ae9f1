"""A sealed buffer of the memory tier, written to its place in the run store.

The bytes and the receipts are the very ones that the seal made: nothing is encoded anew. What is in
memory is compared with its checksums on the way, so that a set that went bad there does not take a
good one's place. Done by a process of its own (`agent.flusher`); the manifest is written by the
controller of the run, when it knows that every shard is there (`sets.commit`).
"""

from __future__ import annotations

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.errors import CorruptCheckpoint
from holdfast.journal.flow import Flow
from holdfast.journal.regular import open_regular
from holdfast.snapshot.receipt import CHUNK_BYTES, Receipt, receipt_name, shard_name
from holdfast.snapshot.sealed import checksum, read_sealed
from holdfast.snapshot.sets import SetInfo, info, read_manifest
from holdfast.snapshot.vault import Vault, open_vault


def flush_set(
    buffer: Path,
    set_dir: Path,
    *,
    attempt: int,
    step: int,
    flow: Flow | None = None,
) -> SetInfo:
    """Write every rank's shard and receipt that is here; on return all of them are durable.

    A shard that an earlier try has finished is not written again. Raises:

    StoreUnavailable: the store is full, away or failing (nothing partial is visible), the set is
        committed already, or `flow` was stopped.
    CorruptCheckpoint: what is in memory is not what was sealed, or another set.
    """
    manifest = read_manifest(buffer)
    if (manifest.attempt, manifest.step) != (attempt, step):
        raise CorruptCheckpoint(
            f"{buffer} holds step {manifest.step} of attempt {manifest.attempt}, "
            f"not step {step} of attempt {attempt}"
        )
    vault = open_vault(set_dir.parent)
    for rank in manifest.ranks:
        try:
            receipt = Receipt.from_json(read_sealed(buffer / receipt_name(rank)))
        except ValueError as error:
            raise CorruptCheckpoint(f"{buffer / receipt_name(rank)}: {error}") from error
        if not _is_there(vault, set_dir.name, receipt):
            _put(vault, set_dir.name, receipt, buffer, flow)
    return info(set_dir, manifest)


def _put(vault: Vault, name: str, receipt: Receipt, buffer: Path, flow: Flow | None) -> None:
    """Write a shard while it is being verified; without both there is no receipt."""
    data = _mapped(buffer / shard_name(receipt.rank), receipt)
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-verify") as beside:
        verified = beside.submit(verify, data, receipt, buffer, flow.beside() if flow else None)
        vault.put_data(name, receipt.rank, [data], flow)
        try:
            verified.result()
        except CorruptCheckpoint:
            vault.delete(name)  # nothing will ever come of it
            raise
    vault.put_receipt(name, receipt)


def _is_there(vault: Vault, name: str, receipt: Receipt) -> bool:
    """Whether this very shard is durable: a receipt only ever follows its data."""
    try:
        known = Receipt.from_json(vault.read(name, receipt_name(receipt.rank)))
    except (CorruptCheckpoint, ValueError):
        return False
    size = vault.files(name).size(shard_name(receipt.rank))
    return known == receipt and size == receipt.file_bytes


def _mapped(path: Path, receipt: Receipt) -> memoryview:
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


def verify(data: memoryview, receipt: Receipt, place: Path, flow: Flow | None = None) -> None:
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
            if flow is not None:
                flow.rest()


def _words(place: Path, receipt: Receipt, what: str) -> str:
    return (
        f"{place / shard_name(receipt.rank)}: {what} is not what was sealed; "
        "something overwrote the memory of this host"
    )
