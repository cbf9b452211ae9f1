from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StateMismatch, Unstorable
from holdfast.snapshot.layout import place
from holdfast.snapshot.memory import HUGE_PAGE_BYTES, PARALLEL_FROM_BYTES, reserve, touch
from holdfast.snapshot.parts import (
    capture_rng,
    is_of_run,
    is_part,
    load_part,
    part_state,
    restore_rng,
)
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.staging import Staging
from holdfast.snapshot.tree import flatten


def address(staging: Staging) -> int:
    return int(staging._memory.ctypes.data)


def test_the_buffer_is_prepared_once_and_reused() -> None:
    tree = {"w": np.zeros(3 << 20, np.uint8), "s": "x"}
    staging = Staging()
    staging.prepare(tree)
    before = address(staging)
    assert before % HUGE_PAGE_BYTES == 0
    for value in range(3):
        tree["w"][:] = value
        captured = staging.capture(tree)
        tree["w"][:] = 99
        assert set(bytes(captured.data)) == {value}
        captured.release()
        captured.release()  # harmless
    assert address(staging) == before


def test_a_capture_waits_for_the_previous_one() -> None:
    staging = Staging()
    first = staging.capture({"w": np.ones(8)})
    second: list[Any] = []
    thread = threading.Thread(target=lambda: second.append(staging.capture({"w": np.zeros(8)})))
    thread.start()
    assert bytes(first.data) == np.ones(8).tobytes()
    assert not second
    first.release()
    thread.join()
    first.release()  # of something that is somebody else's by now: does nothing
    assert bytes(second[0].data) == bytes(64)
    second[0].release()


def test_nothing_is_held_after_a_tree_that_cannot_be_stored() -> None:
    staging = Staging()
    with pytest.raises(Unstorable):
        staging.capture({"w": np.ones(8), "f": print})
    with pytest.raises(Unstorable):
        staging.prepare({"f": print})
    staging.capture({"w": np.ones(8)}).release()


