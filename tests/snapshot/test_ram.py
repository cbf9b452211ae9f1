from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint, StoreUnavailable, Unstorable
from holdfast.snapshot import ram, shared_file
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name, claim_ram, sealed_buffers
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import MANIFEST, receipt_name, shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.room import Room, size_words
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.staging import GLOBAL


def state(step: int = 1, size: int = 300_000) -> dict[str, Any]:
    return {
        "state": {"w": np.full(size, step, np.float32), "odd": np.arange(7, dtype=np.int8) + step},
        "rng": {"n": step, "words": "x" * 700},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return claim_ram(tmp_path, "run").path


def make(folder: Path, wanted: int = 3, rank: int = 0, world_size: int = 1) -> BufferFiles:
    where = {"rank": rank, "world_size": world_size, "local_world_size": world_size}
    return BufferFiles(folder, wanted=wanted, **where)


@pytest.fixture
def buffers(folder: Path) -> BufferFiles:
    made = make(folder)
    assert made.prepare(made.measure(state())) == ""
    assert made.ready == 3
    return made


def seal(folder: Path, number: int, step: int, world_size: int = 1) -> Path:
    return seal_buffer(folder / buffer_name(number), world_size, attempt=0, step=step).path


def test_what_was_copied_is_sealed_and_read(buffers: BufferFiles, folder: Path) -> None:
    for step in range(1, 8):
        tree = state(step)
        buffers.begin(step % 3, tree, Named(0, step, 0, GLOBAL, ()), None)
        tree["state"]["w"][:] = -1  # the training goes on
        place = seal(folder, step % 3, step)
        assert buffers._files[step % 3].size == (place / shard_name(0)).stat().st_size
        restored = read_set(place)
        assert set(restored["state"]["w"]) == {step}
        assert restored["rng"]["n"] == step
    assert [one.info.step for one in sealed_buffers(folder)[0]] == [5, 6, 7]


def test_ranks_fill_one_buffer_together(folder: Path) -> None:
    for rank in range(2):
        one = make(folder, rank=rank, world_size=2)
        one.prepare(one.measure(state()))
        tags = ("best",) if rank else ()
        one.begin(1, state(4), Named(0, 4, 0, GLOBAL, tags), None)
    place = seal(folder, 1, 4, world_size=2)
    assert set(read_set(place, rank=1, world_size=2)["state"]["w"]) == {4}
    assert sealed_buffers(folder)[0][0].info.tags == ("best",)


def test_what_ranks_of_a_larger_world_left_goes_with_its_set(folder: Path) -> None:
    for rank in range(3):
        one = make(folder, wanted=2, rank=rank, world_size=3)
        one.prepare(one.measure(state()))
        for number in range(2):
            one.begin(number, state(number + 1), Named(0, number + 1, 0, GLOBAL, ()), None)
    for number in range(2):
        seal(folder, number, number + 1, world_size=3)
    alone = make(folder, wanted=2)
    alone.prepare(alone.measure(state()))
    alone.begin(0, state(5), Named(0, 5, 0, GLOBAL, ()), None)
    names = [path.name for path in (folder / buffer_name(0)).iterdir()]
    assert names == [shard_name(0)]
    verify(folder / buffer_name(1))
    seal(folder, 0, 5)


def test_a_rank_that_was_not_here_has_all_its_pages_before_it_copies(folder: Path) -> None:
    """Beside a set that another rank had sealed: a page that is missing is a SIGBUS."""
    before = make(folder, wanted=1)
    before.prepare(before.measure(state()))
    before.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    seal(folder, 0, 1)
    now = make(folder, wanted=1, rank=1, world_size=2)
    nbytes = now.measure(state())
    assert now.prepare(nbytes) == ""
    assert (folder / buffer_name(0) / shard_name(1)).stat().st_size >= nbytes
    now.begin(0, state(2), Named(1, 2, 0, GLOBAL, ()), None)
    assert (folder / buffer_name(0) / shard_name(1)).stat().st_size == nbytes
    assert not (folder / buffer_name(0) / MANIFEST).exists()


def test_a_file_without_pages_is_copied_into(folder: Path) -> None:
    """A life of the rank has ended between the file's making and its growing."""
    before = make(folder, wanted=1)
    before.prepare(before.measure(state()))
    before.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    seal(folder, 0, 1)
    (folder / buffer_name(0) / shard_name(1)).touch(mode=0o600)
    now = make(folder, wanted=1, rank=1, world_size=2)
    nbytes = now.measure(state())
    assert now.prepare(nbytes) == ""
    now.begin(0, state(2), Named(1, 2, 0, GLOBAL, ()), None)
    assert (folder / buffer_name(0) / shard_name(1)).stat().st_size == nbytes


def test_states_grow_and_shrink(buffers: BufferFiles, folder: Path) -> None:
    for step, size in enumerate((300_000, 10, 0, 2_000_000, 299_999), start=1):
        buffers.begin(0, state(step, size), Named(0, step, 0, GLOBAL, ()), None)
        place = seal(folder, 0, step)
        verify(place)
        assert read_set(place)["state"]["w"].size == size


def test_a_file_outgrows_its_mapping(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "SPARE_BYTES", 0)
    buffers = make(folder, wanted=1)
    buffers.prepare(buffers.measure(state(size=10)))
    for step, size in enumerate((10, 3_000_000, 40_000_000), start=1):
        buffers.begin(0, state(step, size), Named(0, step, 0, GLOBAL, ()), None)
        assert set(read_set(seal(folder, 0, step))["state"]["w"]) == {step}


def test_copying_unseals_first(buffers: BufferFiles, folder: Path) -> None:
    buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    place = seal(folder, 0, 1)

    class Boom(Exception):
        pass

    def copy_all(*_: Any) -> None:
        assert not (place / MANIFEST).exists()
        assert not (place / receipt_name(0)).exists()
        raise Boom

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ram, "copy_all", copy_all)
        with pytest.raises(Boom):
            buffers.begin(0, state(2), Named(0, 2, 0, GLOBAL, ()), None)
    with pytest.raises(CorruptCheckpoint, match="half written"):
        seal(folder, 0, 2)
    with pytest.raises(CorruptCheckpoint, match="half written"):
        seal(folder, 0, 1)


