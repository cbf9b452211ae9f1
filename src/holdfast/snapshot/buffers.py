"""The buffers of a run's memory folder, as far as their names and manifests tell."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.save.word import MAX_BUFFERS
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.regular import is_real_folder
from holdfast.snapshot.receipt import MANIFEST
from holdfast.snapshot.sets import SetInfo, check_size, info, read_manifest


@dataclass(frozen=True, slots=True)
class SealedBuffer:
    """A buffer that restores. `number` is its own: its folder is `buffer-NUMBER`."""

    number: int
    info: SetInfo


def buffer_name(number: int) -> str:
    """The folder of a buffer in a run's memory folder."""
    return f"buffer-{number}"


def sealed_buffers(ram_dir: Path) -> tuple[tuple[SealedBuffer, ...], dict[int, str]]:
    """The sealed buffers of a run's memory folder, oldest first; and what is wrong with others.

    Contents are not read: a restore does, and compares. Buffers without a manifest are neither.
    """
    found: list[SealedBuffer] = []
    damage: dict[int, str] = {}
    for number in range(MAX_BUFFERS):
        folder = ram_dir / buffer_name(number)
        if not is_real_folder(folder) or not os.path.lexists(folder / MANIFEST):
            continue
        try:
            manifest = read_manifest(folder)
            for rank, shard in enumerate(manifest.shards):
                check_size(folder, rank, shard.file_bytes)
        except (CorruptCheckpoint, StoreUnavailable) as error:
            damage[number] = str(error)
            continue
        found.append(SealedBuffer(number, info(folder, manifest)))
    return tuple(sorted(found, key=lambda one: (one.info.attempt, one.info.step))), damage
