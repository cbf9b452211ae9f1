"""A framework's loop, driven as an adapter does it, and answered as a controller does: by words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_adapter import ATTEMPT, Adapter

from holdfast.core.save.choose import TrainingEnd
from holdfast.core.save.word import AGREED, WAITS, Order, unpack
from holdfast.errors import ConfigurationError, StepOrderError, Stop, StoreUnavailable
from holdfast.journal.layout import SPAN_KINDS, Kind, RankPhase, Word
from holdfast.journal.reader import JournalReader
from holdfast.session import asked_save, framework_loop
from holdfast.session import boundary as boundaries
from holdfast.session.framework_files import FrameworkFiles
from holdfast.session.framework_loop import Due, FrameworkLoop
from holdfast.snapshot.external import external_of
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.sets import commit, list_sets, read_manifest, set_name
from holdfast.snapshot.vault import open_vault


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapter]:
    for module in (framework_loop, boundaries):
        monkeypatch.setattr(module, "WAIT_STEP_S", 0)
    one = Adapter(tmp_path)
    yield one
    one.close()


@pytest.fixture
def one_of_two(adapter: Adapter, tmp_path: Path) -> Iterator[Adapter]:
    (tmp_path / "two").mkdir()
    one = Adapter(tmp_path / "two", ranks=2)
    yield one
    one.close()


def test_a_save_is_due_at_the_ordered_step_alone(adapter: Adapter) -> None:
    adapter.order(1, 3)
    assert [adapter.loop.due(step) for step in (1, 2, 3)] == [Due.NONE, Due.NONE, Due.SAVE]
    assert adapter.answers() == (3, 0, 0, 0)
    random.seed(1)  # what the framework draws while it saves is not of that boundary
    adapter.loop.saved(3, adapter.write(3))
    adapter.written()
    assert adapter.answers() == (3, 3, 3, 0)
    assert adapter.words.load(Word.SAVE_BLOCKED_NS) > 0
    assert adapter.loop.due(4) is Due.NONE


def test_what_the_framework_saves_in_any_case_is_asked_for_now(adapter: Adapter) -> None:
    """And where its order does not come in time, the framework's save stays its own."""
    adapter.boundary.hurry = lambda: adapter.order(1, 1)
    assert adapter.loop.due(1, saves_itself=True) is Due.SAVE
    assert adapter.words.load(Word.SAVE_ASKED) == 1
    adapter.loop.saved(1, adapter.write(1))
    adapter.written()
    adapter.boundary.hurry = lambda: adapter.order(2, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked_save, "LIMIT_NS", 0)
        assert adapter.loop.due(2, saves_itself=True) is Due.NONE
    adapter.loop.saved(2, adapter.write(2))
    adapter.written()
    assert adapter.answers() == (1, 1, 1, 0)


def test_random_generators_that_the_framework_keeps_are_in_no_set(adapter: Adapter) -> None:
    adapter.contents.has_generators = False
    adapter.order(1, 1)
    adapter.loop.due(1)
    adapter.loop.saved(1, adapter.write(1))
    adapter.written()
    info = commit(adapter.ckpt_dir / set_name(ATTEMPT, 1), 1)
    assert read_set(info.path)["rng"] == {}
    random.seed(3)
    drawn = random.getstate()
    adapter.contents.apply({"rng": {"python": {"version": 3, "words": (), "gauss": None}}})
    assert random.getstate() == drawn, "of a set that an older Holdfast has made"


def test_the_set_stands_for_the_frameworks_files(adapter: Adapter) -> None:
    random.seed(7)
    adapter.order(1, 1)
    adapter.loop.due(1)
    drawn = random.random()
    path = adapter.write(1)
    adapter.loop.saved(1, path)
    adapter.written()
    info = commit(adapter.ckpt_dir / set_name(ATTEMPT, 1), 1)
    assert (info.external, info.external_bytes) == (str(path), 7)
    external = external_of(read_manifest(info.path).extras)
    assert external is not None
    assert [(file.name, file.nbytes) for file in external.files] == [("weights", 7)]
    random.setstate(_python_generator(info.path))
    assert random.random() == drawn  # as it was when the step was done
    assert list_sets(adapter.ckpt_dir)[1] == {}
    adapter.write(1, "changed!")
    assert "has 8 bytes, not 7" in list_sets(adapter.ckpt_dir)[1][info.name]


