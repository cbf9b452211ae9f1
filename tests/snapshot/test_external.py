"""A framework's checkpoint as a set knows it: what is there, what changed, who may say where."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, CorruptCheckpoint
from holdfast.snapshot.external import (
    External,
    below,
    check_sizes,
    external_of,
    read_external,
    united,
    verify_external,
)
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.retention import collect, pin
from holdfast.snapshot.sets import SetInfo, commit, parse_set_name, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

HELD: Any = SimpleNamespace(epoch=1, check=lambda: None)  # a lease that nobody else takes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "checkpoints"
    for name, text in (("step-3/a/one", "first"), ("step-3/two", "second"), ("step-3/empty", "")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


@pytest.fixture
def whole(folder: Path) -> External:
    return read_external(folder, "step-3", 0, 1)


def test_it_is_read_whole_by_any_number_of_ranks(folder: Path, whole: External) -> None:
    assert [file.name for file in whole.files] == ["a/one", "empty", "two"]
    assert whole.nbytes == 11
    for ranks in (2, 3, 5):
        parts = [read_external(folder, "step-3", rank, ranks) for rank in range(ranks)]
        assert united(parts) == whole


def test_what_was_written_is_brought_to_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    whole = read_external(folder, "step-3", 0, 1)
    names = ["a", "a/one", "two", "empty"]
    assert {*synced} == {folder, folder / "step-3", *(folder / "step-3" / one for one in names)}
    synced.clear()
    verify_external(whole, folder)
    assert synced == []


def test_it_survives_json(whole: External) -> None:
    assert External.from_json(whole.to_json()) == whole
    assert external_of({"external": whole.to_json()}) == whole
    assert external_of({}) is None


def test_one_file_is_a_checkpoint_too(folder: Path) -> None:
    one = read_external(folder, "step-3/two", 0, 1)
    assert [(file.name, file.nbytes) for file in one.files] == [("", 6)]
    check_sizes(one)
    verify_external(one, folder)
    (folder / "step-3/two").write_text("SECOND")
    with pytest.raises(CorruptCheckpoint, match="its bytes differ"):
        verify_external(one, folder)


def test_every_flipped_byte_is_found_by_the_rank_whose_share_it_is(
    folder: Path, whole: External
) -> None:
    for file in whole.files:
        path = folder / "step-3" / file.name
        good = path.read_bytes()
        for place in range(len(good)):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            check_sizes(whole)
            blamed = []
            for rank in range(2):
                try:
                    verify_external(whole, folder, rank, 2)
                except CorruptCheckpoint:
                    blamed.append(rank)
            assert blamed == [whole.files.index(file) % 2]
        path.write_bytes(good)
    verify_external(whole, folder)


def test_what_is_gone_or_cut_short_is_seen_without_reading(folder: Path, whole: External) -> None:
    (folder / "step-3/two").write_text("sec")
    with pytest.raises(CorruptCheckpoint, match="has 3 bytes, not 6"):
        check_sizes(whole)
    (folder / "step-3/two").unlink()
    with pytest.raises(CorruptCheckpoint, match="is gone"):
        check_sizes(whole)
    with pytest.raises(CorruptCheckpoint, match="is gone"):
        verify_external(whole, folder)


@pytest.mark.parametrize("other", ["pipe", "folder", "/dev/zero"])
def test_what_is_no_file_is_not_waited_for(folder: Path, whole: External, other: str) -> None:
    """Whoever writes a store can name any place in a manifest, and `ckpt verify` reads it."""
    path = folder / "step-3/two"
    path.unlink()
    if other == "pipe":
        os.mkfifo(path)
    elif other == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
    with pytest.raises(CorruptCheckpoint, match=r"is no file|cannot be read"):
        verify_external(whole, folder)


def test_a_host_that_does_not_see_the_folder_says_nothing(folder: Path, whole: External) -> None:
    check_sizes(replace(whole, folder=str(folder.with_name("elsewhere"))))


def test_nothing_is_no_checkpoint(folder: Path) -> None:
    (folder / "step-4").mkdir()
    for name in ("step-4", "step-5"):
        with pytest.raises(CorruptCheckpoint, match="no checkpoint was written there"):
            read_external(folder, name, 0, 1)


def test_ranks_that_saw_different_things_do_not_agree(folder: Path) -> None:
    first = read_external(folder, "step-3", 0, 2)
    (folder / "step-3/late").write_text("written after rank 0 had looked")
    with pytest.raises(ValueError, match="different checkpoints"):
        united([first, read_external(folder, "step-3", 1, 2)])
    with pytest.raises(ValueError, match="have read 4 of 3"):
        united([first, replace(first, files=first.files)])


@pytest.mark.parametrize("path", ["step-3/../../x", "", ".", "../checkpoints-2/step-3", "/etc"])
def test_only_what_lies_below_the_folder_is_taken(
    folder: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigurationError, match="is not below"):
        below(folder, path)
    assert below(folder, "step-3") == below(folder, folder / "step-3") == "step-3"


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../b", "a\0b"])
@pytest.mark.parametrize("which", ["path", "file"])
def test_a_manifest_cannot_lead_out_of_the_folder(whole: External, name: str, which: str) -> None:
    said = whole.to_json()
    if which == "path":
        said["path"] = name
    else:
        said["files"][0]["name"] = name
    with pytest.raises(CorruptCheckpoint, match="is no path below"):
        external_of({"external": said})


@pytest.mark.parametrize("said", [1, [], {}, {"folder": 1, "path": "a", "seen": 1, "files": []}])
def test_rubbish_is_named_so(said: object) -> None:
    with pytest.raises(CorruptCheckpoint, match="the framework's files"):
        external_of({"external": said})


@pytest.fixture
def sets(tmp_path: Path) -> list[SetInfo]:
    """Four sets, each of which stands for a framework's checkpoint."""
    made, ckpt = [], tmp_path / "ckpt"
    ckpt.mkdir()
    for step in range(1, 5):
        checkpoint = tmp_path / "checkpoints" / f"step-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_text("weights")
        captured = Staging().capture({}, 0, 1)
        place = ckpt / set_name(0, step)
        found = read_external(checkpoint.parent, checkpoint.name, 0, 1)
        write_shard(place, captured, attempt=0, step=step, rank=0, world_size=1, external=found)
        made.append(commit(place, 1))
    return made


