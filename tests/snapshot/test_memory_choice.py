"""Which copy of which set the next attempt restores, when some are in memory."""

from __future__ import annotations

import itertools
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast.core.events import Resume
from holdfast.core.run.rollback import Wish
from holdfast.core.save.choose import NoChoice, Rejected, choose
from holdfast.errors import NoGoodCheckpoint
from holdfast.journal.attempts import create_attempt
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.sets import SetInfo, commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging


class Sets:
    """A run of one attempt, its store, its memory, and sets to put there."""

    def __init__(self, folder: RunFolder, memory: Path) -> None:
        self.folder = folder
        self.memory = memory
        memory.mkdir()

    def on_disk(self, step: int, attempt: int = 0) -> SetInfo:
        return self._made(self.folder.ckpt_dir, step, attempt)

    def _made(self, folder: Path, step: int, attempt: int) -> SetInfo:
        place = folder / set_name(attempt, step)
        captured = Staging().capture({"state": np.full(9, step)})
        write_shard(place, captured, attempt=attempt, step=step, rank=0, world_size=1)
        return commit(place, 1)

    def in_memory(self, buffer: int, step: int, attempt: int = 0) -> Path:
        place = self._made(self.memory, step, attempt).path
        return place.rename(self.memory / buffer_name(buffer))

    def attempt(self, number: int, parent: int | None = None, resume_step: int = 0) -> None:
        create_attempt(
            self.folder,
            number,
            parent=parent,
            resume_step=resume_step,
            restore_set=None if parent is None else set_name(parent, resume_step),
            epoch=1,
            ranks=1,
            chips=1,
            incarnation="i",
            command=("x",),
        )

    @property
    def catalog(self) -> Catalog:
        held: Any = SimpleNamespace(epoch=1, check=lambda: None)
        return Catalog(self.folder, self.memory, held)

    def chosen(self) -> Resume:
        return self.catalog.choose()[0]


@pytest.fixture
def sets(store: Path, tmp_path: Path) -> Sets:
    sets = Sets(RunStore.at(store).open("r", command=("x",)), tmp_path / "ram")
    sets.attempt(0)
    return sets


def test_the_newest_wherever_it_is(sets: Sets) -> None:
    sets.on_disk(10)
    assert sets.chosen() == Resume(set_name(0, 10), 10, 0)
    sets.in_memory(1, 14)
    resume, words = sets.catalog.choose()
    assert resume == Resume(set_name(0, 14), 14, 0, buffer=1, committed_step=10)
    assert words.endswith("it is read from memory")
    sets.on_disk(20)
    assert sets.chosen() == Resume(set_name(0, 20), 20, 0)


def test_of_two_copies_the_one_in_memory(sets: Sets) -> None:
    sets.in_memory(2, 10)
    sets.on_disk(10)
    assert sets.chosen() == Resume(set_name(0, 10), 10, 0, buffer=2, committed_step=10)


def test_only_in_memory(sets: Sets) -> None:
    sets.in_memory(0, 3)
    assert sets.chosen() == Resume(set_name(0, 3), 3, 0, buffer=0, committed_step=0)


@pytest.mark.parametrize("spoil", ["manifest.json", "rank-00000.safetensors"])
def test_a_damaged_copy_in_memory_is_passed_over(sets: Sets, spoil: str) -> None:
    sets.on_disk(10)
    place = sets.in_memory(1, 14)
    (place / spoil).write_bytes(b"rubbish")
    resume, words = sets.catalog.choose()
    assert resume == Resume(set_name(0, 10), 10, 0)
    assert "passed over in memory" in words


def test_a_copy_that_could_not_be_read_is_rejected_alone(sets: Sets) -> None:
    sets.in_memory(1, 14)
    sets.on_disk(14)
    rejected = Rejected().add(set_name(0, 14), "a bit is flipped", in_memory=True)
    resume, words = choose(sets.catalog.look(), None, rejected)
    assert resume == Resume(set_name(0, 14), 14, 0)
    assert "a bit is flipped" in words
    rejected = rejected.add(set_name(0, 14), "here too", in_memory=False)
    none, words = choose(sets.catalog.look(), None, rejected)
    assert none is NoChoice.NONE_GOOD
    assert "here too" in words


def test_a_copy_in_memory_stands_in_for_one_that_went_bad_on_disk(sets: Sets) -> None:
    sets.in_memory(0, 14)
    on_disk = sets.on_disk(14)
    (on_disk.path / "rank-00000.safetensors").unlink()
    assert sets.chosen() == Resume(set_name(0, 14), 14, 0, buffer=0, committed_step=0)


def test_a_lost_copy_in_memory_is_no_lost_checkpoint(sets: Sets) -> None:
    place = sets.in_memory(0, 3)
    (place / "rank-00000.safetensors").unlink()
    resume, words = sets.catalog.choose()
    assert resume == Resume(None, 0, None)
    assert "is missing" in words
    shutil.rmtree(place)
    assert sets.chosen() == Resume(None, 0, None)


def test_what_is_off_the_lineage_does_not_come_back(sets: Sets) -> None:
    sets.on_disk(5)
    sets.in_memory(0, 9)
    sets.attempt(1, parent=0, resume_step=5)
    assert sets.chosen() == Resume(set_name(0, 5), 5, 0)
    sets.in_memory(1, 6, attempt=1)
    assert sets.chosen() == Resume(set_name(1, 6), 6, 1, buffer=1, committed_step=5)


def test_going_back_finds_it_too(sets: Sets) -> None:
    sets.on_disk(5)
    sets.in_memory(0, 9)
    sets.in_memory(1, 12)
    wish = Wish("w", 10, 0, "step 10", is_from_script=False)
    resume, _ = sets.catalog.choose(wish)
    assert resume == Resume(set_name(0, 9), 9, 0, buffer=0, committed_step=5)


def test_an_attempt_nobody_knows_is_not_restored_and_not_passed_over(sets: Sets) -> None:
    sets.in_memory(0, 9, attempt=3)
    with pytest.raises(NoGoodCheckpoint, match="attempt 3 cannot be read"):
        sets.catalog.choose()


def test_a_set_that_is_being_flushed_is_left_alone(sets: Sets) -> None:
    place = sets.on_disk(5).path
    (place / "manifest.json").unlink()
    sets.catalog.tidy([place.name])
    assert not (place / "manifest.json").exists()
    assert (place / "rank-00000.safetensors").exists()
    sets.catalog.tidy()
    assert (place / "manifest.json").exists()


@pytest.mark.parametrize("hours", [-5, 720], ids=["back", "forth"])
def test_a_wall_clock_that_is_set_again_and_again_changes_nothing(
    sets: Sets, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """By their times the sets lie the other way round, or months ahead: steps are what counts."""
    real, jumps = time.time_ns, itertools.count(1)
    monkeypatch.setattr(time, "time_ns", lambda: real() + next(jumps) * hours * 3600 * 10**9)
    for buffer, step in enumerate((3, 7, 11)):
        seal_buffer(sets.in_memory(buffer, step), 1, attempt=0, step=step)
    place = sets.folder.ckpt_dir / set_name(0, 7)
    flush_set(sets.memory / buffer_name(1), place, attempt=0, step=7)
    commit(place, 1)
    chosen = sets.chosen()
    assert (chosen.step, chosen.buffer, chosen.durable_step) == (11, 2, 7)
    shutil.rmtree(sets.memory)
    chosen = sets.chosen()
    assert (chosen.step, chosen.buffer) == (7, None)