def _python_generator(set_dir: Path) -> tuple[int, tuple[int, ...], float | None]:
    stored = read_set(set_dir)["rng"]["python"]
    return stored["version"], tuple(int(word) for word in stored["words"]), stored["gauss"]


def test_a_save_in_the_background_blocks_only_for_its_first_part(adapter: Adapter) -> None:
    adapter.order(1, 1)
    assert adapter.loop.due(1).saves
    with adapter.loop.saving():
        path = adapter.write(1)
    assert adapter.answers() == (1, 1, 0, 0)
    assert adapter.loop.due(2) is Due.NONE
    adapter.loop.saved(1, path)
    adapter.written()
    assert adapter.answers() == (1, 1, 1, 0)


def test_a_wait_for_what_is_still_written_is_the_saves_too(adapter: Adapter) -> None:
    with adapter.loop.awaiting():
        pass
    adapter.writer.flush()
    with JournalReader(adapter.folder.with_name("rank-00000.hfj")) as reader:
        (span,) = [one for one in reader.read_new() if one["kind"] == Kind.SPAN]
    assert SPAN_KINDS[int(span["word"]) >> 16] == "save"


def test_how_long_it_blocked_may_be_told(adapter: Adapter) -> None:
    adapter.order(1, 1)
    adapter.loop.due(1)
    adapter.loop.saved(1, adapter.write(1), seconds=1.5)
    assert adapter.words.load(Word.SAVE_BLOCKED_NS) == 1_500_000_000


