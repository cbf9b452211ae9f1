"""A part of a set goes to another host: what is the same there is not sent, and all is verified."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint, PartNotFetched, StoreUnavailable
from holdfast.snapshot.part import (
    COPIES,
    OwnTensors,
    PartName,
    PartReader,
    await_part,
    begin_fetch,
    copy_name,
    end_fetch,
    find_part,
    held_copies,
    names_of,
    own_tensors,
    pull,
    read_receipts,
    room_for_copy,
)
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name, sealed_buffers
from holdfast.snapshot.receipt import MANIFEST, Receipt, receipt_name, shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.staging import GLOBAL

STEP = 7
SIZE = 20_000


class Direct:
    """A source without a network between. `spoil`: what becomes of the bytes on their way."""

    def __init__(self, ram_dir: Path, spoil: Any = bytes) -> None:
        self.sent = 0
        self._ram_dir = ram_dir
        self._spoil = spoil
        self._reader: PartReader | None = None

    def receipts(self, part: PartName) -> list[Receipt]:
        folder = find_part(self._ram_dir, part)
        self._reader = PartReader(self._ram_dir, folder)
        return read_receipts(folder, part.ranks)

    def read(self, rank: int, begin: int, end: int) -> Iterator[memoryview]:
        assert self._reader is not None
        for start in range(begin, end, 4096):
            data = self._reader.read(rank, start, min(start + 4096, end))
            self.sent += len(data)
            yield memoryview(self._spoil(bytes(data)))


def tree(rank: int) -> dict[str, Any]:
    alike = np.arange(SIZE, dtype=np.float64)
    return {"state": {"alike": alike, "own": np.full(SIZE, rank, np.float32), "step": STEP}}


def host(folder: Path, ranks: tuple[int, ...], buffer: int = 0, step: int = STEP) -> Path:
    """The memory of one of two hosts with two ranks each."""
    for rank in ranks:
        files = BufferFiles(folder, wanted=3, rank=rank, world_size=4, local_world_size=2)
        assert files.prepare(1 << 20) == ""
        files.begin(buffer, tree(rank), Named(0, step, 0, GLOBAL, ()), None)
    seal_buffer(folder / buffer_name(buffer), 4, attempt=0, step=step, ranks=ranks)
    return folder


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    return host(tmp_path / "a", (0, 1)), host(tmp_path / "b", (2, 3))


FIRST = PartName(0, STEP, (0, 1))


def test_a_host_has_its_own_ranks_alone_and_restores_them(hosts: tuple[Path, Path]) -> None:
    (found,), damage = sealed_buffers(hosts[1])
    assert not damage
    assert (found.info.world_size, found.info.ranks) == (4, (2, 3))
    state = read_set(hosts[1] / "buffer-0", rank=3, world_size=4)["state"]
    assert np.array_equal(state["own"], np.full(SIZE, 3))
    with pytest.raises(CorruptCheckpoint):
        read_set(hosts[1] / "buffer-0", rank=0, world_size=4)


def test_what_is_the_same_on_both_hosts_is_neither_sent_nor_stored(
    hosts: tuple[Path, Path],
) -> None:
    a, b = hosts
    source = Direct(a)
    done = pull(source, FIRST, b / copy_name(0), own_tensors(b, 0, STEP))
    assert done.alike == ("state/alike",)
    assert [one.array for one in done.differing] == ["state/own"]
    assert [replica.rank for replica in done.differing[0].replicas] == [2, 3, 0, 1]
    assert 2 * 4 * SIZE < source.sent < 2 * 4 * SIZE + 10_000
    assert done.nbytes == source.sent
    blocks = (b / copy_name(0) / shard_name(0)).stat().st_blocks * 512
    assert blocks < 8 * SIZE, "there is a hole where the other tensor is"
    (copy,) = held_copies(b)
    assert (copy.attempt, copy.step, copy.ranks) == (0, STEP, (0, 1))


def test_a_spare_gets_the_whole_part_from_the_copy(
    hosts: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = hosts
    pull(Direct(a), FIRST, b / copy_name(1), own_tensors(b, 0, STEP))
    spare = tmp_path / "spare"
    spare.mkdir(mode=0o700)
    pull(Direct(b), FIRST, spare / buffer_name(2), OwnTensors())
    for rank in (0, 1):
        state = read_set(spare / buffer_name(2), rank=rank, world_size=4)["state"]
        assert np.array_equal(state["own"], np.full(SIZE, rank))
        assert np.array_equal(state["alike"], np.arange(SIZE))
        path = buffer_name(2), shard_name(rank)
        assert spare.joinpath(*path).read_bytes() == (a / "buffer-0" / path[1]).read_bytes()
    (found,), _ = sealed_buffers(spare)
    assert (found.number, found.info.ranks) == (2, (0, 1))


def test_each_byte_that_is_changed_on_its_way_is_found(hosts: tuple[Path, Path]) -> None:
    a, b = hosts
    whole = Direct(a)
    pull(whole, FIRST, b / copy_name(0), OwnTensors())
    for at in (0, 9, 3000, whole.sent // 2, whole.sent - 1):
        seen = 0

        def spoil(data: bytes, at: int = at) -> bytes:
            nonlocal seen
            place, seen = at - seen, seen + len(data)
            if not 0 <= place < len(data):
                return data
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

        with pytest.raises(CorruptCheckpoint):
            pull(Direct(a, spoil), FIRST, b / copy_name(0), OwnTensors())
        assert held_copies(b) == (), "what came is no copy"


def test_a_borrowed_tensor_that_was_overwritten_is_found_by_whoever_fetches(
    hosts: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = hosts
    pull(Direct(a), FIRST, b / copy_name(0), own_tensors(b, 0, STEP))
    with (b / "buffer-0" / shard_name(2)).open("r+b") as file:
        file.seek(-SIZE * 12, os.SEEK_END)
        file.write(b"\1" * SIZE * 12)
    spare = tmp_path / "spare"
    spare.mkdir(mode=0o700)
    with pytest.raises(CorruptCheckpoint):
        pull(Direct(b), FIRST, spare / buffer_name(0), OwnTensors())
    assert sealed_buffers(spare) == ((), {})


def test_what_is_not_there_is_not_given(hosts: tuple[Path, Path]) -> None:
    a, b = hosts
    for part in (FIRST._replace(step=8), FIRST._replace(ranks=(0,)), FIRST._replace(attempt=1)):
        with pytest.raises(StoreUnavailable, match="not in memory there"):
            pull(Direct(a), part, b / copy_name(0), OwnTensors())


def test_a_copy_is_none_any_more_once_what_it_is_made_of_is_another_set(
    hosts: tuple[Path, Path],
) -> None:
    a, b = hosts
    pull(Direct(a), FIRST, b / copy_name(0), own_tensors(b, 0, STEP))
    assert len(held_copies(b)) == 1
    host(b, (2, 3), buffer=0, step=STEP + 1)
    assert held_copies(b) == ()
    pull(Direct(a), FIRST, b / copy_name(1), OwnTensors())  # nothing of it is this host's own
    assert [one.path.name for one in held_copies(b)] == [copy_name(1)]


def test_another_set_than_the_one_that_was_asked_for_is_refused(hosts: tuple[Path, Path]) -> None:
    a, b = hosts

    class Other(Direct):
        def receipts(self, part: PartName) -> list[Receipt]:
            return super().receipts(FIRST)

    with pytest.raises(CorruptCheckpoint, match="was asked for"):
        pull(Other(a), FIRST._replace(step=8), b / copy_name(0), OwnTensors())


def test_a_copy_takes_the_place_of_an_older_one_whole(hosts: tuple[Path, Path]) -> None:
    a, b = hosts
    pull(Direct(a), FIRST, b / copy_name(0), own_tensors(b, 0, STEP))
    host(a, (0, 1), buffer=1, step=8)
    pull(Direct(a), FIRST._replace(step=8), b / copy_name(0), OwnTensors())
    (copy,) = held_copies(b)
    assert copy.step == 8
    names = {path.name for path in (b / copy_name(0)).iterdir()}
    assert names == {MANIFEST} | {f(rank) for rank in (0, 1) for f in (shard_name, receipt_name)}


def test_while_a_part_is_fetched_its_buffer_is_no_set_and_says_so(hosts: tuple[Path, Path]) -> None:
    a = hosts[0]
    begin_fetch(a / "buffer-0")
    assert sealed_buffers(a) == ((), {})
    assert (a / "buffer-0" / "fetching").exists()
    end_fetch(a / "buffer-0")
    end_fetch(a / "buffer-0")
    assert not (a / "buffer-0" / "fetching").exists()


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        (None, None, 0),
        (PartName(0, 8, (0,)), None, 1),
        (None, PartName(0, 8, (0,)), 0),
        (PartName(0, 8, (0,)), PartName(0, 7, (0,)), 1),
        (PartName(0, 7, (0,)), PartName(0, 8, (0,)), 0),
        (PartName(0, 8, (0,)), PartName(0, 8, (1,)), 1),  # from when it had another part
        (PartName(0, 8, (1,)), PartName(0, 8, (0,)), 0),
        (PartName(0, 8, (1,)), PartName(0, 7, (0,)), 1),
        (PartName(1, 8, (0,)), PartName(0, 8, (0,)), 0),
    ],
)
def test_a_copy_of_the_set_that_is_kept_is_written_over_by_no_other(
    first: PartName | None, second: PartName | None, written: int
) -> None:
    both = {copy_name(0): first, copy_name(1): second}
    held = {name: one for name, one in both.items() if one is not None}
    assert room_for_copy(held, PartName(0, 8, (0,))) == copy_name(written)
    assert room_for_copy(held, None) == copy_name(0)


def test_why_a_part_does_not_come_is_told_to_who_waits_for_it(hosts: tuple[Path, Path]) -> None:
    folder = hosts[0] / "buffer-0"
    await_part(folder)
    begin_fetch(folder)
    end_fetch(folder, "host 1 is gone")
    with pytest.raises(PartNotFetched, match=r"lacks of it cannot be had: host 1 is gone$"):
        await_part(folder)
    begin_fetch(folder)
    end_fetch(folder, "a bit is flipped", is_damaged=True)
    with pytest.raises(CorruptCheckpoint, match=r"cannot be had: a bit is flipped$") as found:
        await_part(folder)
    assert not isinstance(found.value, PartNotFetched)
    begin_fetch(folder)
    end_fetch(folder)
    await_part(folder)
    end_fetch(folder, "it hangs")
    pull(Direct(hosts[1]), PartName(0, STEP, (2, 3)), folder, OwnTensors())
    await_part(folder)  # it is there by now


def test_rubbish_in_the_place_of_a_copy_is_none(hosts: tuple[Path, Path]) -> None:
    b = hosts[1]
    for copy in range(COPIES):
        (b / copy_name(copy)).mkdir()
    (b / copy_name(0) / MANIFEST).write_text("rubbish")
    (b / copy_name(1) / MANIFEST).mkdir()
    assert held_copies(b) == ()
    with pytest.raises(ValueError, match="the ranks are"):
        names_of({"attempt": 0, "step": 1, "ranks": [0, -1]})
