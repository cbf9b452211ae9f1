"""A rank whose run store is away while it starts: that is no mistake in the command."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.store import RunStore
from holdfast.session.restore import _while_there
from holdfast.session.store_away import STORE_LIMIT_S, folder_of
from holdfast.snapshot.receipt import MANIFEST, shard_name
from holdfast.snapshot.sealed import read_sealed, write_sealed
from holdfast.snapshot.sets import check_size


class Clock:
    """Time passes by sleeping; `store` comes back to its place after so long."""

    def __init__(self, store: Path, back_s: float) -> None:
        self.store, self.back_s, self.at_s = store, back_s, 0.0
        self.away = store.rename(store.with_name("away"))

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, for_s: float) -> None:
        before_s, self.at_s = self.at_s, self.at_s + for_s
        if before_s < self.back_s <= self.at_s:
            self.away.rename(self.store)


def test_it_is_waited_for(tmp_path, capsys):
    store = tmp_path / "store"
    folder = RunStore.at(str(store)).create("r")
    clock = Clock(store, 10.0)
    found = folder_of(str(store), "r", clock_s=clock.now_s, sleep=clock.sleep)
    assert found.identity == folder.identity
    assert clock.at_s == pytest.approx(10.0, abs=1.0)
    told = capsys.readouterr().err
    assert told.count(f"Waiting for the run store: there is no folder {store} any more;") == 1
    assert "no run is named" not in told


def test_one_that_stays_away_is_no_configuration_error(tmp_path):
    store = tmp_path / "store"
    RunStore.at(str(store)).create("r")
    clock = Clock(store, 2 * STORE_LIMIT_S)
    with pytest.raises(StoreUnavailable, match=r"no run store for 60 s: .*store is mounted"):
        folder_of(str(store), "r", clock_s=clock.now_s, sleep=clock.sleep)


def test_a_folder_on_which_nothing_is_mounted_any_more_is_said(tmp_path):
    store = tmp_path / "store"
    place = RunStore.at(str(store))
    place.create("r")
    store.rename(tmp_path / "away")
    store.mkdir()
    with pytest.raises(StoreUnavailable, match=r"run 'r' is not in .*/store any more; check that"):
        place.get_again("r")


def test_a_restore_waits_for_it_and_calls_nothing_damaged(tmp_path):
    """The manifest is missing while the whole store is: that says nothing of the checkpoint."""
    store = tmp_path / "store"
    folder = RunStore.at(str(store)).create("r")
    manifest = folder.ckpt_dir / "0000-000000000001" / MANIFEST
    manifest.parent.mkdir()
    write_sealed(manifest, {"step": 1})
    clock = Clock(store, 10.0)
    wait = partial(folder_of, clock_s=clock.now_s, sleep=clock.sleep)
    assert _while_there(folder, lambda: read_sealed(manifest), wait) == {"step": 1}
    assert clock.at_s == pytest.approx(10.0, abs=1.0)


def test_a_file_that_is_missing_in_a_store_that_is_there_is_damage(tmp_path):
    store = tmp_path / "store"
    folder = RunStore.at(str(store)).create("r")
    reads = []

    def read():
        reads.append(1)
        return read_sealed(folder.ckpt_dir / "0000-000000000001" / MANIFEST)

    with pytest.raises(CorruptCheckpoint, match="is missing"):
        _while_there(folder, read)
    assert len(reads) == 1


def test_a_shard_that_is_not_listed_is_looked_for_where_it_should_be(tmp_path):
    set_dir = RunStore.at(str(tmp_path / "store")).create("r").ckpt_dir / "0000-000000000001"
    set_dir.mkdir()
    with pytest.raises(CorruptCheckpoint, match="is missing") as found:
        check_size(set_dir, 0, 100)
    assert found.value.__cause__.filename == str(set_dir / shard_name(0))