def test_what_cannot_be_stored_leaves_the_buffer_as_it_was(
    buffers: BufferFiles, folder: Path
) -> None:
    buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    place = seal(folder, 0, 1)
    with pytest.raises(Unstorable, match="state/f"):
        buffers.begin(0, {"state": {"f": print}}, Named(0, 2, 0, GLOBAL, ()), None)
    verify(place)


def test_the_next_life_of_the_rank_uses_the_same_memory(buffers: BufferFiles, folder: Path) -> None:
    for number in range(3):
        buffers.begin(number, state(number + 1), Named(0, number + 1, 0, GLOBAL, ()), None)
        seal(folder, number, number + 1)
    inodes = [path.stat().st_ino for path in sorted(folder.glob("buffer-*/rank-*.safetensors"))]
    again = make(folder)
    told: list[int] = []
    # The new code has a larger state. What is sealed stays until it is overwritten.
    assert again.prepare(again.measure(state(size=900_000)), told.append) == ""
    assert told == [2, 3]
    for number in range(3):
        verify(folder / buffer_name(number))
    again.begin(1, state(9, 900_000), Named(0, 9, 0, GLOBAL, ()), None)
    assert set(read_set(seal(folder, 1, 9))["state"]["w"]) == {9}
    assert set(read_set(folder / buffer_name(0))["state"]["w"]) == {1}
    found = [path.stat().st_ino for path in sorted(folder.glob("buffer-*/rank-*.safetensors"))]
    assert found == inodes


@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_what_was_removed_is_made_again_beside_the_training(
    buffers: BufferFiles, folder: Path, above: int
) -> None:
    """One buffer's folder, the run's, or all of them: that save fails, and `prepare` mends it."""
    buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    shutil.rmtree((folder / buffer_name(0), folder, *folder.parents)[above])
    with pytest.raises(StoreUnavailable, match=r"no snapshots in memory: .* is gone"):
        buffers.begin(0, state(2), Named(0, 2, 0, GLOBAL, ()), None)
    assert buffers.prepare(buffers.measure(state())) == ""
    assert buffers.ready == 3
    for number in range(3):
        buffers.begin(number, state(3), Named(0, 3, 0, GLOBAL, ()), None)
        assert set(read_set(seal(folder, number, 3))["state"]["w"]) == {3}


