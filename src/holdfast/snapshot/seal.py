"""Sealing a buffer of the memory tier: somebody else than the trainer puts the checksums to it.

A rank copies its shard into a buffer and says so; that costs the training nothing but the copy.
Then this, in another process: each rank's file is read once and hashed, its receipt is made of the
file's own header, and last comes the manifest. From there on the buffer is a checkpoint set like
any other, and the same reader verifies and restores it. A buffer whose writer died in the middle
has no header, and is not sealed.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from holdfast.core.save.tier_events import AlikeDigests
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.regular import open_regular, read_regular
from holdfast.snapshot.compared import RankComparison, compare
from holdfast.snapshot.layout import MAX_HEADER_BYTES, Header, decode_header
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
    declared_in,
    number,
    receipt_name,
    shard_name,
    texts,
)
from holdfast.snapshot.sealed import checksum, write_sealed
from holdfast.snapshot.sets import SetInfo, check_size, info
from holdfast.snapshot.shard import structure_checksums
from holdfast.snapshot.split import check_parts

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


class KnownHeaders:
    """Those of the sets that were sealed last: a whole one and one in parts, if there are both.

    Most sets differ from one before in the contents of arrays and in a few values. What was checked
    of its headers then, and of how they fit together, need not be checked again.
    """

    def __init__(self) -> None:
        self._ranks: tuple[int, tuple[int, ...]] = (0, ())  # in all, and those that are here
        self._sets: list[tuple[Header, ...]] = []  # newest first

    def begin(self, world_size: int, ranks: Sequence[int]) -> None:
        """A set of these ranks comes; what is known of others is of no use."""
        if self._ranks != (world_size, tuple(ranks)):
            self._ranks, self._sets = (world_size, tuple(ranks)), []

    def of(self, rank: int) -> list[Header]:
        """The headers of this rank."""
        return [one[self._ranks[1].index(rank)] for one in self._sets]

    def has(self, headers: Sequence[Header]) -> bool:
        """Whether a known set has the same arrays at the same places."""
        return any(_is_alike(headers, known) for known in self._sets)

    def keep(self, headers: Sequence[Header]) -> None:
        """These fit together."""
        others = [one for one in self._sets if not _is_alike(headers, one)]
        self._sets = [tuple(headers), *others[:1]]


def _is_alike(headers: Sequence[Header], known: Sequence[Header]) -> bool:
    return all(one.tensors is other.tensors for one, other in zip(headers, known, strict=True))


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
    known: KnownHeaders | None = None,
) -> SealedPart:
    """Hash every rank's shard, write the receipts, then the manifest; on return it restores.

    `ranks`: those of this host; None: all are here. `known`: of the sets that were sealed before.

    For a buffer that all ranks have said they copied (attempt, step) into, and into which none
    writes now. Calling it again, also after it was killed in the middle, gives the same.

    Raises:
        CorruptCheckpoint: a shard is missing, half written, or that of another step; the buffer
            stays unsealed.
        StoreUnavailable: the memory folder is full or may not be read.

    """
    (buffer_dir / MANIFEST).unlink(missing_ok=True)
    ranks = range(world_size) if ranks is None else ranks
    receipts, headers, began = [], [], ProcessorUse.of_this_thread()
    known = known or KnownHeaders()
    known.begin(world_size, ranks)
    helped: list[ProcessorUse] = []
    for rank in ranks:
        receipt, header = _hashed(buffer_dir, rank, helped, known.of(rank))
        found = (receipt.attempt, receipt.step, receipt.rank, receipt.world_size)
        if found != (attempt, step, rank, world_size):
            raise CorruptCheckpoint(
                f"{buffer_dir / shard_name(rank)} holds step {receipt.step} of attempt "
                f"{receipt.attempt} by rank {receipt.rank} of {receipt.world_size}, not step "
                f"{step} of attempt {attempt} by rank {rank} of {world_size}"
            )
        write_sealed(buffer_dir / receipt_name(rank), receipt.to_json())
        receipts.append(receipt)
        headers.append(header)
    facts = [header.facts for header in headers]
    try:
        manifest = compose_part(receipts, ranks, time.time_ns(), {})
        if not known.has(headers):
            check_parts(manifest, facts)
    except ValueError as error:
        raise CorruptCheckpoint(f"{buffer_dir} cannot be sealed: {error}") from error
    for receipt in receipts:
        check_size(buffer_dir, receipt.rank, receipt.file_bytes)
    write_sealed(buffer_dir / MANIFEST, manifest.to_json())
    _check_kept(buffer_dir, ranks)
    known.keep(headers)
    done = info(buffer_dir, manifest)
    alike: AlikeDigests = ()
    comparison = RankComparison()
    if manifest.here is not None:
        alike = digests(receipts)
    elif not any(one.get("in_parts") for one in facts):
        comparison = compare(receipts, map(declared_in, facts))
    use = sum(helped, ProcessorUse.of_this_thread().since(began))
    return SealedPart(done, alike, comparison, use.taken_ns)


def _check_kept(buffer_dir: Path, ranks: Sequence[int]) -> None:
    """CorruptCheckpoint, and no manifest, where a rank has taken its shard back meanwhile.

    It makes the header's length 0 and then removes the manifest: whichever came first is seen.
    """
    for rank in ranks:
        path = buffer_dir / shard_name(rank)
        try:
            is_kept = any(read_regular(path, _LENGTH_BYTES)[:_LENGTH_BYTES])
        except OSError:
            is_kept = False
        if not is_kept:
            (buffer_dir / MANIFEST).unlink(missing_ok=True)
            raise CorruptCheckpoint(f"{path} was taken back by its rank while it was being sealed")


def _hashed(
    buffer_dir: Path, rank: int, helped: list[ProcessorUse], known: Sequence[Header]
) -> tuple[Receipt, Header]:
    """The receipt, and the file's header; `helped`: other threads, added."""
    path = buffer_dir / shard_name(rank)
    try:
        descriptor = open_regular(path)
    except FileNotFoundError as error:
        raise CorruptCheckpoint(f"{path} is missing") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        head = _header(descriptor, path)
        try:
            header = decode_header(head, known)
            check_format(header.facts)
            shard = Shard(os.fstat(descriptor).st_size, len(head), checksum(head))
            in_parts = header.facts.get("in_parts") is True
            entries = _checked(shard, header.tensors, has_rest=in_parts)
            tensors = _with_checksums(descriptor, len(head), entries, helped)
            receipt = _receipt(header.facts, shard, tensors)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"{path} is no shard: {error}") from error
        if _header(descriptor, path) != head:
            raise CorruptCheckpoint(f"{path} was overwritten while it was being sealed")
        return receipt, header
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
    descriptor: int, data_begin: int, entries: tuple[Tensor, ...], helped: list[ProcessorUse]
) -> tuple[Tensor, ...]:
    """The entries with the checksums of their chunks, which threads share where there are many.

    The file is mapped: a read would copy it first, which takes three times as long as the hash. A
    file that somebody cuts short meanwhile ends this process by SIGBUS, and whoever asked it hears
    of that.
    """
    chunks = [
        (data_begin + start, data_begin + min(start + CHUNK_BYTES, entry.end))
        for entry in entries
        for start in range(entry.begin, entry.end, CHUNK_BYTES)
    ]
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)) // 4)
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as data:

        def digest(chunk: tuple[int, int]) -> str:
            with data[chunk[0] : chunk[1]] as view:
                return xxhash.xxh3_64_hexdigest(view)

        def helped_digest(chunk: tuple[int, int]) -> str:
            began = ProcessorUse.of_this_thread()
            found = digest(chunk)
            helped.append(ProcessorUse.of_this_thread().since(began))
            return found

        if threads < 2 or sum(stop - start for start, stop in chunks) < PARALLEL_FROM_BYTES:
            found = [digest(chunk) for chunk in chunks]
        else:
            with ThreadPoolExecutor(threads, "holdfast-seal") as pool:
                found = list(pool.map(helped_digest, chunks))
    digests = iter(found)
    return tuple(
        entry.with_checksums(
            tuple(next(digests) for _ in range(entry.begin, entry.end, CHUNK_BYTES))
        )
        for entry in entries
    )
