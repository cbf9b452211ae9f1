"""A thousand single flipped bits, in memory and on disk: every one is noticed, none is trained on.

Each time one bit of one shard flips, and the run starts again as it does: the controller chooses,
a rank reads and verifies, what it refuses is not chosen again. It must come to a good copy, and to
the state that was saved there, to the bit.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.core.save.choose import NoChoice, Rejected, choose
from holdfast.errors import CorruptCheckpoint
from holdfast.journal.attempts import create_attempt
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.receipt import MANIFEST, receipt_name, shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

FLIPS = int(os.environ.get("FLIPS", "1000"))
RANKS = 2


@dataclass(frozen=True)
class Copy:
    """Where a set lies: on disk, or in a buffer in memory."""

    place: Path
    step: int
    in_memory: bool


def tree(step: int, rank: int) -> dict[str, Any]:
    draw = np.random.default_rng(step)
    state = {"w": draw.normal(size=(40, 7)), "b": draw.normal(size=5).astype(np.float32), "n": step}
    return {"state": state, "data": {"drawn": 100 * step + rank}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Path, list[Copy]]:
    """Steps 10 and 20 on disk, 20 and 30 in memory: a run in the middle of its work."""
    base = tmp_path_factory.mktemp("flips")
    folder = RunStore.at(base / "store").open("flipped", command=("python", "train.py"))
    create_attempt(
        folder, 0, parent=None, resume_step=0, restore_set=None, epoch=1, ranks=RANKS, chips=2,
        incarnation="x", command=("python", "train.py"),
    )  # fmt: skip
    copies = []
    for step in (10, 20, 30):
        place = folder.ckpt_dir / set_name(0, step)
        for rank in range(RANKS):
            captured = Staging().capture(tree(step, rank), rank, RANKS)
            write_shard(place, captured, attempt=0, step=step, rank=rank, world_size=RANKS)
        commit(place, RANKS)
        copies.append(Copy(place, step, in_memory=False))
    memory = base / "ram"
    for number, step in enumerate((20, 30)):
        buffer = memory / buffer_name(number)
        shutil.copytree(folder.ckpt_dir / set_name(0, step), buffer)
        for name in (MANIFEST, *map(receipt_name, range(RANKS))):
            (buffer / name).unlink()
        seal_buffer(buffer, RANKS, attempt=0, step=step)
        copies.append(Copy(buffer, step, in_memory=True))
    shutil.rmtree(copies.pop(2).place)  # step 30 has not been flushed yet
    return folder, memory, copies


def start_again(folder: RunFolder, memory: Path) -> tuple[int, bool, list[str]]:
    """(step, whether it came from memory, what was refused on the way) of the restore."""
    catalog = Catalog(folder, memory)
    refused, rejected = [], Rejected()
    while True:
        resume, words = choose(catalog.look(), None, rejected)
        assert not isinstance(resume, NoChoice), words
        assert resume.set_name is not None
        in_memory = resume.buffer is not None
        place = folder.ckpt_dir / resume.set_name
        if resume.buffer is not None:
            place = memory / buffer_name(resume.buffer)
        try:
            read = [read_set(place, rank=rank, world_size=RANKS) for rank in range(RANKS)]
        except CorruptCheckpoint as error:
            refused.append(str(error))
            rejected = rejected.add(resume.set_name, str(error), in_memory=in_memory)
            continue
        for rank, got in enumerate(read):
            same(got, tree(resume.step, rank))
        return resume.step, in_memory, refused


def same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, np.ndarray):
        assert got.tobytes() == want.tobytes()
    else:
        assert got == want


def flip(path: Path, byte: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        was = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([was ^ 1 << bit]))


def test_every_flipped_bit_is_noticed(run: tuple[RunFolder, Path, list[Copy]]) -> None:
    folder, memory, copies = run
    assert start_again(folder, memory) == (30, True, [])
    rng = random.Random(4)
    seen: Counter[tuple[int, bool]] = Counter()
    for _ in range(FLIPS):
        copy = rng.choice(copies)
        shard = copy.place / shard_name(rng.randrange(RANKS))
        byte, bit = rng.randrange(shard.stat().st_size), rng.randrange(8)
        flip(shard, byte, bit)
        with pytest.raises(CorruptCheckpoint, match=shard.name):
            read_set(copy.place, rank=int(shard.name[5:10]), world_size=RANKS)
        step, in_memory, refused = start_again(folder, memory)
        if (copy.step, copy.in_memory) == (30, True):
            assert (step, in_memory, len(refused)) == (20, True, 1)
        else:
            assert (step, in_memory, refused) == (30, True, [])
        flip(shard, byte, bit)
        seen[copy.step, copy.in_memory] += 1
    assert start_again(folder, memory) == (30, True, [])
    assert len(seen) == len(copies)


def test_the_last_good_copy_is_found(run: tuple[RunFolder, Path, list[Copy]]) -> None:
    """One bit of every copy but the oldest: memory first, then disk, then further back."""
    folder, memory, copies = run
    bad = [copy for copy in copies if copy.step > 10]
    for copy in bad:
        flip(copy.place / shard_name(1), 5000, 3)
    step, in_memory, refused = start_again(folder, memory)
    for copy in bad:
        flip(copy.place / shard_name(1), 5000, 3)
    assert (step, in_memory, len(refused)) == (10, False, 3)
