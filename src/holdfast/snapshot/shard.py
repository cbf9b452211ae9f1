"""One rank's captured state to the run's vault: a safetensors file, then its receipt.

Runs in a background thread of the trainer. All that takes time (write, fsync, xxh3) lets go of the
GIL. The order is the guarantee: the data are durable before the receipt is there; whoever sees a
receipt can rely on the shard.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import xxhash

from holdfast.snapshot.external import External
from holdfast.snapshot.layout import encode_header, shard_facts
from holdfast.snapshot.receipt import (
    CHUNK_BYTES,
    NOTHING_DECLARED,
    DeclaredReplicas,
    Receipt,
    Tensor,
)
from holdfast.snapshot.sealed import checksum, compact
from holdfast.snapshot.staging import Captured
from holdfast.snapshot.structure import Structure, at
from holdfast.snapshot.vault import open_vault


def write_shard(
    set_dir: Path,
    captured: Captured,
    *,
    attempt: int,
    step: int,
    rank: int,
    world_size: int,
    tags: Sequence[str] = (),
    external: External | None = None,
    declared: DeclaredReplicas = NOTHING_DECLARED,
) -> Receipt:
    """Write, sync, and acknowledge. The set becomes visible only by `sets.commit`.

    What an earlier, failed try left under the same names is replaced. `external`: what this rank
    has read of the framework's checkpoint that the set stands for. `declared`: of what it holds.

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
    vault, name = open_vault(set_dir.parent), set_dir.name
    with _Hashing(captured) as hashing:
        vault.put_data(name, rank, [memoryview(header), captured.data])
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
        external=None if external is None else external.to_json(),
        declared=declared,
    )
    vault.put_receipt(name, receipt)
    return receipt


def structure_checksums(structure: Structure, shared: Sequence[str]) -> dict[str, str]:
    """What ranks compare: the checksum of the structure under each shared path."""
    return {name: checksum(compact(at(structure, name)).encode()) for name in shared}


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
