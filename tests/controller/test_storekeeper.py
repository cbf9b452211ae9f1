"""What a supervisor does to its run's store: what it completes, deletes, and tells as durable.

What cannot be undone takes three steps: put it in the store, look at the lease again, do it.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from holdfast.controller import storekeeper
from holdfast.controller.storekeeper import TOO_LATE, AttemptFacts, Storekeeper
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.placement import place
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as news
from holdfast.core.save.choose import choose
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN, EXIT_UNAVAILABLE, RunHeld, StoreUnavailable
from holdfast.journal.attempts import attempts, create_attempt
from holdfast.journal.lease import Lease, acquire
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.receipt import DeclaredReplicas
from holdfast.snapshot.removal import Held, is_doomed
from holdfast.snapshot.sets import commit, list_sets, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging
from holdfast.snapshot.vault import open_vault
from holdfast.snapshot.vault_folder import FolderVault

LAST, CUT_OFF = 40, 30
LIMIT_S = 60.0


def write(folder: RunFolder, step: int, *ranks: int, attempt: int = 0) -> None:
    """The shards of these, of two ranks."""
    for rank in ranks:
        captured = Staging().capture({"state": step}, rank, 2)
        place = folder.ckpt_dir / set_name(attempt, step)
        write_shard(place, captured, attempt=attempt, step=step, rank=rank, world_size=2)
        captured.release()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The last step is durable; of an older one, whose flush was cut off, one rank's shard is."""
    folder = RunStore(tmp_path).create("r")
    write(folder, LAST, 0, 1)
    write(folder, CUT_OFF, 0)
    commit(folder.ckpt_dir / set_name(0, LAST), 2)
    return folder


def keeper_of(
    folder: RunFolder, lease: Held, feed: Callable[[ev.Event], None] = lambda _: None
) -> tuple[Storekeeper, list[str]]:
    """A storekeeper, and what it says."""
    said: list[str] = []
    keeper = Storekeeper(
        folder,
        lease,
        Keep(3),
        AttemptFacts(),
        later=lambda job: job(),
        feed=feed,
        say=said.append,
    )
    return keeper, said


def close(folder: RunFolder, lease: Lease, *, is_done: bool) -> list[str]:
    """End a run; what was said of it."""
    keeper, said = keeper_of(folder, lease)
    keeper.protect((0, CUT_OFF))
    assert keeper.close(LIMIT_S, is_done=is_done)
    return said


def left(folder: RunFolder) -> tuple[int, int]:
    """How many sets are complete, and how many are not."""
    return len(list_sets(folder.ckpt_dir)[0]), len(partial(folder))


def partial(folder: RunFolder) -> set[str]:
    complete, _ = list_sets(folder.ckpt_dir)
    return open_vault(folder.ckpt_dir).look().keys() - {one.path.name for one in complete}


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


WISH = Wish("corruption-0000-41", LAST, 0, "silent corruption by step 41", is_from_script=False)


def test_a_wish_of_the_controllers_own_is_there_for_the_next_one(folder: RunFolder) -> None:
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.keep_wish(WISH)
    assert keeper.close(LIMIT_S, is_done=False)
    assert standing_wishes(folder) == (WISH,)
    assert said == []


def test_a_wish_of_a_controller_that_has_lost_the_run_is_told_alone(folder: RunFolder) -> None:
    lease = acquire(folder)
    lease.release()
    acquire(folder)
    keeper, said = keeper_of(folder, lease)
    keeper.keep_wish(WISH)
    keeper.close(LIMIT_S, is_done=False)
    assert standing_wishes(folder) == ()
    assert said[0].startswith("A later start may not go back by itself (silent corruption by step")


