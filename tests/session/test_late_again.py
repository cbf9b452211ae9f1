"""What is known of the last copy is used for the next one, unless the tensors are others."""

from __future__ import annotations

import copy
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.session.test_late_copies import SIDE, Trainer, same, trainer
from tests.snapshot.virtual_driver import VirtualDriver, driver

from holdfast.journal.layout import Word
from holdfast.snapshot import arrays, late
from holdfast.snapshot.layout import place as place_all
from holdfast.snapshot.tree import flatten

__all__ = ["driver", "trainer"]

Change = Callable[[Trainer], None]


def sorted_out(trainer: Trainer) -> Any:
    """What was worked out of the tree last."""
    memory: Any = trainer.saver._memory
    return memory._buffers._outlines[False][1].plan


def as_it_was(_: Trainer) -> None:
    pass


def of_the_same_shape(trainer: Trainer) -> None:
    state = trainer.optimizer.state[trainer.model.weight]
    state["exp_avg"] = torch.full((SIDE, SIDE), 7.0)


def other_data(trainer: Trainer) -> None:
    trainer.model.weight.data = torch.full((SIDE, SIDE), 7.0)


def set_to_others(trainer: Trainer) -> None:
    trainer.optimizer.state[trainer.model.weight]["exp_avg"].set_(torch.full((SIDE, SIDE), 7.0))


def turned_in_place(trainer: Trainer) -> None:
    trainer.optimizer.state[trainer.model.weight]["exp_avg"].t_()


def state_loaded(trainer: Trainer) -> None:
    trainer.optimizer.load_state_dict(copy.deepcopy(trainer.optimizer.state_dict()))


def one_more(trainer: Trainer) -> None:
    trainer.model.scale = torch.nn.Parameter(torch.ones(3))
    trainer.optimizer.add_param_group({"params": [trainer.model.scale]})


def in_another_dtype(trainer: Trainer) -> None:
    batch = trainer.batch
    trainer.batch = lambda number: batch(number).double()  # type: ignore[method-assign]
    trainer.model.double()
    anew(trainer)


def in_another_shape(trainer: Trainer) -> None:
    trainer.model.weight.data = torch.full((2 * SIDE, SIDE), 0.5)
    trainer.model.bias.data = torch.zeros(2 * SIDE)
    anew(trainer)


def anew(trainer: Trainer) -> None:
    """State that fits the parameters as they are now."""
    for one in trainer.model.parameters():
        state = trainer.optimizer.state[one]
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(one), torch.zeros_like(one)
        one.grad = None


CHANGES: dict[str, tuple[Change, bool]] = {
    one.__name__: (one, is_as_it_was)
    for one, is_as_it_was in [
        (as_it_was, True),
        (of_the_same_shape, False),
        (other_data, False),
        (set_to_others, False),
        (turned_in_place, False),
        (state_loaded, False),
        (one_more, False),
        (in_another_dtype, False),
        (in_another_shape, False),
    ]
}