def gone(tmp_path: Path, last: int = 4) -> list[int]:
    """The steps of the sets that retention deletes now."""
    names = collect(tmp_path / "ckpt", tmp_path / "pins.json", Keep(last=last), HELD)
    return [place[1] for name in names if (place := parse_set_name(name)) is not None]


def test_a_set_goes_once_its_framework_has_removed_the_checkpoint(
    tmp_path: Path, sets: list[SetInfo]
) -> None:
    assert gone(tmp_path) == []
    shutil.rmtree(tmp_path / "checkpoints" / "step-2")
    assert gone(tmp_path) == [2]
    shutil.rmtree(tmp_path / "checkpoints" / "step-3")
    pin(tmp_path / "pins.json", "best", sets[2].name)  # somebody wants to know of it
    assert gone(tmp_path) == []
    assert gone(tmp_path, last=1) == [1]


@pytest.mark.parametrize("away", ["folder", "all that was in it", "a file"])
def test_what_may_come_back_or_is_damaged_stays(
    tmp_path: Path, sets: list[SetInfo], away: str
) -> None:
    folder = tmp_path / "checkpoints"
    if away == "a file":
        (folder / "step-2" / "weights").unlink()
    else:
        shutil.rmtree(folder)
    if away == "all that was in it":
        folder.mkdir()  # a mount point with nothing mounted
    assert gone(tmp_path) == []
    assert len(list(sets[0].path.parent.glob("0*"))) == len(sets)
