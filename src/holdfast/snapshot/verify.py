"""Every byte of a set against its checksums: what `holdfast ckpt verify` runs."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.snapshot.reader import ShardFiles, chunks, read_all
from holdfast.snapshot.sets import read_manifest


def verify(set_dir: Path) -> tuple[str, ...]:
    """Read the whole set; each problem as a sentence that names the file and the tensor.

    Bytes that no checksum covers do not exist: header, tensors and nothing else make up a shard.
    """
    try:
        manifest = read_manifest(set_dir)
    except (CorruptCheckpoint, StoreUnavailable) as error:
        return (str(error),)
    problems = []
    with ShardFiles(set_dir, manifest) as files:
        by_rank: dict[int, list[str]] = {}
        for rank in range(manifest.world_size):
            try:
                files.facts(rank)
            except (CorruptCheckpoint, StoreUnavailable) as error:
                problems.append(str(error))
                by_rank[rank] = [str(error)]
        for stored in manifest.arrays.values():
            for rank, tensor in stored.pieces:
                try:
                    read_all(files, chunks(rank, tensor, None))
                except (CorruptCheckpoint, StoreUnavailable) as error:
                    if str(error) not in by_rank.get(rank, ()):  # a missing file is told once
                        problems.append(str(error))
    return tuple(problems)
