"""Buffers that are registered with a device's driver: no page may leave them before it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.snapshot.virtual_driver import VirtualDriver, driver

from holdfast.snapshot import cuda, ram
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name, claim_ram
from holdfast.snapshot.receipt import shard_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.shared_file import whole_pages
from holdfast.snapshot.staging import GLOBAL

__all__ = ["driver"]


def state(step: int, size: int = 50_000, words: int = 10) -> dict[str, Any]:
    return {"state": {"w": np.full(size, step, np.float32), "n": step, "words": "x" * words}}


def make(base: Path, wanted: int = 1) -> BufferFiles:
    folder = claim_ram(base, "run").path
    made = BufferFiles(folder, wanted=wanted, rank=0, world_size=1, local_world_size=1)
    made.prepare(made.measure(state(0)) + (1 << 20))
    return made


def check(buffers: BufferFiles, step: int) -> None:
    folder = buffers._ram_dir / buffer_name(0)
    seal_buffer(folder, 1, attempt=0, step=step)
    assert set(read_set(folder)["state"]["w"]) <= {step}
    pinned = buffers._files[0].pinned
    assert pinned is not None
    assert pinned.size_bytes == whole_pages((folder / shard_name(0)).stat().st_size)


def test_copies_from_a_device_go_straight_into_the_buffer(
    tmp_path: Path, driver: VirtualDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "SLICE_BYTES", 1 << 16)
    buffers = make(tmp_path)
    assert len(driver.registered) == len(range(0, buffers._files[0].size, 1 << 16))
    before = dict(driver.registered)
    for step in range(1, 5):
        buffers.begin(0, state(step), Named(0, step, 0, GLOBAL, ()), None)
        check(buffers, step)
    assert driver.copied_bytes == 4 * 200_000  # none of them across two slices
    assert driver.registered == before


@pytest.mark.parametrize("is_slow", [False, True])
def test_what_the_device_still_copies_is_awaited(
    tmp_path: Path, driver: VirtualDriver, is_slow: bool
) -> None:
    buffers, driver.is_slow = make(tmp_path), is_slow
    tree = state(1)
    buffers.begin(0, tree, Named(0, 1, 0, GLOBAL, ()), None)
    tree["state"]["w"][:] = 9
    check(buffers, 1)


SIZES = st.tuples(st.sampled_from([0, 300, 50_000, 50_001, 80_000, 3_000_000]), st.integers(0, 510))


@given(sizes=st.lists(SIZES, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_states_that_grow_and_shrink_take_no_page_from_the_driver(
    tmp_path_factory: pytest.TempPathFactory, driver: VirtualDriver, sizes: list[tuple[int, int]]
) -> None:
    """The driver looks: what it was told of is there until it is given back."""
    driver.registered.clear()
    buffers = make(tmp_path_factory.mktemp("ram"))
    for step, (size, words) in enumerate(sizes, start=1):
        buffers.begin(0, state(step, size, words), Named(0, step, 0, GLOBAL, ()), None)
        check(buffers, step)


def test_a_file_that_is_mapped_anew_is_given_back_first(
    tmp_path: Path, driver: VirtualDriver
) -> None:
    buffers = make(tmp_path)
    (buffers._ram_dir / buffer_name(0) / shard_name(0)).unlink()
    old = set(driver.registered)
    assert buffers.prepare(40_000_000) == ""
    assert driver.registered
    assert not old & set(driver.registered)
    buffers.begin(0, state(2), Named(0, 2, 0, GLOBAL, ()), None)
    check(buffers, 2)


def test_a_driver_that_refuses_costs_speed_alone(tmp_path: Path, driver: VirtualDriver) -> None:
    driver.refuses = True
    folder = claim_ram(tmp_path, "run").path
    buffers = BufferFiles(folder, wanted=2, rank=0, world_size=1, local_world_size=1)
    said = buffers.prepare(buffers.measure(state(0)))
    assert said == (
        "snapshots in memory: copies from the device are slow, because cuMemHostRegister_v2: out "
        "of memory (2)"
    )
    assert buffers.ready == 2
    buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    seal_buffer(folder / buffer_name(0), 1, attempt=0, step=1)
    assert driver.copied_bytes == 0


def test_a_copy_that_the_driver_refuses_is_made_without_it(
    tmp_path: Path, driver: VirtualDriver
) -> None:
    buffers = make(tmp_path)
    driver.registered.clear()  # it has lost its memory
    driver.unregister = lambda _: None  # type: ignore[method-assign]
    buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
    folder = buffers._ram_dir / buffer_name(0)
    seal_buffer(folder, 1, attempt=0, step=1)
    assert set(read_set(folder)["state"]["w"]) == {1}
    assert "invalid argument" in buffers.unpinned


def test_a_buffer_is_filled_while_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are told of as soon as they are there: no copy may wait for the third."""
    folder = claim_ram(tmp_path, "run").path
    buffers = BufferFiles(folder, wanted=3, rank=0, world_size=1, local_world_size=1)
    opened: list[int] = []
    make_one = ram.BufferFiles._open

    def slow(self: BufferFiles, number: int, size_bytes: int) -> str:
        if number == 2:
            buffers.begin(0, state(1), Named(0, 1, 0, GLOBAL, ()), None)
            opened.append(number)
        return make_one(self, number, size_bytes)

    monkeypatch.setattr(ram.BufferFiles, "_open", slow)
    assert buffers.prepare(buffers.measure(state(0))) == ""
    assert opened == [2]


def test_without_a_driver_nothing_is_asked_of_it(tmp_path: Path) -> None:
    with pytest.raises(cuda.CudaError, match="there is no CUDA driver"):
        cuda.Driver()
    assert make(tmp_path).unpinned == ""