def test_copies_by_several_threads_are_whole() -> None:
    rng = np.random.default_rng(0)
    size = PARALLEL_FROM_BYTES // 3 + 12345
    tree = {
        "plain": rng.integers(0, 255, size, np.uint8),
        "strided": rng.integers(0, 255, (300, 1000), np.int64)[::2, ::-1],
        "torch": torch.from_numpy(rng.integers(0, 255, size, np.uint8)),
        "many": [rng.random(7) for _ in range(200)],
        "more": rng.random(size // 8),
    }
    staging = Staging()
    captured = staging.capture(tree)
    assert captured.nbytes > PARALLEL_FROM_BYTES
    stored = {one.path: bytes(captured.data[one.begin : one.end]) for one in captured.entries}
    assert stored["plain"] == tree["plain"].tobytes()
    assert stored["strided"] == np.ascontiguousarray(tree["strided"]).tobytes()
    assert stored["torch"] == tree["torch"].numpy().tobytes()
    assert stored["many/73"] == tree["many"][73].tobytes()
    assert stored["more"] == tree["more"].tobytes()


@given(st.lists(st.tuples(st.sampled_from("bhifdD"), st.integers(0, 40)), max_size=12))
def test_the_layout_is_dense_and_aligned(kinds: list[tuple[str, int]]) -> None:
    leaves = flatten([np.zeros(size, dtype) for dtype, size in kinds]).leaves
    placed = [(entry, leaf) for entry, leaf, _ in place(leaves)]
    position = 0
    for entry, leaf in placed:
        assert entry.begin == position
        assert entry.begin % leaf.itemsize == 0
        position = entry.end
    assert sorted(entry.path for entry, _ in placed) == sorted(leaf.path for leaf in leaves)


def test_restored_arrays_are_aligned_writable_and_apart(save: Any) -> None:
    state = {str(n): np.arange(n + 1, dtype=np.int8) for n in range(40)}
    back = read_set(save(state).path)["state"]
    for name, array in back.items():
        assert array.ctypes.data % 64 == 0
        array[:] = 7
        assert name == "39" or back[str(int(name) + 1)][0] == 0


def test_memory_prepared_for_a_restore_is_used_once(save: Any) -> None:
    state = {"a": np.arange(1000), "b": np.ones(7), "text": "x"}
    place = save(state).path
    room = prepare(place)
    mine = {path: memory.ctypes.data for path, memory in room.items()}
    assert set(mine) == {"state/a", "state/b"}
    first = read_set(place, room=room)["state"]
    second = read_set(place, room=room)["state"]
    assert first["a"].ctypes.data == mine["state/a"]
    assert second["a"].ctypes.data != mine["state/a"]
    assert first["a"].tolist() == second["a"].tolist() == state["a"].tolist()
    other = save({"a": np.arange(5)}, step=2).path  # prepared for another set: of no use, no harm
    assert read_set(other, room=prepare(place))["state"]["a"].tolist() == [0, 1, 2, 3, 4]


def test_memory() -> None:
    memory = reserve(5 << 20)
    assert memory.size == 5 << 20
    assert memory.ctypes.data % HUGE_PAGE_BYTES == 0
    touch(memory)
    assert not memory.any()
    assert reserve(0).size == 0


@pytest.mark.real
def test_a_forked_child_has_no_staging_and_ends_in_peace() -> None:
    script = (
        "import os, sys, numpy as np\n"
        "from holdfast.snapshot.staging import Staging\n"
        "staging = Staging()\n"
        "captured = staging.capture({'w': np.ones(1 << 20)})\n"
        "start = staging._memory.ctypes.data\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    mapped = [line.split('-')[0] for line in open('/proc/self/maps')]\n"
        "    assert f'{start:x}' not in mapped\n"
        "    blocks = [bytearray(3 << 20) for _ in range(20)]\n"  # may land where it was
        "    del staging, captured\n"
        "    assert not any(map(any, blocks))\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert bytes(captured.data[:8]) == np.float64(1).tobytes()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


# ---- parts and random generators


class Counter:
    def __init__(self) -> None:
        self.at = 0

    def get_state(self) -> dict[str, int]:
        return {"at": self.at}

    def set_state(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize(
    "make",
    [
        Counter,
        lambda: np.random.default_rng(3),
        lambda: np.random.Generator(np.random.MT19937(3)),
        lambda: random.Random(3),
        lambda: torch.Generator().manual_seed(3),
        lambda: torch.nn.Linear(2, 2),
    ],
)
def test_parts_come_back(make: Any, save: Any) -> None:
    part = make()
    assert is_part(part)
    place = save(ranks=[{"state": None, "parts": {"it": part_state(part, "parts/it")}}]).path
    other = make()
    if isinstance(other, Counter):
        part.at = other.at = 5
    load_part(other, read_set(place)["parts"]["it"], "parts/it")
    draw = {
        Counter: lambda p: p.at,
        torch.Generator: lambda p: torch.rand(3, generator=p).tolist(),
        torch.nn.Linear: lambda p: p.weight.tolist(),
    }.get(type(part), lambda p: list(p.bytes(9) if hasattr(p, "bytes") else p.randbytes(9)))
    if isinstance(other, Counter):
        assert other.at == 0
    else:
        assert draw(part) == draw(other)


def test_what_is_no_part() -> None:
    assert not is_part(3)
    with pytest.raises(Unstorable, match="neither state_dict"):
        part_state(3, "parts/x")
    with pytest.raises(StateMismatch, match="parts/x"):
        load_part(Counter(), {}, "parts/x")
    assert is_of_run(torch.nn.Linear(1, 1))
    assert not is_of_run(Counter())


def test_the_global_generators(save: Any) -> None:
    def draw() -> list[Any]:
        return [
            random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(),
            torch.rand(2).tolist(),
        ]  # fmt: skip

    random.gauss(0, 1)  # leaves the second of a pair behind: part of the state
    np.random.randn()
    place = save(ranks=[{"state": None, "rng": capture_rng()}]).path
    expected = draw()
    assert draw() != expected
    restore_rng(read_set(place)["rng"])
    assert draw() == expected
    with pytest.raises(StateMismatch, match="rng/python"):
        restore_rng({"python": {"version": 3, "words": [1], "gauss": None}})


@pytest.mark.parametrize(
    ("here", "put_back"), [(3, ["a", "b", "c"]), (2, ["b", "b"]), (4, ["b"] * 4), (0, None)]
)
def test_a_host_with_another_number_of_gpus_goes_on(
    here: int, put_back: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the generator of the one that the rank trained on; there need not be a GPU here."""
    given: list[list[str]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.append)
    restore_rng({"torch_cuda": ["a", "b", "c"], "torch_cuda_current": 1})
    assert given == ([put_back] if put_back else [])


@pytest.mark.real
def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import holdfast.core.save.choose, holdfast.snapshot.retention, holdfast.snapshot.sets\n"
        "import holdfast.snapshot.catalog\n"
        "heavy = {'numpy', 'xxhash', 'jax', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import holdfast.snapshot.staging, holdfast.snapshot.shard, holdfast.snapshot.restore\n"
        "heavy = {'jax', 'torch', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from holdfast.snapshot.parts import capture_rng\n"
        "assert set(capture_rng()) == {'python', 'numpy'}\n"
    )
    environment = {"PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