@pytest.mark.parametrize("says", [True, False])
def test_a_save_that_does_not_come_is_told_and_the_next_one_is_asked_for(
    adapter: Adapter, says: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    adapter.order(1, 1)
    adapter.loop.due(1)
    if says:
        adapter.loop.failed(1, OSError("the bucket is full"))
    adapter.order(2, 2)
    assert adapter.loop.due(2) is Due.SAVE
    assert adapter.answers() == (2, 0, 0, 1)
    why = "the bucket is full" if says else "the framework saved nothing"
    assert f"step 1 could not be saved: {why}" in capfd.readouterr().err
    adapter.loop.saved(1, adapter.write(1))  # too late, and of no effect
    assert adapter.answers() == (2, 0, 0, 1)
    adapter.loop.saved(2, adapter.write(2))
    adapter.written()
    assert adapter.answers() == (2, 2, 2, 1)


def test_files_that_are_gone_when_they_are_read_fail_that_save(adapter: Adapter) -> None:
    adapter.order(1, 1)
    adapter.loop.due(1)
    adapter.loop.saved(1, adapter.folder / "step-1")
    adapter.written()
    assert adapter.answers() == (1, 1, 0, 1)


def test_a_checkpoint_elsewhere_is_refused(adapter: Adapter, tmp_path: Path) -> None:
    adapter.order(1, 1)
    adapter.loop.due(1)
    with pytest.raises(ConfigurationError, match="is not below"):
        adapter.loop.saved(1, tmp_path / "other")


def test_a_stop_is_left_when_its_save_counts(adapter: Adapter) -> None:
    adapter.order(1, 2, Order.STOP)
    adapter.loop.due(1)
    due = adapter.loop.due(2)
    assert (due, due.saves, due.stops) == (Due.STOP, True, True)
    adapter.loop.saved(2, adapter.write(2))
    adapter.verdict(1, 2, Order.COMMITTED)
    with pytest.raises(Stop, match="step 2 is durable on all ranks"):
        adapter.loop.leave()


def test_a_stop_that_is_called_off_lets_the_training_go_on(adapter: Adapter) -> None:
    adapter.order(1, 1, Order.STOP)
    adapter.loop.due(1)
    adapter.loop.saved(1, adapter.write(1))
    adapter.verdict(1, 1, Order.ABORTED)
    adapter.loop.leave()
    assert adapter.loop.due(2) is Due.NONE


def test_who_is_told_to_leave_saves_nothing(adapter: Adapter) -> None:
    adapter.order(1, 5, Order.LEAVE)
    due = adapter.loop.due(1)
    assert (due, due.saves, due.stops) == (Due.LEAVE, False, True)
    with pytest.raises(Stop, match="nothing more will be saved"):
        adapter.loop.leave()


def test_a_stop_whose_save_fails_is_waited_for_all_the_same(adapter: Adapter) -> None:
    adapter.order(1, 1, Order.STOP)
    adapter.loop.due(1)
    adapter.verdict(1, 1, Order.ABORTED)
    adapter.loop.leave()
    assert adapter.answers() == (1, 0, 0, 1)


def test_the_last_step_is_saved_until_it_counts(adapter: Adapter) -> None:
    adapter.loop.due(1)
    adapter.order(1, 1)
    assert adapter.loop.finishing()
    adapter.loop.failed(1, OSError("no room"))
    adapter.order(2, 1)
    assert adapter.loop.finishing()
    adapter.loop.saved(1, adapter.write(1))
    adapter.words.store(Word.COMMITTED, 1)
    adapter.verdict(2, 1, Order.COMMITTED)
    assert not adapter.loop.finishing()
    assert adapter.words.load(Word.PHASE) == RankPhase.FINISHED
    assert not adapter.loop.finishing()


def test_a_last_step_that_never_counts_is_told_and_blames_nobody(adapter: Adapter) -> None:
    """A store that is full, or ranks that ended at different steps: the controller knows."""
    adapter.loop.due(1)
    adapter.order(1, 5, Order.LEAVE)
    with pytest.raises(StoreUnavailable, match=r"step, 1, could not .*: the report says why$"):
        adapter.loop.finishing()


def test_a_last_step_that_counts_already_is_not_saved_again(adapter: Adapter) -> None:
    adapter.order(1, 1)
    adapter.loop.due(1)
    adapter.loop.saved(1, adapter.write(1))
    adapter.written()
    adapter.words.store(Word.COMMITTED, 1)
    assert not adapter.loop.finishing()


def test_a_last_save_that_does_not_come_is_asked_for_once_more(adapter: Adapter) -> None:
    """The framework may have taken the word for it back."""
    adapter.loop.due(1)
    adapter.order(1, 1)
    assert adapter.loop.finishing()
    adapter.order(2, 1)
    assert adapter.loop.finishing()
    assert adapter.answers() == (1, 0, 0, 1)


def test_steps_are_told_once_and_in_order(adapter: Adapter) -> None:
    adapter.loop.due(1)
    for step in (1, 3):
        with pytest.raises(StepOrderError, match="but step 2 is under way: call due once per"):
            adapter.loop.due(step)


def test_a_loop_begins_once(adapter: Adapter) -> None:
    with pytest.raises(StepOrderError, match="register the adapter once"):
        adapter.loop.begin()


def test_what_no_set_stands_for_is_removed_and_nothing_else(adapter: Adapter) -> None:
    theirs = adapter.folder / "best"
    for step in (1, 2, 3):
        adapter.order(step, step)
        adapter.loop.due(step)
        adapter.loop.saved(step, adapter.write(step))
        adapter.written()
        commit(adapter.ckpt_dir / set_name(ATTEMPT, step), 1)
        if step == 2:
            theirs.mkdir()
            open_vault(adapter.ckpt_dir).delete(set_name(ATTEMPT, 1))
    assert {path.name for path in adapter.folder.iterdir()} == {"step-2", "step-3", "best"}


def test_a_folder_that_was_moved_keeps_its_checkpoints(adapter: Adapter) -> None:
    for step in (1, 2):
        adapter.order(step, step)
        adapter.loop.due(step)
        adapter.loop.saved(step, adapter.write(step))
        adapter.written()
        commit(adapter.ckpt_dir / set_name(ATTEMPT, step), 1)
    moved = adapter.folder.rename(adapter.folder.with_name("moved"))
    (moved / "step-9").mkdir()  # of an attempt that was given up
    FrameworkFiles(moved, "step-*", adapter.ckpt_dir, 0, 1).read("step-2")
    assert {path.name for path in moved.iterdir()} == {"step-1", "step-2"}


def test_what_the_loop_is_busy_with_is_open_until_it_is_over(adapter: Adapter) -> None:
    """Else a long evaluation would be a step that hangs."""

    def kinds() -> list[int]:
        return [one.kind for one in adapter.words.snapshot().open_spans]

    loop = adapter.loop
    loop.begins("save")
    saving = kinds()
    loop.begins("restore")
    assert len(kinds()) == 1
    assert kinds() != saving
    loop.ends()
    loop.ends()
    assert kinds() == []
    loop.begins("evaluate")
    assert loop.due(1) is Due.NONE
    assert kinds() == []
    loop.begins("evaluate")
    adapter.order(1, 1)
    assert loop.finishing()
    assert kinds() == []


def test_a_loop_that_is_tried_anew_begins_once_more_before_a_step(adapter: Adapter) -> None:
    adapter.loop.begin(until=4, is_retried=True)
    adapter.loop.due(1)
    with pytest.raises(StepOrderError, match="begins its loop anew, though steps are done"):
        adapter.loop.begin(until=4, is_retried=True)


def test_ranks_begin_a_save_together(one_of_two: Adapter) -> None:
    one_of_two.order(1, 2)
    one_of_two.verdict(1, 2, AGREED)
    assert [one_of_two.loop.due(step) for step in (1, 2)] == [Due.NONE, Due.SAVE]
    assert unpack(one_of_two.words.load(Word.TAKEN)).flags & WAITS


def test_a_save_that_another_rank_has_missed_is_not_begun(one_of_two: Adapter) -> None:
    one_of_two.order(1, 1)
    one_of_two.verdict(1, 1, Order.ABORTED)
    assert one_of_two.loop.due(1) is Due.NONE
    assert one_of_two.answers() == (1, 0, 0, 1)
    one_of_two.order(2, 2, Order.STOP)
    one_of_two.verdict(2, 2, AGREED)
    assert one_of_two.loop.due(2) is Due.STOP


def test_a_loop_that_has_done_its_last_step_before_is_done(adapter: Adapter) -> None:
    loop = FrameworkLoop(
        adapter.loop._files, None, adapter.boundary, adapter.saver, lambda *_: None
    )
    adapter.boundary.resume_step = 5
    loop.begin(until=5)
    assert adapter.words.load(Word.PHASE) == RankPhase.FINISHED
    assert not loop.finishing()


@pytest.mark.parametrize(("until", "is_over"), [(9, True), (10, False), (None, False)])
def test_a_loop_that_its_script_ended_before_is_over(
    tmp_path: Path, until: int | None, is_over: bool
) -> None:
    """And not where another last step is wanted by now."""
    adapter = Adapter(tmp_path, begins=False)
    adapter.boundary.resume_step, adapter.boundary.ended = 5, TrainingEnd(5, until=9)
    adapter.words.store(Word.COMMITTED, 5)
    adapter.loop.begin(until=until)
    assert adapter.loop.is_over() is is_over
    if is_over:
        assert not adapter.loop.finishing()
        assert adapter.words.load(Word.PHASE) == RankPhase.FINISHED
    adapter.close()


def test_what_cannot_be_taken_stops_nobody(one_of_two: Adapter) -> None:
    """The others hear that it failed, and go on as this one does, until the next order."""
    one_of_two.loop.due(1)
    one_of_two.saver._contents.track({"part": Broken()})
    one_of_two.order(1, 2, Order.STOP)
    assert one_of_two.loop.due(2) is Due.NONE
    assert one_of_two.answers() == (2, 0, 0, 2)


class Broken:
    """A part that cannot be asked for its state."""

    def state_dict(self) -> None:
        raise RuntimeError("no")

    def load_state_dict(self, state: None) -> None: ...


@pytest.mark.parametrize(
    ("error", "is_of_another_model"),
    [
        (ValueError("shape (64,) is not (32,)"), True),
        (KeyError("layers.3"), True),
        (RuntimeError("Error(s) in loading state_dict for Model:\n\tsize mismatch"), True),
        (RuntimeError("[pair.cc:536] Connection closed by peer"), False),
        (MemoryError("no memory for 2 GB"), False),
        (OSError("Input/output error"), False),
        (ValueError("UNKNOWN: Error reading 'params/1/.zarray' [Input/output error]"), False),
        (ValueError("RESOURCE_EXHAUSTED: Failed to open file: Too many open files"), False),
        (ValueError("NOT_FOUND: Error opening driver: no array there"), True),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_told_from_a_failure(
    adapter: Adapter, error: Exception, is_of_another_model: bool
) -> None:
    """A neighbour that is lost while all restore must not end the run for good."""
    path = adapter.write(7)
    files = FrameworkFiles(adapter.folder, "step-*", adapter.ckpt_dir, 0, 1)
    loop = FrameworkLoop(files, path.name, adapter.boundary, adapter.saver, lambda *_: None)

    def load() -> None:
        try:
            raise KeyError("not among what is at hand")  # as libraries look things up
        except KeyError:
            raise error  # noqa: B904 - so they do

    with pytest.raises(Exception, match=r".") as told, loop.restoring():
        load()
    if is_of_another_model:
        assert isinstance(told.value, ConfigurationError)
        reason = " ".join(map(str.strip, str(error).splitlines()))
        assert f"{path} cannot be loaded ({reason})" in str(told.value)
    else:
        assert told.value is error
