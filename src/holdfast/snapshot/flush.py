"""A sealed buffer of the memory tier, written to its place in the run store.

What all ranks hold alike is written once, in the file of one of them (`once`). All bytes and their
checksums are the very ones that were sealed; only a file's header says anew what is in it. What is
in memory is compared with its checksums on the way, so that a set that went bad there does not
take a good one's place. Done by a process of its own (`agent.flusher`); the manifest is written by
the controller of the run, when it knows that every shard is there (`sets.commit`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.save.tier_events import AlikeDigests
from holdfast.errors import CorruptCheckpoint
from holdfast.journal.flow import Flow
from holdfast.journal.regular import open_regular
from holdfast.snapshot.layout import decode_facts, encode_header
from holdfast.snapshot.manifest import Manifest
from holdfast.snapshot.once import WrittenTensor, written_once
from holdfast.snapshot.receipt import CHUNK_BYTES, Receipt, Tensor, receipt_name, shard_name
from holdfast.snapshot.sealed import checksum, read_sealed
from holdfast.snapshot.sets import SetInfo, info, read_manifest
from holdfast.snapshot.vault import Vault, open_vault


def flush_set(
    buffer: Path,
    set_dir: Path,
    *,
    attempt: int,
    step: int,
    alike: AlikeDigests = (),
    flow: Flow | None = None,
) -> SetInfo:
    """Write the shard and the receipt of every rank that is here; on return they are durable.

    `alike`: with several hosts, what all of them have said to hold alike. A shard that an earlier
    try has finished is not written again. The result has the bytes on disk. Raises:

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
    nbytes = 0
    for shard in list(_shards(buffer, manifest, alike)):  # first: that each of them can be read
        nbytes += shard.receipt.file_bytes
        if not _is_there(vault, set_dir.name, shard.receipt):
            _put(vault, set_dir.name, shard, flow)
    return replace(info(set_dir, manifest), nbytes=nbytes)


@dataclass(frozen=True, slots=True)
class _Shard:
    """A rank's file on its way: what it will be on disk, and where its bytes are in memory."""

    receipt: Receipt
    header: bytes
    written: Sequence[WrittenTensor]
    data: Mapping[int, memoryview]  # of the buffer's files, by rank, without their headers
    buffer: Path

    def views(self) -> list[memoryview]:
        """The file's bytes, in as few pieces as they lie in."""
        spans: list[tuple[int, int, int]] = []
        for tensor, rank, source in self.written:
            is_next = bool(spans) and (spans[-1][0], spans[-1][2]) == (rank, source)
            begin = spans.pop()[1] if is_next else source
            spans.append((rank, begin, source + tensor.nbytes))
        data = (self.data[rank][begin:end] for rank, begin, end in spans)
        return [memoryview(self.header), *data]

    def verify(self, flow: Flow | None) -> None:
        """CorruptCheckpoint unless what is to be written has the checksums of the seal."""
        for tensor, rank, source in self.written:
            for number, expected in enumerate(tensor.xxh3):
                start = source + number * CHUNK_BYTES
                stop = min(start + CHUNK_BYTES, source + tensor.nbytes)
                if checksum(self.data[rank][start:stop]) != expected:
                    raise _spoilt(self.buffer / shard_name(rank), tensor.path)
                if flow is not None:
                    flow.rest()


def _shards(buffer: Path, manifest: Manifest, alike: AlikeDigests) -> Iterator[_Shard]:
    """What goes to disk of each rank's shard that is here."""
    try:
        receipts = [
            Receipt.from_json(read_sealed(buffer / receipt_name(rank))) for rank in manifest.ranks
        ]
        among_hosts = None if manifest.here is None else alike
        plan = written_once(receipts, among_hosts, manifest.world_size)
    except ValueError as error:
        raise CorruptCheckpoint(f"{buffer}: {error}") from error
    files = {one.rank: _mapped(buffer / shard_name(one.rank), one) for one in receipts}
    data = {one.rank: files[one.rank][one.data_begin :] for one in receipts}
    for receipt, written in zip(receipts, plan.files, strict=True):
        header = bytes(files[receipt.rank][: receipt.data_begin])
        if checksum(header) != receipt.header_xxh3:
            raise _spoilt(buffer / shard_name(receipt.rank), "header")
        tensors = tuple(one.tensor for one in written)
        if plan.mark:
            header = _header(header, tensors)
        now = replace(
            receipt,
            file_bytes=len(header) + sum(tensor.nbytes for tensor in tensors),
            data_begin=len(header),
            header_xxh3=checksum(header),
            tensors=tensors,
            once=plan.mark,
        )
        yield _Shard(now, header, written, data, buffer)


def _header(sealed: bytes, tensors: Sequence[Tensor]) -> bytes:
    """The header with these tensors in place of all. A whole array has the name of its path."""
    named = [
        replace(tensor, index=None) if tensor.shape == tensor.global_shape else tensor
        for tensor in tensors
    ]
    return encode_header(named, decode_facts(sealed))


def _put(vault: Vault, name: str, shard: _Shard, flow: Flow | None) -> None:
    """Write a shard while it is being verified; without both there is no receipt."""
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-verify") as beside:
        verified = beside.submit(shard.verify, flow.beside() if flow else None)
        vault.put_data(name, shard.receipt.rank, shard.views(), flow)
        try:
            verified.result()
        except CorruptCheckpoint:
            vault.delete(name)  # nothing will ever come of it
            raise
    vault.put_receipt(name, shard.receipt)


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


def _spoilt(path: Path, what: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"{path}: {what} is not what was sealed; something overwrote the memory of this host"
    )