@pytest.fixture(params=["on the host", "by the driver"])
def place(request: pytest.FixtureRequest, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the state is: `by the driver` copies what has 1,000 bytes or more."""
    if request.param == "by the driver":
        made: VirtualDriver = request.getfixturevalue("driver")
        made.is_slow = True
        monkeypatch.setattr(late, "driver", lambda: made)
        monkeypatch.setattr(
            late.LateCopy, "_is_same_there", lambda self, one, _: self._is_same_here(one)
        )
        monkeypatch.setattr(
            late.LateCopy, "hold", lambda *_: (trainer.gate.set(), trainer.saver.settle())
        )
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    return str(request.param)


@pytest.mark.parametrize("name", CHANGES)
def test_a_copy_after_a_change_is_of_what_is_there_then(
    trainer: Trainer, place: str, name: str
) -> None:
    change, is_as_it_was = CHANGES[name]
    trainer.use(torch.optim.AdamW(trainer.model.parameters(), foreach=False))
    for _ in range(2):
        save_and_look(trainer)
    before = sorted_out(trainer)
    assert bool(before.work) == (place == "by the driver")
    change(trainer)
    for _ in range(2):
        save_and_look(trainer)
    assert (sorted_out(trainer) is before) == is_as_it_was
    assert trainer.words.load(Word.ERRORS) == 0


def save_and_look(trainer: Trainer) -> None:
    was = trainer.save()
    assert trainer.is_under_way
    trainer.step()
    assert same(trainer.found(), was)


def test_no_memory_is_kept(trainer: Trainer, place: str) -> None:
    """While a copy is under way it must stay; then it is the script's alone."""
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    save_and_look(trainer)
    memory = np.full((SIDE, SIDE), 0.25, np.float32)
    gone = weakref.ref(memory)
    trainer.model.weight.data = torch.from_numpy(memory)
    del memory
    for _ in range(3):  # the second one is described as the first, the third sorted out as it
        trainer.gate.set()
        trainer.saver.settle()
        was = trainer.save()
    trainer.model.weight.data = torch.zeros(SIDE, SIDE)
    assert gone() is not None
    trainer.gate.set()
    assert same(trainer.found(), was)
    trainer.saver.settle()
    assert gone() is None


def test_a_tensor_of_the_script_is_not_kept(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    for _ in range(3):
        save_and_look(trainer)
    trainer.saver.settle()
    state = trainer.optimizer.state[trainer.model.weight]
    gone = weakref.ref(state["exp_avg"])
    state["exp_avg"] = torch.zeros(SIDE, SIDE)
    assert gone() is None


# --- the thread ---------------------------------------------------------------------------------


def standing() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "holdfast-late-copy"]


def test_one_thread_makes_all_copies(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    save_and_look(trainer)
    (thread,) = standing()
    for _ in range(3):
        save_and_look(trainer)
    assert standing() == [thread]


def test_a_copy_that_ends_in_an_error_ends(
    trainer: Trainer, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))

    def broken() -> None:
        raise ValueError("nobody listens")

    told, trainer.boundary.hurry = trainer.boundary.hurry, broken
    trainer.save()
    trainer.gate.set()
    trainer.saver.settle()
    done = threading.Event()
    late._thread.give(done.set)  # it goes on
    done.wait()
    assert "nobody listens" in capfd.readouterr().err
    trainer.boundary.hurry = told
    save_and_look(trainer)


@pytest.mark.parametrize("why", ["no thread", "the end"])
def test_without_a_thread_it_is_copied_here(
    trainer: Trainer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    monkeypatch.setattr(late, "_thread", late._StandingThread())

    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "holdfast-late-copy":
            raise RuntimeError("can't start new thread")
        start(thread)

    if why == "the end":
        monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    else:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(trainer.gate, "wait", lambda: True)
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)


@pytest.mark.real
def test_a_forked_child_waits_for_nothing(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    was = trainer.save()
    copying = trainer.saver._late
    assert copying is not None
    child = os.fork()
    if child == 0:
        try:
            copying.wait()
            is_inert = not copying.is_under_way
            done = threading.Event()
            late._thread.give(done.set)
            os._exit(0 if is_inert and done.wait(10) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    trainer.gate.set()
    assert same(trainer.found(), was)


# --- the proof ----------------------------------------------------------------------------------


KINDS = [
    *(torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.complex128),
    *(torch.bool, torch.int8, torch.float8_e4m3fn),
]


def of_all_kinds(sizes: list[int]) -> dict[str, Any]:
    """Tensors of random bytes. Each lies at an odd place among those of its kind."""
    tree: dict[str, Any] = {}
    for kind in KINDS:
        size = torch.empty((), dtype=kind).element_size()
        raw = torch.randint(0, 2 if kind is torch.bool else 256, (size * (1 + sum(sizes)),))
        of_kind = raw.to(torch.uint8).view(kind)
        first = 1
        for number in sizes:
            tree[f"{number} {kind}"] = of_kind[first : first + number]
            first += number
    return tree | {"scalar": torch.tensor(1.5), "square": torch.randn(30, 30)}


def laid_out(tree: dict[str, Any]) -> tuple[Any, Any]:
    """Its arrays, and their bytes as they are in a buffer."""
    placed = place_all(flatten(tree).leaves)
    data = np.zeros(placed[-1][0].end, np.uint8)
    for entry, leaf, piece in placed:
        for one in arrays.copies(leaf, piece, data[entry.begin : entry.end]):
            arrays.run(one)
    return placed, data


def sums_of(data: bytes) -> list[int]:
    """As the device has them."""
    data += bytes(-len(data) % 8)
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    sums = [sum(words[first :: late.PERIOD]) % (1 << 64) for first in range(late.PERIOD)]
    return [one - (one >> 63 << 64) for one in sums]


@pytest.mark.parametrize("small_bytes", [0, 300, late.SMALL_BYTES])
def test_each_byte_is_summed_once_in_a_round(
    small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(late, "_MOST_SMALL", 3)
    placed, data = laid_out(of_all_kinds([0, 1, 7, 100, 1000, 25_000]))
    seen = np.zeros(len(data), int)
    for turn in range(late.SHARES):
        for one in late._sums(placed, turn):
            found = b""
            for begin, end in one.ranges:
                seen[begin:end] += 1
                found += data[begin:end].tobytes()
            assert one.total.tolist() == sums_of(found)
    assert set(seen) == {1}


@given(st.integers(1, 4 * late.ROUND_BYTES), st.sets(st.integers(0, 3)))
def test_the_sums_of_parts_add_up(size: int, cuts: set[int]) -> None:
    some = torch.randint(0, 256, (size,)).to(torch.uint8)
    begins = [one for cut in sorted(cuts | {0}) if (one := cut * late.ROUND_BYTES) < size]
    parts = zip(begins, [*begins[1:], size], strict=True)
    whole = late._sum([some])
    assert whole.equal(sum(late._sum([some[begin:end]]) for begin, end in parts))
    assert whole.tolist() == sums_of(some.numpy().tobytes())


def exchanged(some: Any) -> None:
    some[[0, 1]] = some[[1, 0]]


def rolled(some: Any) -> None:
    some.copy_(some.roll(1))


def negated(some: Any) -> None:
    """Two of them, whose sign is the highest bit of the bytes: a plain sum stays what it is."""
    ends = some.view(torch.uint8).view(len(some), -1)[:, -1]
    ends[:2] ^= 0x80


@pytest.mark.parametrize("small_bytes", [0, late.SMALL_BYTES])
@pytest.mark.parametrize("change", [exchanged, rolled, negated])
@pytest.mark.parametrize("kind", KINDS)
def test_what_only_changes_places_is_found(
    kind: Any, change: Callable[[Any], None], small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(late, "SHARES", 1)
    raw = torch.arange(40_000) * 37 % (2 if kind is torch.bool else 127)
    some = raw.to(torch.uint8)[: 2500 * torch.empty((), dtype=kind).element_size()].view(kind)
    some.view(torch.uint8)[-8:] = torch.arange(8) % 2  # the last is another one than the first
    placed, _ = laid_out({"some": some})
    was = [one.total for one in late._sums(placed, 0)]
    if change is negated and kind is torch.bool:
        some[:2] = ~some[:2]
    else:
        change(some.view(torch.uint8) if some.element_size() == 1 else some)
    now = [one.total for one in late._sums(placed, 0)]
    assert not all(map(torch.equal, was, now))


@pytest.mark.parametrize("small_bytes", [0, 1 << 30])
@pytest.mark.parametrize("what", ["weight", "bias", "step"])
def test_a_write_into_any_of_them_is_found(
    trainer: Trainer, what: str, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "SMALL_BYTES", small_bytes)
    trainer.use(torch.optim.AdamW(trainer.model.parameters(), foreach=False))
    state = trainer.optimizer.state[trainer.model.bias]
    target = state["step"] if what == "step" else getattr(trainer.model, what)
    for _ in range(late.SHARES):
        trainer.save()
        assert trainer.is_under_way
        target.data.mul_(1.01)
        trainer.step()
        trainer.saver.settle()
        if trainer.words.load(Word.ERRORS):
            return
    pytest.fail("nobody has noticed")


def test_small_ranges_are_brought_back_together() -> None:
    some = [(0, 8), (100, 200)]
    assert list(late._roomfuls(some)) == [some]
    most = late.CHECK_BYTES
    whole = [(8, 2 * most + 9)]
    cut = [(8, most + 8), (most + 8, 2 * most + 8), (2 * most + 8, 2 * most + 9)]
    assert list(late._roomfuls(whole)) == [[one] for one in cut]
