"""Sealing a buffer of the memory tier: somebody else than the trainer puts the checksums to it.

A rank copies its shard into a buffer and says so; that costs the training nothing but the copy.
Then this, in another process: each rank's file is read once and hashed, its receipt is made of the
file's own header, and last comes the manifest. From there on the buffer is a checkpoint set like
any other, and the same reader verifies and restores it. A buffer whose writer died in the middle
has no header, and is not sealed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from holdfast.core.save.tier_events import AlikeDigests
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.regular import open_regular
from holdfast.snapshot.layout import MAX_HEADER_BYTES, decode_header
from holdfast.snapshot.manifest import compose_part
from holdfast.snapshot.once import digests
from holdfast.snapshot.processor import ProcessorUse
from holdfast.snapshot.receipt import (
    CHUNK_BYTES,
    MANIFEST,
    Receipt,
    Shard,
    Tensor,
    check_format,
    number,
    receipt_name,
    shard_name,
    texts,
)
from holdfast.snapshot.sealed import checksum, write_sealed
from holdfast.snapshot.sets import SetInfo, check_size, info
from holdfast.snapshot.shard import structure_checksums
from holdfast.snapshot.split import RankComparison, check_parts, compare

READ_BYTES = 1 << 20  # stays in a core's cache between the read and the hash
# A core takes two seconds or three for 8 GB, and the next snapshot waits for it. Where there are
# few cores, the ranks keep them busy.
MOST_THREADS = 16
PARALLEL_FROM_BYTES = 256 << 20
_LENGTH_BYTES = 8  # of the header, in front of it; 0 while a rank writes


def seal_buffer(
    buffer_dir: Path,
    world_size: int,
    *,
    attempt: int,
    step: int,
    ranks: Sequence[int] | None = None,
) -> SetInfo:
    """As `seal_part`; what its ranks hold alike is not asked for."""
    return seal_part(buffer_dir, world_size, attempt=attempt, step=step, ranks=ranks).info


class SealedPart(NamedTuple):
    """A sealed buffer, and what its ranks hold alike: for other hosts, or on one host compared.

    `taken_ns`: of processors' time, from whoever trains beside it.
    """

    info: SetInfo
    alike: AlikeDigests
    comparison: RankComparison
    taken_ns: int = 0


def seal_part(
    buffer_dir: Path,
    world_size: int,
    *,
    attempt: int,
    step: int,
    ranks: Sequence[int] | None = None,
) -> SealedPart:
    """Hash every rank's shard, write the receipts, then the manifest; on return it restores.

    `ranks`: those of this host; None: all are here.

    For a buffer that all ranks have said they copied (attempt, step) into, and into which none
    writes now. Calling it again, also after it was killed in the middle, gives the same.

    Raises:
        CorruptCheckpoint: a shard is missing, half written, or that of another step; the buffer
            stays unsealed.
        StoreUnavailable: the memory folder is full or may not be read.

    """
    (buffer_dir / MANIFEST).unlink(missing_ok=True)
    ranks = range(world_size) if ranks is None else ranks
    receipts, facts, began = [], [], ProcessorUse.of_this_thread()
    helped: list[ProcessorUse] = []
    for rank in ranks:
        receipt, said = _hashed(buffer_dir, rank, helped)
        found = (receipt.attempt, receipt.step, receipt.rank, receipt.world_size)
        if found != (attempt, step, rank, world_size):
            raise CorruptCheckpoint(
                f"{buffer_dir / shard_name(rank)} holds step {receipt.step} of attempt "
                f"{receipt.attempt} by rank {receipt.rank} of {receipt.world_size}, not step "
                f"{step} of attempt {attempt} by rank {rank} of {world_size}"
            )
        write_sealed(buffer_dir / receipt_name(rank), receipt.to_json())
        receipts.append(receipt)
        facts.append(said)
    try:
        manifest = compose_part(receipts, ranks, time.time_ns(), {})
        check_parts(manifest, facts)
    except ValueError as error:
        raise CorruptCheckpoint(f"{buffer_dir} cannot be sealed: {error}") from error
    for receipt in receipts:
        check_size(buffer_dir, receipt.rank, receipt.file_bytes)
    write_sealed(buffer_dir / MANIFEST, manifest.to_json())
    done = info(buffer_dir, manifest)
    alike: AlikeDigests = ()
    comparison = RankComparison()
    if manifest.here is None:
        comparison = compare(receipts, facts)
    else:
        alike = digests(receipts)
    use = sum(helped, ProcessorUse.of_this_thread().since(began))
    return SealedPart(done, alike, comparison, use.taken_ns)


def hash_shard(buffer_dir: Path, rank: int) -> Receipt:
    """One rank's receipt, made of its file alone; nothing is written. Raises as `seal_buffer`."""
    return _hashed(buffer_dir, rank, [])[0]


