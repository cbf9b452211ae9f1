"""What Holdfast answers for Orbax's `CheckpointManager`, before one that is a fake; and files.

The real tests are skipped where Orbax is not installed: `make adapters` has it.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from framework_adapter import Adapter
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED, House, Process

from holdfast.adapters.orbax import OrbaxManager, wrap
from holdfast.core.save.choose import TrainingEnd
from holdfast.core.save.word import Order
from holdfast.errors import ConfigurationError, Stop, StoreUnavailable
from holdfast.journal.layout import RankPhase, Word
from holdfast.session import boundary as boundaries
from holdfast.session import framework_loop

EXAMPLE = Path(__file__).parents[2] / "examples" / "orbax" / "train.py"
UNTIL = 4
FULL = ValueError('RESOURCE_EXHAUSTED: Error writing "w/0": No space left on device')


class FakeManager:
    """Does what Orbax's pages say of a manager, with a file a step, in the background.

    A save is there once it was waited for. `fails`: what the next such wait raises.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fails: Exception | None = None
        self.is_closed = False
        self._writing: int | None = None

    def all_steps(self) -> list[int]:
        paths = self.directory.glob("*") if self.directory.is_dir() else ()
        return sorted(int(path.name) for path in paths)

    def latest_step(self) -> int | None:
        return max(self.all_steps(), default=None)

    def should_save(self, step: int) -> bool:
        raise AssertionError("the run is to be asked")

    reached_preemption = should_save

    def save(self, step: int, args: Any = None, *, force: bool = False) -> bool:
        assert force, "the run has decided"
        assert step not in self.all_steps(), "Orbax raises StepAlreadyExistsError"
        self.wait_until_finished()
        self._writing = step
        return True

    def is_saving_in_progress(self) -> bool:
        return self._writing is not None

    def wait_until_finished(self) -> None:
        step, self._writing = self._writing, None
        if step is None:
            return
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        (self.directory / str(step)).mkdir(parents=True)
        (self.directory / str(step) / "state").write_text(f"of step {step}")

    def delete(self, step: int) -> None:
        (self.directory / str(step) / "state").unlink()
        (self.directory / str(step)).rmdir()

    def restore(self, step: int, args: Any = None) -> str:
        return (self.directory / str(step) / "state").read_text()

    def close(self) -> None:
        self.wait_until_finished()
        self.is_closed = True


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapter]:
    for module in (framework_loop, boundaries):
        monkeypatch.setattr(module, "WAIT_STEP_S", 0)
    one = Adapter(tmp_path, begins=False)
    yield one
    one.close()


@pytest.fixture
def fake(rank: Adapter) -> FakeManager:
    return FakeManager(rank.folder)


def wrapped(rank: Adapter, fake: FakeManager, base: int = 0) -> OrbaxManager:
    """As `wrap` does it, of a run whose page the test writes."""
    run: Any = SimpleNamespace(name="r", framework=lambda _: rank.loop)
    return OrbaxManager(fake, run, UNTIL, base)


@pytest.mark.parametrize("base", [0, 1])
def test_the_run_says_which_steps_are_saved(base: int, rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake, base)
    rank.order(1, 2)
    first = base
    assert [manager.should_save(step) for step in (first, first + 1)] == [False, True]
    assert not manager.reached_preemption(first + 1)
    assert manager.save(first + 1)
    assert rank.answers()[:2] == (2, 2), "the loop's own steps count from 1"
    assert not manager.save(first + 2)  # what was written meanwhile is told here or later
    manager.wait_until_finished()
    rank.written()
    assert rank.answers() == (2, 2, 2, 0)
    assert fake.all_steps() == [first + 1]


def test_a_loop_that_asks_before_each_save_ends_as_done(rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake)
    for step in range(UNTIL):
        if manager.should_save(step):
            rank.order(1, UNTIL)
            assert manager.save(step)
    assert fake.all_steps() == [UNTIL - 1]
    rank.words.store(Word.COMMITTED, UNTIL)
    manager.close()
    assert fake.is_closed
    assert rank.words.load(Word.PHASE) == RankPhase.FINISHED


@pytest.mark.parametrize("is_known_before", [True, False])
def test_a_loop_that_ends_sooner_is_done_with_its_last_step(
    is_known_before: bool, rank: Adapter, fake: FakeManager
) -> None:
    manager = wrapped(rank, fake)
    assert not manager.save(0)
    if not is_known_before:
        assert not manager.save(1)
    manager.end_at(1)
    rank.order(1, 2)
    assert manager.save(1)
    rank.words.store(Word.COMMITTED, 2)
    manager.close()
    assert rank.words.load(Word.PHASE) == RankPhase.FINISHED


def test_a_loop_that_an_earlier_attempt_ended_is_over(rank: Adapter, fake: FakeManager) -> None:
    rank.boundary.resume_step, rank.boundary.ended = 2, TrainingEnd(2, UNTIL)
    rank.words.store(Word.COMMITTED, 2)
    manager = wrapped(rank, fake)
    assert manager.is_over()
    manager.close()
    assert rank.words.load(Word.PHASE) == RankPhase.FINISHED


def test_a_loop_that_never_saves_its_last_step_is_told(rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake)
    for step in range(UNTIL):
        manager.should_save(step)
    rank.order(1, UNTIL)
    with pytest.raises(StoreUnavailable, match="the last step, 3, could not be saved: give it to"):
        manager.close()


def test_a_stop_is_saved_and_raised_once_it_counts(rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake)
    rank.order(1, 2, Order.STOP)
    rank.verdict(1, 2, Order.COMMITTED)
    assert [manager.reached_preemption(step) for step in (0, 1)] == [False, True]
    with pytest.raises(Stop, match="step 2 is durable on all ranks"):
        manager.save(1)
    assert fake.all_steps() == [1]


