"""One rank's captured state to disk: a safetensors file, synced, then its receipt.

Runs in a background thread of the trainer. All that takes time (write, fsync, xxh3) lets go of the
GIL. The order is the guarantee: data synced, then the receipt renamed into place and the folder
synced; whoever sees a receipt can rely on the shard.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xxhash

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import make_part, store_errors
from holdfast.snapshot.layout import encode_header, shard_facts
from holdfast.snapshot.receipt import (
    CHUNK_BYTES,
    MANIFEST,
    Receipt,
    Tensor,
    receipt_name,
    shard_name,
)
from holdfast.snapshot.sealed import checksum, compact, write_sealed
from holdfast.snapshot.staging import Captured
from holdfast.snapshot.structure import Structure, at

WRITE_BLOCK_BYTES = 4 << 20


def write_shard(
    set_dir: Path,
    captured: Captured,
    *,
    attempt: int,
    step: int,
    rank: int,
    world_size: int,
    tags: Sequence[str] = (),
) -> Receipt:
    """Write, sync, and acknowledge. The set becomes visible only by `sets.commit`.

    What an earlier, failed try left under the same names is replaced.

    Raises:
        StoreUnavailable: the disk is full, read-only or failing (the partial file is removed), or
            the set is committed already.
        ValueError: the capture was made for another rank or number of ranks.

    """
    if (rank, world_size) != (captured.rank, captured.world_size):
        raise ValueError(
            f"captured as rank {captured.rank} of {captured.world_size}, "
            f"written as rank {rank} of {world_size}"
        )
    facts = shard_facts(
        captured.structure,
        attempt=attempt,
        step=step,
        rank=rank,
        world_size=world_size,
        shared=captured.shared,
        tags=tags,
    )
    header = encode_header(captured.entries, facts)
    path = set_dir / shard_name(rank)
    receipt_path = set_dir / receipt_name(rank)
    make_part(set_dir)
    with store_errors(f"save step {step}", path):
        if (set_dir / MANIFEST).exists():
            raise StoreUnavailable(
                f"saving step {step} failed: {set_dir} is a committed checkpoint already; "
                "every attempt saves a step once"
            )
        receipt_path.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        with _Hashing(captured) as hashing:
            _write(path, header, captured.data)
            tensors = hashing.result()
    receipt = Receipt(
        attempt=attempt,
        step=step,
        rank=rank,
        world_size=world_size,
        file_bytes=len(header) + captured.nbytes,
        data_begin=len(header),
        header_xxh3=checksum(header),
        structures=structure_checksums(captured.structure, captured.shared),
        tags=tuple(tags),
        tensors=tensors,
    )
    try:
        write_sealed(receipt_path, receipt.to_json())
    except StoreUnavailable:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # a shard without a receipt is of no use: free its space
        raise
    return receipt


def structure_checksums(structure: Structure, shared: Sequence[str]) -> dict[str, str]:
    """What ranks compare: the checksum of the structure under each shared path."""
    return {name: checksum(compact(at(structure, name)).encode()) for name in shared}


def _write(path: Path, header: bytes, data: memoryview) -> None:
    """A new file with these bytes, on disk. Removed again if that fails."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write_all(descriptor, memoryview(header))
            position = len(header)
            for start in range(0, data.nbytes, WRITE_BLOCK_BYTES):
                block = data[start : start + WRITE_BLOCK_BYTES]
                _write_all(descriptor, block)
                _start_writeback(descriptor, position, block.nbytes)
                position += block.nbytes
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:  # one call moves at most 2 GiB, or up to a limit
        data = data[os.write(descriptor, data) :]


class _Hashing:
    """The checksums of all tensors, computed by a thread of its own while the file is written."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._stop = False
        self._tensors: list[Tensor] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-hash", daemon=True)

    def __enter__(self) -> _Hashing:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop = True  # the capture is released after this: nobody may read it any more
        self._thread.join()

    def result(self) -> tuple[Tensor, ...]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return tuple(self._tensors)

    def _run(self) -> None:
        try:
            for entry in self._captured.entries:
                with self._captured.data[entry.begin : entry.end] as data:
                    digests = []
                    for start in range(0, data.nbytes, CHUNK_BYTES):
                        if self._stop:
                            return
                        with data[start : start + CHUNK_BYTES] as chunk:
                            digests.append(xxhash.xxh3_64_hexdigest(chunk))
                self._tensors.append(entry.with_checksums(tuple(digests)))
        except BaseException as error:
            self._error = error


def _load_sync_file_range() -> Callable[[int, int, int], Any] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    write = 2  # SYNC_FILE_RANGE_WRITE

    def start(descriptor: int, offset: int, size: int) -> Any:
        return function(descriptor, offset, size, write)

    return start


_sync_file_range = _load_sync_file_range()


def _start_writeback(descriptor: int, offset: int, size: int) -> None:
    """Ask the kernel to start writing these bytes to the disk now, and not only at the fsync.

    A hint: the disk works while the next block is copied. Durability still comes from fsync, which
    also reports what went wrong; the hint's own result says nothing more.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, offset, size)