def test_a_file_that_took_a_buffers_place_is_not_written_before_it_is_prepared(
    buffers: BufferFiles, folder: Path
) -> None:
    place = folder / buffer_name(1) / shard_name(0)
    place.unlink()
    place.write_bytes(b"somebody else's")
    with pytest.raises(StoreUnavailable):
        buffers.begin(1, state(4), Named(0, 4, 0, GLOBAL, ()), None)
    assert place.read_bytes() == b"somebody else's"
    buffers.prepare(buffers.measure(state()))
    buffers.begin(1, state(4), Named(0, 4, 0, GLOBAL, ()), None)
    assert set(read_set(seal(folder, 1, 4))["state"]["w"]) == {4}


@pytest.mark.parametrize("what", ["link", "hard link", "folder", "fifo"])
def test_what_others_put_in_its_place_is_not_written(
    folder: Path, tmp_path: Path, what: str
) -> None:
    place = folder / buffer_name(1)
    place.mkdir(0o700)
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    path = place / shard_name(0)
    if what == "link":
        path.symlink_to(other)
    elif what == "hard link":
        path.hardlink_to(other)
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    buffers = make(folder)
    why = buffers.prepare(buffers.measure(state()))
    assert "only 1 of 3 buffers" in why
    assert buffers.ready == 1
    assert other.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("share", "count", "words"),
    [
        (3.5, 3, ""),
        (2.5, 2, "only 2 of 3 buffers"),
        (1.5, 1, "only 1 of 3 buffers"),
        (0.5, 0, "checkpoints go to the store alone"),
    ],
)
def test_as_many_as_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, share: float, count: int, words: str
) -> None:
    buffers = make(folder, world_size=2)
    size = buffers.measure(state())
    room = Room(int(2 * size * share), "the sky is low")
    monkeypatch.setattr(ram, "find_room", lambda *_: room)
    told: list[int] = []
    why = buffers.prepare(size, told.append)
    assert (buffers.ready, told[-1]) == (count, count)
    assert words in why
    assert count == 3 or "because the sky is low" in why


def test_closing_ends_the_making(folder: Path) -> None:
    buffers = make(folder)
    buffers.close()
    assert buffers.prepare(200 << 20) == ""
    assert buffers.ready == 0
    assert sum(path.stat().st_blocks for path in folder.rglob("*.safetensors")) == 0


def run(script: str, *args: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.contract("memory: a buffer and the children of its rank")
def test_children_and_closed_descriptors_harm_nothing(folder: Path) -> None:
    run(
        """
        import os, sys
        from pathlib import Path
        import numpy as np
        from holdfast.snapshot.ram import BufferFiles, Named
        from holdfast.snapshot.seal import seal_buffer
        from holdfast.snapshot.staging import GLOBAL

        folder = Path(sys.argv[1])
        tree = {"state": {"w": np.ones(5_000_000, np.float32)}}
        buffers = BufferFiles(folder, wanted=2, rank=0, world_size=1, local_world_size=1)
        assert buffers.prepare(buffers.measure(tree)) == ""
        buffers.begin(0, tree, Named(0, 1, 0, GLOBAL, ()), None)
        start = buffers._files[0].memory.ctypes.data
        child = os.fork()
        if not child:
            ranges = [line.split()[0].split("-") for line in open("/proc/self/maps")]
            mapped = any(int(a, 16) <= start < int(b, 16) for a, b in ranges)
            buffers.prepare(1 << 20)
            os._exit(mapped)
        assert os.waitpid(child, 0)[1] == 0
        os.closerange(3, 1000)
        mine = os.open(folder / "mine", os.O_RDWR | os.O_CREAT)
        os.write(mine, b"precious")
        for step, size in ((2, 5_000_000), (3, 6_000_000), (4, 100)):
            tree = {"state": {"w": np.full(size, step, np.float32)}}
            buffers.begin(step % 2, tree, Named(0, step, 0, GLOBAL, ()), None)
            seal_buffer(folder / f"buffer-{step % 2}", 1, attempt=0, step=step)
        assert (folder / "mine").read_bytes() == b"precious"
        """,
        str(folder),
    )
    for number in range(2):
        verify(folder / buffer_name(number))


def test_sizes_never_look_like_science() -> None:
    sizes = [0, 1023, 1 << 20, (1 << 20) - 4096, 1023 << 20, 5 << 39, 3 << 41]
    words = ["0 KiB", "0.999 KiB", "1 MiB", "1020 KiB", "1023 MiB", "2.5 TiB", "6 TiB"]
    assert [size_words(nbytes) for nbytes in sizes] == words