def test_a_save_of_the_users_own_is_no_answer_to_the_run(rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake)
    assert manager.save(0, force=True)
    manager.wait_until_finished()
    assert fake.all_steps() == [0]
    assert manager.latest_step() == 0
    assert rank.answers() == (0, 0, 0, 0)


@pytest.mark.parametrize("error", [FULL, OSError(28, "No space left on device")])
def test_a_full_disk_fails_that_save_and_the_training_goes_on(
    error: Exception, rank: Adapter, fake: FakeManager, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = wrapped(rank, fake)
    rank.order(1, 1)
    fake.fails = error
    assert manager.save(0)
    manager.wait_until_finished()
    assert rank.answers() == (1, 1, 0, 1)
    assert "No space left on device" in capfd.readouterr().err
    rank.order(2, 2)
    assert manager.save(1)
    manager.wait_until_finished()
    rank.written()
    assert rank.answers() == (2, 2, 2, 1)


def test_a_mistake_of_the_users_is_raised(rank: Adapter, fake: FakeManager) -> None:
    manager = wrapped(rank, fake)
    rank.order(1, 1)
    fake.fails = ValueError("Must provide args of type `Composite`.")
    manager.save(0)
    with pytest.raises(ValueError, match="Must provide args"):
        manager.wait_until_finished()


@pytest.mark.parametrize("base", [0, 1])
def test_what_the_run_goes_on_from_is_the_newest_until_a_step_is_done(
    base: int, rank: Adapter, fake: FakeManager, capfd: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):  # of an attempt that the run does not go on from, the second
        fake.save(base + step, force=True)
    fake.wait_until_finished()
    rank.boundary.resume_step = 2
    manager = wrapped(rank, fake, base)
    assert f"{rank.folder / str(base + 2)} is newer than" in capfd.readouterr().err
    assert manager.latest_step() == base + 1
    assert manager.restore() == f"of step {base + 1}"
    rank.order(1, 3)
    assert manager.save(base + 2)
    assert manager.latest_step() == base + 1, "the other one is gone, and this one not there yet"
    manager.wait_until_finished()
    assert manager.latest_step() == base + 2


def test_steps_count_from_0_or_1() -> None:
    with pytest.raises(ConfigurationError, match="not from 2"):
        wrap(None, until=3, base=2)


# --- with Orbax itself -----------------------------------------------------------------------


def started(house: House, script: Path, steps: int, ranks: int = 1) -> Process:
    pytest.importorskip("orbax.checkpoint")
    options = ("run", "--name", "r", "--save-every", 10, "--ranks", ranks)
    return house.holdfast(*options, "--", sys.executable, script, steps, OMP_NUM_THREADS=1)


@pytest.mark.real
def test_a_flipped_bit_of_orbax_is_noticed_and_the_checkpoint_before_is_taken(
    house: House,
) -> None:
    run = started(house, EXAMPLE, 1_000_000)
    house.eventually(lambda: len(house.sets()) >= 2)
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    listed = json.loads(house.command("ckpt", "ls", "r", "--json"))["checkpoints"]
    before, newest = sorted(one["step"] for one in listed if one["state"] == "good")[-2:]
    folder = house.folder / "checkpoints" / str(newest - 1)  # the example counts from 0
    largest = max(
        (one for one in folder.rglob("*") if one.is_file()), key=lambda one: one.stat().st_size
    )
    whole = bytearray(largest.read_bytes())
    whole[len(whole) // 2] ^= 1
    largest.write_bytes(whole)
    text = started(house, EXAMPLE, newest + 20).wait(EXIT_DONE)
    assert "cannot be trusted" in text
    assert re.search(rf"starting from step {before}\b", text)


@pytest.mark.real
def test_another_model_is_told_in_a_sentence(house: House) -> None:
    started(house, EXAMPLE, 20).wait(EXIT_DONE)
    changed = house.script(EXAMPLE.read_text().replace("256", "128"))
    text = started(house, changed, 40).wait(EXIT_CONFIGURATION)
    assert "cannot be loaded" in text


# Rank 0 alone writes no file of more than 2 KiB in the third save; Orbax is told to wait for 10 s.
ONE_IS_FULL = f"""
import os, resource, runpy
import orbax.checkpoint as ocp

make, save = ocp.CheckpointManager.__init__, ocp.CheckpointManager.save
saves = 0

def made(self, folder):
    patience = ocp.AsyncOptions(timeout_secs=10)
    make(self, folder, options=ocp.CheckpointManagerOptions(async_options=patience))

def saved(self, *args, **kwargs):
    global saves
    saves += 1
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    is_full = saves == 3 and os.environ["RANK"] == "0"
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048 if is_full else most, most))
    return save(self, *args, **kwargs)

ocp.CheckpointManager.__init__, ocp.CheckpointManager.save = made, saved
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


@pytest.mark.real
def test_one_process_of_two_cannot_write_and_the_training_goes_on(house: House) -> None:
    run = started(house, house.script(ONE_IS_FULL), 1000, ranks=2)
    text = run.wait(EXIT_DONE)
    # Which of Orbax's errors each is given depends on who comes first: the disk's, or its waits'.
    waits = r"DEADLINE_EXCEEDED|Timed out while waiting"
    for rank, why in ((0, rf"(?:{waits}|OUT_OF_RANGE: Error writing)"), (1, rf"(?:{waits})")):
        told = re.findall(rf"\[{rank}\] holdfast: step \d+ could not be saved: {why}", text)
        assert len(told) == 1, text
    assert "starting from step" not in text
    listed = json.loads(house.command("ckpt", "ls", "r", "--json"))["checkpoints"]
    assert max(one["step"] for one in listed if one["state"] == "good") == 1000