def test_the_set_that_was_compared_last_outlives_those_after_it(folder: RunFolder) -> None:
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    told: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
    keeper, _ = keeper_of(folder, acquire(folder), told.put)
    keeper.keep_compared(LAST)
    for step in range(LAST + 1, LAST + 5):
        write(folder, step, 0, 1)
        keeper.commit(0, step, step, 2)
    assert keeper.close(LIMIT_S, is_done=False)
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST, *range(42, 45)]


def test_an_attempt_from_before_is_closed_once_the_store_is_back(folder: RunFolder) -> None:
    """A store that is away looks like one in which nothing was launched."""
    lease = acquire(folder)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, epoch=lease.epoch)
    told: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
    keeper, said = keeper_of(folder, lease, told.put)
    keeper.inherit(0)
    records = folder.path / "attempts"
    records.rename(folder.path / "away")
    keeper.look(None)
    failed = told.get(timeout=LIMIT_S)
    assert isinstance(failed, ev.ChoiceFailed)
    assert failed.is_away
    (folder.path / "away").rename(records)
    keeper.look(None)
    assert isinstance(told.get(timeout=LIMIT_S), ev.SetsSeen)
    assert attempts(folder).records[0].end is not None
    assert len(said) == 1
    assert keeper.close(LIMIT_S, is_done=False)


def test_an_incident_is_told_by_the_rank_that_broke(folder: RunFolder) -> None:
    lease = acquire(folder)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, epoch=lease.epoch)
    keeper, said = keeper_of(folder, lease)
    ended = (
        RankEvidence(0, -15, ("waiting",)),
        RankEvidence(1, 1, ("step 5", "No!"), "ValueError: No!", "all stacks", "train.py:7"),
    )
    words = "rank 1: ValueError at train.py:7"
    keeper.end_attempt(act.EndAttempt(0, "failed", words, 1, is_incident=True), ended)
    assert keeper.close(LIMIT_S, is_done=False)
    assert said == []
    story = json.loads((folder.incidents_dir(0) / "incident.json").read_text())
    wanted = {
        "attempt": 0, "cause": "failed", "words": words, "rank": 1, "exits": [-15, 1],
        "last_lines": ["step 5", "No!"], "traceback": "ValueError: No!",
        "stacks": ["rank-00001.stacks.txt"], "where": "",
    }  # fmt: skip
    assert {name: story[name] for name in wanted} == wanted
    assert (folder.incidents_dir(0) / "rank-00001.stacks.txt").read_text() == "all stacks"


@pytest.mark.parametrize("is_flushing", [False, True])
def test_shards_of_a_save_that_failed_go_with_the_next_one(
    folder: RunFolder, is_flushing: bool
) -> None:
    """One rank had no room for its shard. A newer set is being written."""
    write(folder, LAST + 10, 0, 1)
    write(folder, LAST + 20, 0)
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.protect((0, CUT_OFF) if is_flushing else None)
    keeper.commit(0, 1, LAST + 10, 2)
    assert keeper.close(LIMIT_S, is_done=False)
    assert said == []
    assert left(folder) == (2, 2 if is_flushing else 1)


@pytest.mark.parametrize("is_equal", [True, False])
def test_what_the_ranks_have_written_themselves_is_compared_before_it_is_told_as_durable(
    folder: RunFolder, *, is_equal: bool
) -> None:
    for rank in (0, 1):
        model = {"w": np.full(4, 0 if is_equal else rank), "own": np.full(4, rank)}
        captured = Staging().capture({"state": {"model": model}}, rank, 2)
        write_shard(
            folder.ckpt_dir / set_name(0, LAST + 10),
            captured,
            attempt=0,
            step=LAST + 10,
            rank=rank,
            world_size=2,
            declared=DeclaredReplicas(("state/model",), ("state/model/own",)),
        )
        captured.release()
    told: list[ev.Event] = []
    keeper, said = keeper_of(folder, acquire(folder), told.append)
    keeper.commit(0, 1, LAST + 10, 2)
    assert keeper.close(LIMIT_S, is_done=False)
    compared, committed = told
    assert isinstance(compared, ev.Compared)
    assert (compared.of_attempt, compared.step) == (0, LAST + 10)
    assert [one.array for one in compared.differing] == ([] if is_equal else ["state/model/w"])
    assert isinstance(committed, ev.Heard)
    assert said == []