def _hashed(
    buffer_dir: Path, rank: int, helped: list[ProcessorUse]
) -> tuple[Receipt, dict[str, Any]]:
    """The receipt, and what the file's header says of itself; `helped`: other threads, added."""
    path = buffer_dir / shard_name(rank)
    try:
        descriptor = open_regular(path)
    except FileNotFoundError as error:
        raise CorruptCheckpoint(f"{path} is missing") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        header = _header(descriptor, path)
        try:
            facts, entries = decode_header(header)
            check_format(facts)
            shard = Shard(os.fstat(descriptor).st_size, len(header), checksum(header))
            entries = _checked(shard, entries, has_rest=facts.get("in_parts") is True)
            tensors = _with_checksums(descriptor, path, len(header), entries, helped)
            receipt = _receipt(facts, shard, tensors)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"{path} is no shard: {error}") from error
        if _header(descriptor, path) != header:
            raise CorruptCheckpoint(f"{path} was overwritten while it was being sealed")
        return receipt, facts
    finally:
        os.close(descriptor)


def _receipt(facts: dict[str, Any], shard: Shard, tensors: tuple[Tensor, ...]) -> Receipt:
    return Receipt(
        attempt=number(facts, "attempt"),
        step=number(facts, "step"),
        rank=number(facts, "rank"),
        world_size=number(facts, "world_size"),
        file_bytes=shard.file_bytes,
        data_begin=shard.data_begin,
        header_xxh3=shard.header_xxh3,
        structures=structure_checksums(facts["structure"], texts(facts, "shared")),
        tags=texts(facts, "tags"),
        tensors=tensors,
    )


def _header(descriptor: int, path: Path) -> bytes:
    length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, 0), "little")
    if not 0 < length <= MAX_HEADER_BYTES:
        raise CorruptCheckpoint(f"{path} is half written: its writer was interrupted")
    header = os.pread(descriptor, _LENGTH_BYTES + length, 0)
    if len(header) != _LENGTH_BYTES + length:
        raise CorruptCheckpoint(f"{path} ends inside its header")
    return header


def _checked(shard: Shard, entries: tuple[Tensor, ...], *, has_rest: bool) -> tuple[Tensor, ...]:
    """The entries, if they fill the file from the header to its end; ValueError otherwise.

    `has_rest`: what lies behind them, if anything, is left of an earlier set.
    """
    end = 0
    for entry in sorted(entries, key=lambda one: (one.begin, one.end)):
        if entry.begin != end or entry.end < end:
            raise ValueError(f"{entry.name} does not begin where the tensor before it ends")
        end = entry.end
    data_bytes = shard.file_bytes - shard.data_begin
    if end > data_bytes or (end < data_bytes and not has_rest):
        raise ValueError(f"it has {shard.file_bytes} bytes, not {shard.data_begin + end}")
    return entries


def _with_checksums(
    descriptor: int,
    path: Path,
    data_begin: int,
    entries: tuple[Tensor, ...],
    helped: list[ProcessorUse],
) -> tuple[Tensor, ...]:
    """The entries with the checksums of their chunks, which threads share where there are many."""
    chunks = [
        (data_begin + start, min(CHUNK_BYTES, entry.end - start))
        for entry in entries
        for start in range(entry.begin, entry.end, CHUNK_BYTES)
    ]
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)) // 4)
    if threads < 2 or sum(size for _, size in chunks) < PARALLEL_FROM_BYTES:
        digests = iter([_hash(descriptor, path, *chunk) for chunk in chunks])
    else:
        with ThreadPoolExecutor(threads, "holdfast-seal") as pool:

            def hashed(chunk: tuple[int, int]) -> str:
                began = ProcessorUse.of_this_thread()
                digest = _hash(descriptor, path, *chunk)
                helped.append(ProcessorUse.of_this_thread().since(began))
                return digest

            digests = iter(list(pool.map(hashed, chunks)))
    return tuple(
        entry.with_checksums(
            tuple(next(digests) for _ in range(entry.begin, entry.end, CHUNK_BYTES))
        )
        for entry in entries
    )


_scratch = threading.local()


def _hash(descriptor: int, path: Path, offset: int, size: int) -> str:
    digest = xxhash.xxh3_64()
    if not hasattr(_scratch, "memory"):
        _scratch.memory = np.empty(READ_BYTES, np.uint8)
    scratch: Any = _scratch.memory
    for length in _blocks(size):
        # Read, not mapped: a file that is cut short is an error here, and no SIGBUS.
        count = os.preadv(descriptor, [scratch[:length].data], offset)
        if count != length:
            raise CorruptCheckpoint(f"{path} ends inside its data")
        digest.update(scratch[:length].data)
        offset += length
    return digest.hexdigest()


def _blocks(size: int) -> Iterator[int]:
    while size > 0:
        yield min(READ_BYTES, size)
        size -= READ_BYTES
