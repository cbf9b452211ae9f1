from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from holdfast.errors import CorruptCheckpoint, DataTopologyChanged, StoreUnavailable
from holdfast.snapshot import manifest, sets, vault_folder
from holdfast.snapshot.manifest import tiles
from holdfast.snapshot.reader import verify
from holdfast.snapshot.restore import load_path, read_set
from holdfast.snapshot.sets import (
    commit,
    finish_commits,
    list_sets,
    parse_set_name,
    set_name,
)
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Captured, Staging
from holdfast.snapshot.vault import open_vault


def captured(tree: Any = None, rank: int = 0, world_size: int = 1) -> Captured:
    return Staging().capture(tree or {"state": {"w": np.arange(9.0)}}, rank, world_size)


def write(place: Path, rank: int = 0, world_size: int = 1, tree: Any = None, **more: Any) -> None:
    attempt, step = parse_set_name(place.name) or (0, 0)
    write_shard(
        place,
        captured(tree, rank, world_size),
        **{"attempt": attempt, "step": step, "rank": rank, "world_size": world_size} | more,
    )


def test_names_sort_and_parse() -> None:
    names = [set_name(0, 9), set_name(0, 10), set_name(7, 41000), set_name(12345, 2**40 - 1)]
    assert names[2] == "0007-000000041000"
    assert [parse_set_name(name) for name in names] == [
        (0, 9),
        (0, 10),
        (7, 41000),
        (12345, 2**40 - 1),
    ]
    for odd in ("7-41000", "0007-41000", "0007-000000041000x", "00007-000000041000", "", "a-b"):
        assert parse_set_name(odd) is None


def test_a_set_is_visible_only_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / set_name(0, 5)
    assert list_sets(tmp_path / "none") == ((), {})
    write(place, 0, 2)
    for missing in (1, 0):
        assert list_sets(tmp_path) == ((), {})
        assert list(open_vault(tmp_path).look()) == [place.name]
        with pytest.raises(CorruptCheckpoint, match="is missing"):
            read_set(place)
        if missing:
            with pytest.raises(CorruptCheckpoint, match=r"rank-00001\.receipt\.json is missing"):
                commit(place, 2)
            write(place, 1, 2)
    info = commit(place, 2, tags=["release"])
    assert list_sets(tmp_path) == ((info,), {})
    assert info.tags == ("release",)
    assert list(open_vault(tmp_path).look()) == [place.name]


def test_what_happens_in_which_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The durability order of the format: a crash between any two lines leaves something sound."""
    story: list[str] = []
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "rename", "replace")}
    names: dict[int, str] = {}

    def short(path: Any) -> str:
        return "." if Path(path) == tmp_path else Path(path).name.split(".json.")[0].lstrip(".")

    def open_(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        found: int = real["open"](path, flags, *rest, **more)
        names[found] = short(path)
        if flags & os.O_CREAT:
            story.append(f"create {short(path)}")
        return found

    def fsync(descriptor: int) -> None:
        story.append(f"sync {names[descriptor]}")
        real["fsync"](descriptor)

    def replace(source: Any, target: Any) -> None:
        story.append(f"name {short(target)}")
        real["replace"](source, target)

    place = tmp_path / set_name(0, 5)
    ready = captured()
    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_shard(place, ready, attempt=0, step=5, rank=0, world_size=1)
    assert story == [
        "sync .",  # the new folder's name
        "create rank-00000.safetensors",
        "sync rank-00000.safetensors",
        "create rank-00000.receipt",
        "sync rank-00000.receipt",
        "name rank-00000.receipt.json",
        f"sync {place.name}",
    ]
    story.clear()
    commit(place, 1)
    assert story[:5] == [
        "sync .",
        "create manifest",
        "sync manifest",
        "name manifest.json",
        f"sync {place.name}",
    ]


def test_ranks_that_disagree_are_not_committed(tmp_path: Path) -> None:
    place = tmp_path / set_name(0, 5)
    write(place, 0, 2)
    write(place, 1, 2, step=6)
    with pytest.raises(CorruptCheckpoint, match="rank 1 says"):
        commit(place, 2)
    write(place, 1, 2)
    os.truncate(place / "rank-00001.safetensors", 100)
    with pytest.raises(CorruptCheckpoint, match="has 100 bytes"):
        commit(place, 2)
    assert list_sets(tmp_path) == ((), {})


def test_a_committed_set_is_not_written_again(tmp_path: Path) -> None:
    place = tmp_path / set_name(0, 5)
    write(place)
    write(place)  # a second try before the commit replaces the first
    commit(place, 1)
    with pytest.raises(StoreUnavailable, match="committed checkpoint already"):
        write(place)
    assert verify(place) == ()


def test_a_predecessor_that_died_before_the_manifest(tmp_path: Path) -> None:
    whole, half = tmp_path / set_name(0, 5), tmp_path / set_name(0, 6)
    for rank in range(2):
        write(whole, rank, 2)
    write(half, 0, 2)
    assert finish_commits(tmp_path, [whole.name, half.name]) == ((), (), None, ())
    found = finish_commits(tmp_path)
    assert [info.step for info in found.done] == [5]
    assert found.lacking == (half.name,)
    assert finish_commits(tmp_path, older_than=(0, 6)).lacking == ()
    assert [one.name for one in list_sets(tmp_path)[0]] == [whole.name]


def test_a_manifest_that_is_seen_and_not_yet_on_disk_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the save would count as failed, and every other try of that step as a second one."""
    place = tmp_path / set_name(0, 5)
    write(place)
    put, tries = vault_folder.write_sealed, []

    def fail_once(path: Path, value: Any) -> None:
        put(path, value)
        tries.append(path.name)
        if tries == ["manifest.json"]:
            raise StoreUnavailable("cannot write manifest.json: Input/output error")

    monkeypatch.setattr(vault_folder, "write_sealed", fail_once)
    assert commit(place, 1).step == 5
    assert tries[:2] == ["manifest.json", "manifest.json"]


