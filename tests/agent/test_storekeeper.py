"""Which incomplete sets a run leaves in its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.storekeeper import Storekeeper
from holdfast.core import agree_events as news
from holdfast.journal.attempts import create_attempt
from holdfast.journal.lease import Lease, acquire
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.sets import commit, list_sets, partial_sets, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

LAST, CUT_OFF = 40, 30
LIMIT_S = 60.0


def write(folder: RunFolder, step: int, *ranks: int) -> None:
    """The shards of these, of two ranks."""
    for rank in ranks:
        captured = Staging().capture({"state": step}, rank, 2)
        place = folder.ckpt_dir / set_name(0, step)
        write_shard(place, captured, attempt=0, step=step, rank=rank, world_size=2)
        captured.release()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The last step is durable; of an older one, whose drain was cut off, one rank's shard is."""
    folder = RunStore(tmp_path).create("r")
    write(folder, LAST, 0, 1)
    write(folder, CUT_OFF, 0)
    commit(folder.ckpt_dir / set_name(0, LAST), 2)
    return folder


def keeper_of(folder: RunFolder, lease: Lease) -> tuple[Storekeeper, list[str]]:
    """A storekeeper, and what it says."""
    said: list[str] = []
    keeper = Storekeeper(
        folder, lease, Keep(3), later=lambda job: job(), feed=lambda _: None, say=said.append
    )
    return keeper, said


def close(folder: RunFolder, lease: Lease, *, is_done: bool) -> list[str]:
    """End a run; what was said of it."""
    keeper, said = keeper_of(folder, lease)
    keeper.draining(set_name(0, CUT_OFF))
    assert keeper.close(LIMIT_S, is_done=is_done)
    return said


def left(folder: RunFolder) -> tuple[int, int]:
    """How many sets are complete, and how many are not."""
    return len(list_sets(folder.ckpt_dir)[0]), len(partial_sets(folder.ckpt_dir))


def test_a_run_that_is_done_leaves_no_incomplete_set(folder: RunFolder) -> None:
    assert close(folder, acquire(folder), is_done=True) == []
    assert left(folder) == (1, 0)


def test_a_run_that_may_go_on_leaves_them_to_the_next_start(folder: RunFolder) -> None:
    """That completes those of which only the manifest is missing."""
    assert close(folder, acquire(folder), is_done=False) == []
    assert left(folder) == (1, 1)


def test_what_another_supervisor_writes_is_left_alone(folder: RunFolder) -> None:
    lease = acquire(folder)
    lease.release()
    acquire(folder)
    (said,) = close(folder, lease, is_done=True)
    assert "was taken over" in said
    assert left(folder) == (1, 1)


@pytest.mark.parametrize("is_draining", [False, True])
def test_shards_of_a_save_that_failed_go_with_the_next_one(
    folder: RunFolder, is_draining: bool
) -> None:
    """One rank had no room for its shard. A newer set is being written."""
    write(folder, LAST + 10, 0, 1)
    write(folder, LAST + 20, 0)
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.draining(set_name(0, CUT_OFF) if is_draining else None)
    keeper.commit(0, news.Commit(1, LAST + 10), 2)
    assert keeper.close(LIMIT_S, is_done=False)
    assert said == []
    assert left(folder) == (2, 2 if is_draining else 1)


def test_room_is_made_of_what_was_not_completed_before_a_step_that_does_not_fit(
    folder: RunFolder,
) -> None:
    """While the run is held: nothing is committed then. The step itself is still being written."""
    write(folder, LAST + 10, 0)
    write(folder, LAST + 20, 0)
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.make_room(0, LAST + 20)
    assert keeper.close(LIMIT_S, is_done=False)
    assert said == []
    assert partial_sets(folder.ckpt_dir) == (set_name(0, LAST + 20),)


def test_a_store_with_room_for_what_is_kept_alone_is_told_once(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes before the next save from then on; one that is complete stays in any case."""
    monkeypatch.setattr("holdfast.snapshot.catalog.free_in", lambda _: 0)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    steps = [LAST + 10, LAST + 20]
    for step in steps:
        write(folder, step, 0, 1)
        commit(folder.ckpt_dir / set_name(0, step), 2)
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.make_room(0, LAST + 30)
    keeper.make_room(0, LAST + 30)
    write(folder, LAST + 30, 0, 1)
    keeper.commit(0, news.Commit(1, LAST + 30), 2)
    assert keeper.close(LIMIT_S, is_done=False)
    (words,) = said
    assert "no room for another checkpoint: from now on the oldest is deleted before" in words
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST + 20, LAST + 30]


def test_the_only_checkpoint_is_never_deleted_to_make_room(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.snapshot.catalog.free_in", lambda _: 0)
    keeper, _ = keeper_of(folder, acquire(folder))
    keeper.make_room(0, LAST + 30)
    assert keeper.close(LIMIT_S, is_done=False)
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST]