def test_a_bug_in_completing_a_set_fails_the_save_and_keeps_nobody_waiting(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(Catalog, "commit", broken)
    told: list[ev.Event] = []
    keeper, said = keeper_of(folder, acquire(folder), told.append)
    keeper.commit(0, 1, LAST + 10, 2)
    assert keeper.close(LIMIT_S, is_done=False)
    (heard,) = told
    assert isinstance(heard, ev.Heard)
    why = "internal error of Holdfast: RecursionError('too deep')"
    assert heard.news == news.CommitFailed(heard.at_ns, 1, LAST + 10, why)
    assert said == [f"The checkpoint of step {LAST + 10} could not be completed: {why}"]


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
    assert partial(folder) == {set_name(0, LAST + 20)}


class Disk:
    """One with room for so many sets, whatever their size."""

    def __init__(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, sets: int) -> None:
        self.sets = sets
        self._folder = folder
        monkeypatch.setattr("holdfast.snapshot.catalog.free_in", self._free_bytes)

    def _free_bytes(self, _: Path) -> int:
        return (self.sets - len(list_sets(self._folder.ckpt_dir)[0])) << 30


def test_a_store_with_room_for_what_is_kept_alone_is_told_once(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes before the next save from then on; one that is complete stays in any case."""
    Disk(folder, monkeypatch, sets=3)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    steps = [LAST + 10, LAST + 20]
    for step in steps:
        write(folder, step, 0, 1)
        commit(folder.ckpt_dir / set_name(0, step), 2)
    keeper, said = keeper_of(folder, acquire(folder))
    keeper.make_room(0, LAST + 30)
    keeper.make_room(0, LAST + 30)
    write(folder, LAST + 30, 0, 1)
    keeper.commit(0, 1, LAST + 30, 2)
    assert keeper.close(LIMIT_S, is_done=False)
    (words,) = said
    assert "no room for another checkpoint: from now on the oldest is deleted before" in words
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST + 20, LAST + 30]


def test_a_store_with_room_for_fewer_than_are_kept_gives_up_its_oldest(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three are to be kept, and the disk is full with two: each save would fail for ever."""
    Disk(folder, monkeypatch, sets=2)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    keeper, said = keeper_of(folder, acquire(folder))
    for step in (LAST + 10, LAST + 20):
        write(folder, step, 0, 1)
        keeper.commit(0, 1, step, 2)
        keeper.make_room(0, step + 10)
    assert keeper.close(LIMIT_S, is_done=False)
    (words,) = said
    assert f"(deleted: {set_name(0, LAST)})" in words
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST + 20]


def test_as_many_are_kept_as_there_is_room_for_at_the_time(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write to the same disk, and delete there."""
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    disk, catalog = Disk(folder, monkeypatch, sets=3), Catalog(folder, lease=acquire(folder))

    def saved(step: int) -> list[int]:
        write(folder, step, 0, 1)
        commit(folder.ckpt_dir / set_name(0, step), 2)
        catalog.collect(Keep(3), ())
        return [one.step for one in list_sets(folder.ckpt_dir)[0]]

    assert saved(LAST + 1) == [LAST, LAST + 1]
    assert saved(LAST + 2) == [LAST, LAST + 1, LAST + 2]
    assert catalog.make_room(Keep(3))
    disk.sets = 2
    assert catalog.make_room(Keep(3)) == ""
    assert saved(LAST + 3) == [LAST + 3]
    disk.sets = 9
    for step in range(LAST + 4, LAST + 7):
        kept = saved(step)
    assert kept == [LAST + 4, LAST + 5, LAST + 6]
    disk.sets = 3
    assert saved(LAST + 7) == [LAST + 6, LAST + 7]


def test_the_only_checkpoint_is_never_deleted_to_make_room(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.snapshot.catalog.free_in", lambda _: 0)
    keeper, _ = keeper_of(folder, acquire(folder))
    keeper.make_room(0, LAST + 30)
    assert keeper.close(LIMIT_S, is_done=False)
    assert [one.step for one in list_sets(folder.ckpt_dir)[0]] == [LAST]


# ---- what cannot be undone


@dataclass
class Looked:
    """A lease, and what happens before each look at it; nothing, once the list is over."""

    lease: Lease
    before: list[Callable[[], object]] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Of the lease."""
        return self.lease.epoch

    def check(self) -> None:
        """Look."""
        if self.before:
            self.before.pop(0)()
        self.lease.check()


class Kept:
    """A storekeeper, what it says, and what it tells the run's machine."""

    def __init__(
        self, folder: RunFolder, lease: Held, *, last: int = 3, is_heard: bool = True
    ) -> None:
        """`is_heard`: there is a loop that hears of it."""
        self.said: list[str] = []
        self.lost: list[str] = []
        self.told: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self.keeper = Storekeeper(
            folder,
            lease,
            Keep(last),
            AttemptFacts(),
            later=lambda job: job() if is_heard else None,
            feed=self.told.put,
            say=self.said.append,
            lost=self.lost.append,
        )

    def next(self) -> ev.Event:
        """What it tells next."""
        return self.told.get(timeout=LIMIT_S)

    def close(self) -> list[ev.Event]:
        """End it; what it has told and nobody has heard."""
        assert self.keeper.close(LIMIT_S, is_done=False)
        return [self.told.get() for _ in range(self.told.qsize())]


def nothing() -> None:
    """Nothing happens."""


def away() -> None:
    """The store does not answer."""
    raise StoreUnavailable("cannot check the lease: no answer")


def take_over(folder: RunFolder, lease: Lease) -> Lease:
    """Another supervisor takes the run of one that it holds for dead."""
    lease.release()
    return acquire(folder)


def steps(folder: RunFolder) -> list[int]:
    """Of the complete sets."""
    return [one.step for one in list_sets(folder.ckpt_dir)[0]]


@pytest.fixture
def run(folder: RunFolder) -> RunFolder:
    """An attempt is on record, and the shards of a newer step than the last are durable."""
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, epoch=1)
    write(folder, LAST + 10, 0, 1)
    return folder


def start(told: ev.SetsSeen) -> ev.Resume:
    """What the core chooses of that."""
    chosen, _ = choose(told.seen)
    assert isinstance(chosen, ev.Resume)
    return chosen


def test_there_is_no_choice_without_what_is_whole(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predecessor died before the manifest. Where it cannot be written, the store is away."""
    kept = Kept(run, acquire(run))

    def full(*_: object) -> None:
        raise StoreUnavailable("cannot write manifest.json: no space left")

    with monkeypatch.context() as patch:
        patch.setattr(FolderVault, "put_manifest", full)
        kept.keeper.look(None)
        failed = kept.next()
    assert isinstance(failed, ev.ChoiceFailed)
    assert (failed.is_away, failed.exit_code) == (True, EXIT_UNAVAILABLE)
    assert "no space left" in failed.words
    assert partial(run) == {set_name(0, LAST + 10)}  # whole: never deleted
    kept.keeper.look(None)
    chosen = kept.next()
    assert isinstance(chosen, ev.SetsSeen)
    assert start(chosen).step == LAST + 10
    assert kept.close() == []


def test_what_never_will_be_whole_makes_room_for_a_manifest(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = FolderVault.put_manifest

    def full(vault: FolderVault, name: str, value: dict[str, object]) -> None:
        if set_name(0, CUT_OFF) in vault.look():
            raise StoreUnavailable("cannot write manifest.json: no space left")
        put(vault, name, value)

    monkeypatch.setattr(FolderVault, "put_manifest", full)
    kept = Kept(run, acquire(run))
    kept.keeper.look(None)
    chosen = kept.next()
    assert isinstance(chosen, ev.SetsSeen)
    assert start(chosen).step == LAST + 10
    assert kept.close() == []


def test_a_set_that_is_whole_is_completed_and_not_dropped(run: RunFolder) -> None:
    """Its manifest could not be written. A later step of the same attempt has no room."""
    kept = Kept(run, acquire(run))
    kept.keeper.make_room(0, LAST + 20)
    assert kept.close() == []
    assert steps(run) == [LAST, LAST + 10]
    assert not partial(run)


def test_a_run_that_was_taken_over_after_the_manifest_tells_no_verdict(run: RunFolder) -> None:
    """Its successor may have chosen before. Nothing is deleted either."""
    lease = acquire(run)
    kept = Kept(run, Looked(lease, [nothing, lambda: take_over(run, lease)]), last=1)
    kept.keeper.commit(0, 1, LAST + 10, 2)
    assert kept.close() == []
    (words,) = kept.lost
    assert "was taken over" in words
    assert steps(run) == [LAST, LAST + 10]
    assert partial(run) == {set_name(0, CUT_OFF)}


@pytest.mark.parametrize("is_from_memory", [False, True])
def test_while_nobody_knows_whose_the_run_is_nothing_is_told(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, is_from_memory: bool
) -> None:
    monkeypatch.setattr(storekeeper, "LOOK_AGAIN_S", 0.0)
    there: list[list[int]] = []

    def gone() -> None:
        there.append(steps(run))
        away()

    kept = Kept(run, Looked(acquire(run), [nothing, gone, gone, gone]), last=1)
    if is_from_memory:
        kept.keeper.commit_flushed(act.CommitFlushed(0, 1, LAST + 10, 2))
        assert isinstance(kept.next(), ev.FlushCommitted)
    else:
        kept.keeper.commit(0, 1, LAST + 10, 2)
        told = kept.next()
        assert isinstance(told, ev.Heard)
        assert isinstance(told.news, news.Committed)
    assert there == [[LAST, LAST + 10]] * 3  # the manifest was there, and the older set too
    assert kept.close() == []
    assert len(kept.said) == 1
    assert "does not count yet" in kept.said[0]
    assert steps(run) == [LAST + 10]


def test_a_slow_deletion_does_not_meet_a_rollback(run: RunFolder) -> None:
    """Taken over between the marks and the look: what the successor has chosen is not deleted."""
    first = acquire(run)
    other: list[Lease] = []

    def roll_back() -> None:
        """The successor goes back to the set that is about to be deleted, and marked by now."""
        other.append(take_over(run, first))
        create_attempt(
            run, 1, parent=0, resume_step=LAST, restore_set=set_name(0, LAST), epoch=other[0].epoch
        )

    looks = [nothing, nothing, nothing, nothing, roll_back]
    kept = Kept(run, Looked(first, looks), last=1)
    kept.keeper.commit(0, 1, LAST + 10, 2)
    kept.close()
    assert looks == []
    assert "was taken over" in kept.said[-1]
    (old, _) = list_sets(run.ckpt_dir)[0]
    assert (old.step, old.doomed_by) == (LAST, 1)
    assert not is_doomed(old.name, old.doomed_by, attempts(run).records)
    kept = Kept(run, other[0], last=1)
    kept.keeper.look(None)
    chosen = kept.next()
    assert isinstance(chosen, ev.SetsSeen)
    assert start(chosen).step == LAST
    kept.close()
    assert steps(run) == [LAST, LAST + 10]


def test_a_set_that_is_being_removed_is_not_chosen_and_the_next_supervisor_removes_it(
    run: RunFolder,
) -> None:
    """The first one was killed between the mark and the deletion."""
    commit(run.ckpt_dir / set_name(0, LAST + 10), 2)
    (run.ckpt_dir / set_name(0, LAST + 10) / "doomed-000001").touch()
    (run.ckpt_dir / set_name(0, CUT_OFF) / "doomed-000001").touch()
    take_over(run, acquire(run)).release()
    kept = Kept(run, acquire(run))
    kept.keeper.look(None)
    chosen = kept.next()
    assert isinstance(chosen, ev.SetsSeen)
    assert start(chosen).step == LAST
    assert kept.close() == []
    assert kept.said == []
    assert left(run) == (1, 0)


def test_nothing_is_deleted_while_nobody_knows_whose_the_run_is(run: RunFolder) -> None:
    looks = [nothing, nothing, nothing, nothing, away]
    kept = Kept(run, Looked(acquire(run), looks), last=1)
    kept.keeper.commit(0, 1, LAST + 10, 2)
    (told,) = kept.close()
    assert isinstance(told, ev.Heard)
    assert isinstance(told.news, news.Committed)
    assert looks == []
    assert kept.said == ["Old checkpoints could not be removed: cannot check the lease: no answer"]
    assert steps(run) == [LAST, LAST + 10]


def test_a_mark_that_comes_too_late_does_not_take_what_the_successor_writes(
    run: RunFolder,
) -> None:
    """Between two attempts the first one cleans up, and finds the successor's first shards."""
    first = acquire(run)
    second = take_over(run, first)
    name = set_name(1, LAST + 20)
    create_attempt(
        run, 1, parent=0, resume_step=LAST, restore_set=set_name(0, LAST), epoch=second.epoch
    )
    write(run, LAST + 20, 0, 1, attempt=1)
    (run.ckpt_dir / name / "doomed-000001").touch()
    second.release()
    kept = Kept(run, acquire(run))
    kept.keeper.look(None)  # its manifest is missing still
    chosen = kept.next()
    assert isinstance(chosen, ev.SetsSeen)
    assert start(chosen).set_name == name
    kept.close()


def refused(folder: RunFolder, lease: Held) -> tuple[ev.LaunchFailed, list[ev.Event]]:
    """What comes of a launch of attempt 0, which is on record."""
    kept = Kept(folder, lease)
    kept.keeper.create_attempt(act.Launch(0, ev.SCRATCH, place(1, [0])), nothing)
    failed = kept.next()
    assert isinstance(failed, ev.LaunchFailed)
    return failed, kept.close()


def test_a_number_that_one_without_the_run_has_taken_wants_another_start(
    folder: RunFolder,
) -> None:
    """That one was away for long between its look at the lease and the record."""
    late = acquire(folder)
    lease = take_over(folder, late)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, epoch=late.epoch)
    failed, _ = refused(folder, lease)
    assert failed.exit_code == EXIT_SAVED_START_ME_AGAIN
    assert "start it again" in failed.words


def test_a_number_that_a_newer_supervisor_has_taken_ends_the_older_one(folder: RunFolder) -> None:
    """It slept after its look at the lease."""
    old = acquire(folder)
    newer = take_over(folder, old)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, epoch=newer.epoch)

    def replaced() -> None:
        raise RunHeld("another supervisor holds the run")

    failed, _ = refused(folder, Looked(newer, [nothing, replaced]))
    assert failed.exit_code == EXIT_UNAVAILABLE


def test_an_attempt_that_the_store_takes_when_the_run_is_over_has_an_end(
    folder: RunFolder,
) -> None:
    """The loop turns no more, and nobody hears that it is there."""
    kept = Kept(folder, acquire(folder), is_heard=False)
    kept.keeper.create_attempt(act.Launch(0, ev.SCRATCH, place(1, [0])), nothing)
    kept.close()
    (record,) = attempts(folder).records
    assert record.end is not None
    assert (record.end.cause, record.end.words) == ("stopped", TOO_LATE)