def test_rubbish_in_the_folder_is_reported_and_harmless(tmp_path: Path, save: Any) -> None:
    good = save({"w": np.ones(3)}, attempt=2, step=7)
    ckpt = good.path.parent
    (ckpt / "notes.txt").write_text("hello")
    (ckpt / "0001-000000000001").write_text("a file")
    (ckpt / "somewhere").mkdir()
    (ckpt / set_name(1, 3)).mkdir()
    (ckpt / set_name(1, 4)).mkdir()
    (ckpt / set_name(1, 4) / "manifest.json").write_text("{}")
    (ckpt / set_name(1, 5)).mkdir()
    (ckpt / set_name(1, 5) / "manifest.json").mkdir()
    (ckpt / set_name(1, 6)).symlink_to(good.path)
    found, damage = list_sets(ckpt)
    assert found == (good,)
    assert set(damage) == {set_name(1, 4), set_name(1, 5)}


def test_sets_that_vanished_are_missed(save: Any) -> None:
    place = save({"w": 1}, attempt=3, step=4).path
    shutil.rmtree(place)
    found, damage = list_sets(place.parent)
    assert found == ()
    assert "none is left" in damage[place.name]


def test_deleting_hides_first(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = save({"w": 1}).path

    def die(path: Path) -> None:
        assert not (path / "manifest.json").exists()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(vault_folder.shutil, "rmtree", die)
    with pytest.raises(StoreUnavailable, match="deleting"):
        open_vault(place.parent).delete(place.name)
    assert list_sets(place.parent)[0] == ()
    monkeypatch.undo()
    open_vault(place.parent).delete(place.name)
    assert not place.exists()


# ---- what other programs see


def test_the_safetensors_library_reads_our_shards(save: Any) -> None:
    state = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "odd": [np.arange(3, dtype=np.uint8), np.float16(1.5), np.zeros((0, 2), np.int64)],
        "c": np.ones(2, np.complex64),
    }
    path = save(state).path / "rank-00000.safetensors"
    loaded = load_file(path)
    assert loaded["state/w"].tolist() == state["w"].tolist()
    assert loaded["state/odd/1"] == 1.5
    assert loaded["state/odd/2"].shape == (0, 2)
    assert loaded["state/c"].tobytes() == state["c"].tobytes()  # as raw bytes
    with safe_open(path, "np") as file:
        assert "structure" in file.metadata()["holdfast"]
    with path.open("rb") as raw:
        assert (8 + int.from_bytes(raw.read(8), "little")) % 4096 == 0


# ---- a disk that fails


@pytest.mark.real
def test_a_full_disk(tmp_path: Path) -> None:
    """A real one: 8 MiB of tmpfs. The older set stays, nothing half-written does."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting needs root; the next test does the same with a limit on file sizes")
    try:
        write(disk / set_name(0, 1))
        commit(disk / set_name(0, 1), 1)
        big = {"state": {"w": np.ones(16 << 20, np.uint8)}}
        with pytest.raises(StoreUnavailable, match=r"step 2: no space left .*; free some space"):
            write(disk / set_name(0, 2), tree=big)
        assert list((disk / set_name(0, 2)).iterdir()) == []
        for left in (8192, 4096):  # enough for the shard but not for its receipt; not for the shard
            filler = disk / "filler"
            free = os.statvfs(disk).f_bavail * 4096
            filler.write_bytes(bytes(max(0, free - left)))
            with pytest.raises(StoreUnavailable):
                write(disk / set_name(0, 3), tree={"state": np.ones(3000, np.uint8)})
            assert list((disk / set_name(0, 3)).iterdir()) == []
            filler.unlink()
        assert [one.step for one in list_sets(disk)[0]] == [1]
        assert verify(disk / set_name(0, 1)) == ()
        write(disk / set_name(0, 4))
        assert commit(disk / set_name(0, 4), 1).step == 4
    finally:
        subprocess.run(["umount", str(disk)], check=True)


LIMITED = """
    import resource, signal, sys
    import numpy as np
    from pathlib import Path
    from holdfast.errors import StoreUnavailable
    from holdfast.snapshot.shard import write_shard
    from holdfast.snapshot.staging import Staging
    place = Path(sys.argv[1])
    captured = Staging().capture({"state": np.ones(1 << 20, np.uint8)})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, resource.RLIM_INFINITY))
    try:
        write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
    except StoreUnavailable as error:
        assert "too large" in str(error) and "ulimit" in str(error), error
    else:
        sys.exit("it was written")
    assert list(place.iterdir()) == []
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
"""


@pytest.mark.real
def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    script = [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path / set_name(0, 1))]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="a file, not a folder"):
        write(tmp_path / "file" / set_name(0, 1))

    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(vault_folder, "_write", read_only)
    with pytest.raises(StoreUnavailable, match="read-only; name a store that can be written"):
        write(tmp_path / set_name(0, 1))


def test_an_error_of_fsync_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / set_name(0, 1)
    place.mkdir()

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnavailable, match="I/O error"):
        write(place)
    assert list(place.iterdir()) == []


# ---- several ranks


def rank_tree(rank: int, **state: Any) -> dict[str, Any]:
    return {
        "state": {"w": np.arange(4.0), "step": 3} | state,
        "rng": {"seed": np.full(3, rank)},
        "data": {"position": 10 + rank},
    }


def test_replicated_and_per_rank(save: Any) -> None:
    place = save(ranks=[rank_tree(0), rank_tree(1)]).path
    said = sets.read_manifest(place)
    assert said.arrays["state/w"].placement is manifest.ArraySharing.REPLICATED
    assert said.arrays["rng/seed"].placement is manifest.ArraySharing.PER_RANK
    for rank in range(2):
        back = read_set(place, rank=rank, world_size=2)
        assert back["rng"]["seed"].tolist() == [rank] * 3
        assert back["data"] == {"position": 10 + rank}
        assert back["state"]["w"].tolist() == [0, 1, 2, 3]
    assert verify(place) == ()


def test_another_number_of_ranks(save: Any) -> None:
    place = save(ranks=[rank_tree(0), rank_tree(1)]).path
    for world_size in (1, 3):
        with pytest.raises(DataTopologyChanged, match=f"2 ranks and is read by {world_size}"):
            read_set(place, world_size=world_size)
        back = read_set(place, world_size=world_size, rank=world_size - 1, sections=["state"])
        assert back["state"]["step"] == 3
    assert load_path(place)["w"].tolist() == [0, 1, 2, 3]


def test_a_leaf_that_differs_between_ranks_stays_per_rank(save: Any) -> None:
    place = save(ranks=[rank_tree(n, stats=np.full(2 + n, n)) for n in range(2)], step=1).path
    said = sets.read_manifest(place)
    assert said.arrays["state/stats"].placement is manifest.ArraySharing.PER_RANK
    assert said.structures["state"] is manifest.ArraySharing.PER_RANK  # another shape
    for rank in range(2):
        back = read_set(place, rank=rank, world_size=2)
        assert back["state"]["stats"].tolist() == [rank] * (2 + rank)
    with pytest.raises(DataTopologyChanged, match="state"):
        load_path(place)

    place = save(ranks=[rank_tree(n, stats=np.full(2, n)) for n in range(2)], step=2).path
    assert sets.read_manifest(place).structures["state"] is manifest.ArraySharing.REPLICATED
    with pytest.raises(DataTopologyChanged, match="state/stats"):
        load_path(place)
    assert load_path(place, only="w")["w"].tolist() == [0, 1, 2, 3]


def test_parts_can_be_shared(save: Any) -> None:
    ranks = [{"state": None, "parts": {"model": np.ones(3), "loader": n}} for n in range(2)]
    place = save(ranks=ranks, shared=("state", "parts/model")).path
    placed = sets.read_manifest(place).arrays["parts/model"].placement
    assert placed is manifest.ArraySharing.REPLICATED
    with pytest.raises(DataTopologyChanged):  # the loader's position is each rank's own
        read_set(place, world_size=4)


boxes = st.lists(st.integers(0, 4), min_size=2, max_size=2).map(sorted).map(tuple)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.tuples(boxes, boxes), max_size=6))
def test_tiling_against_painting(height: int, width: int, indexes: list[Any]) -> None:
    inside = [((min(a, height), min(b, height)), (min(c, width), min(d, width)))
              for (a, b), (c, d) in indexes]  # fmt: skip
    canvas = np.zeros((height, width), int)
    for (a, b), (c, d) in inside:
        canvas[a:b, c:d] += 1
    assert tiles((height, width), inside) == bool((canvas == 1).all())


def test_a_set_is_committed_though_the_note_of_the_first_one_cannot_be_written(
    save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk became full right after the manifest; the next commit writes the note."""
    write = vault_folder.FolderVault.write

    def full(self: Any, name: str, file: str, what: Any) -> None:
        raise StoreUnavailable(f"{file}: no space left on device")

    monkeypatch.setattr(vault_folder.FolderVault, "write", full)
    place = save(np.ones(3), step=1).path
    assert not (place.parent / sets.FIRST_COMMIT).exists()
    assert [one.step for one in sets.list_sets(place.parent)[0]] == [1]
    monkeypatch.setattr(vault_folder.FolderVault, "write", write)
    save(np.ones(3), step=2)
    assert (place.parent / sets.FIRST_COMMIT).exists()
