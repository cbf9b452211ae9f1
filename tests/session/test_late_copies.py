"""Copies beside the next step, with the CPU in the device's place: what changes too early is found.

A copy waits at a gate until the test opens it, so nothing here depends on who is faster.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.core.save.word import Order, pack, unpack, with_buffer
from holdfast.journal.layout import Identity, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session import optimizers
from holdfast.session.boundary import Boundary
from holdfast.session.contents import Contents
from holdfast.session.memory import RamPlace, RankBuffers
from holdfast.session.saver import Saver
from holdfast.snapshot import late
from holdfast.snapshot.ram_folder import buffer_name, claim_ram
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer

SIDE = 64


class Trainer:
    """A model, its optimizer, and a rank under orders."""

    def __init__(self, base: Path) -> None:
        self.folder = claim_ram(base, "run").path
        identity = Identity("r", 0, "i", 0, "host", 0, "boot")
        self.writer = JournalWriter.create(base / "rank-00000.hfj", identity)
        self.words = self.writer.page
        self.contents = Contents()
        self.saver = Saver(
            base / "ckpt",
            self.words,
            self.contents,
            attempt=lambda: 0,
            rank=0,
            world_size=1,
            memory=RankBuffers(RamPlace(self.folder, 3, 0, 1), self.words, 0, 1),
        )
        self.boundary = Boundary(self.writer, self.saver)
        self.boundary.begin(1, 1000, 1)
        self.waited = 0
        self.model: Any = torch.nn.Linear(SIDE, SIDE)
        self.optimizer: Any = None
        self.gate = threading.Event()
        self.told = threading.Event()
        self.boundary.hurry = self.told.set
        self.contents.optimizers.span = self._waits
        self.epoch = 0
        self.after_backward: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def _waits(self) -> Iterator[None]:
        self.waited += 1
        self.gate.set()  # whoever would change the state has come to the place where it waits
        yield

    def use(self, optimizer: Any, model: Any = None, **more: Any) -> None:
        self.model = model or self.model
        self.optimizer = optimizer
        self.contents.track({"model": self.model, "optimizer": optimizer} | more)
        self.step()
        for thread in threading.enumerate():
            if thread.name == "holdfast-ram":
                thread.join()
        assert self.words.load(Word.BUFFERS) == 3

    def step(self) -> None:
        number = self.boundary.expected

        def closure() -> Any:
            self.optimizer.zero_grad()
            loss = self.model(self.batch(number)).square().mean()
            loss.backward()
            return loss

        if isinstance(self.optimizer, torch.optim.LBFGS):
            self.optimizer.step(closure)
        else:
            closure()
            self.after_backward()
            self.optimizer.step()
        self.boundary.done(number)

    def batch(self, number: int) -> Any:
        return (torch.full((8, SIDE), float(number)) + torch.arange(SIDE)) / SIDE

    def save(self, flags: int = 0) -> dict[str, Any]:
        """A step whose state is saved; what it was at its boundary."""
        self.gate.clear()
        self.told.clear()
        self.epoch += 1
        order = with_buffer(flags, self.epoch % 3)
        self.words.store(Word.ORDER, pack(self.epoch, self.boundary.expected, order))
        self.step()
        return flat(self.contents.gather(None)["parts"])

    def found(self) -> dict[str, Any]:
        """What the newest set holds, once it is there."""
        self.told.wait()
        assert unpack(self.words.load(Word.COPIED)).epoch == self.epoch
        place = self.folder / buffer_name(self.epoch % 3)
        seal_buffer(place, 1, attempt=0, step=unpack(self.words.load(Word.COPIED)).step)
        return flat(read_set(place)["parts"])

    @property
    def is_under_way(self) -> bool:
        return unpack(self.words.load(Word.TAKEN)).epoch == self.epoch and not self.told.is_set()


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """Copies of all leaves by path."""
    if isinstance(tree, dict):
        pairs = list(tree.items())
    elif isinstance(tree, list | tuple):
        pairs = list(enumerate(tree))
    else:
        tree = tree.detach().numpy().copy() if isinstance(tree, torch.Tensor) else np.array(tree)
        return {path: tree}
    found: dict[str, Any] = {}
    for name, one in pairs:
        found |= flat(one, f"{path}/{name}")
    return found


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainer]:
    monkeypatch.setattr(optimizers, "LATE_ON", {"cpu"})
    one = Trainer(tmp_path)
    copy = late.LateCopy._copy

    def at_gate(self: late.LateCopy) -> None:
        one.gate.wait()
        copy(self)

    monkeypatch.setattr(late.LateCopy, "_copy", at_gate)
    yield one
    one.gate.set()
    one.saver.close()
    one.contents.optimizers.close()
    one.writer.close()


class Subclass(torch.optim.SGD):
    """Whose step does more than its parent's."""

    def step(self, closure: Any = None) -> Any:
        done = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for one in group["params"]:
                    one.mul_(0.999)
        return done


KINDS: dict[str, Callable[[Any], Any]] = {
    "AdamW": torch.optim.AdamW,
    "AdamW fused": lambda all_of: torch.optim.AdamW(all_of, fused=True),
    "AdamW foreach": lambda all_of: torch.optim.AdamW(all_of, foreach=True),
    "AdamW amsgrad": lambda all_of: torch.optim.AdamW(all_of, amsgrad=True),
    "Adam": torch.optim.Adam,
    "SGD": lambda all_of: torch.optim.SGD(all_of, lr=1e-3, momentum=0.9),
    "SGD fused": lambda all_of: torch.optim.SGD(all_of, lr=1e-3, momentum=0.9, fused=True),
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "ASGD": torch.optim.ASGD,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": lambda all_of: torch.optim.RMSprop(all_of, momentum=0.9),
    "Rprop": torch.optim.Rprop,
    "LBFGS": torch.optim.LBFGS,
    "a subclass": lambda all_of: Subclass(all_of, lr=1e-3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizers_step_waits_for_the_copy(trainer: Trainer, kind: str) -> None:
    trainer.use(KINDS[kind](trainer.model.parameters()))
    for _ in range(20):  # a round of sixteenths, and more
        was = trainer.save()
        assert trainer.is_under_way, kind
        trainer.step()
        assert same(trainer.found(), was)
    assert trainer.waited == 20
    assert trainer.words.load(Word.ERRORS) == 0


def test_no_step_waits_for_a_copy_that_is_over(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    was = trainer.save()
    trainer.gate.set()
    found = trainer.found()
    trainer.step()
    assert trainer.waited == 0
    assert same(found, was)


def test_the_next_copy_waits_for_the_end_of_this_one(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    trainer.save()
    first = trainer.saver._late
    trainer.contents.optimizers._late = None  # so that the step does not wait
    monkey = trainer.saver.settle
    seen: list[bool] = []

    def settle() -> None:
        seen.append(first is not None and first.is_under_way)
        trainer.gate.set()
        monkey()
        assert first is not None
        assert not first.is_under_way

    trainer.saver.settle = settle  # type: ignore[method-assign]
    trainer.save()
    assert seen == [True]


@pytest.mark.parametrize("flags", [Order.DURABLE, Order.STOP | Order.DURABLE])
def test_nobody_waits_for_a_copy_that_ends_later(
    trainer: Trainer, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer.boundary, "await_verdict", lambda *_: None)
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    was = trainer.save(flags)
    assert trainer.told.is_set()
    assert same(trainer.found(), was)


def test_the_last_step_is_copied_at_its_boundary(trainer: Trainer) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    trainer.boundary._last_step = trainer.boundary.expected
    trainer.save()
    assert trainer.told.is_set()


# --- what changes at the wrong time -------------------------------------------------------------


def scale(tensor: Any) -> None:
    tensor.data.mul_(1.01)


def through_numpy(tensor: Any) -> None:
    tensor.detach().numpy()[:] *= 1.01


def through_dlpack(tensor: Any) -> None:
    np.from_dlpack(tensor.detach())  # readers are harmless
    torch.from_dlpack(tensor.detach()).mul_(1.01)


def broadcast(tensor: Any) -> None:
    with torch.no_grad():
        tensor.copy_(torch.full_like(tensor, tensor.flatten()[0].item() + 1.0))


def replaced_rows(tensor: Any) -> None:
    with torch.no_grad():
        tensor[: len(tensor) // 2 + 1].add_(1.0)


def exchanged_rows(tensor: Any) -> None:
    with torch.no_grad():
        tensor[[0, 1]] = tensor[[1, 0]]


def rolled(tensor: Any) -> None:
    with torch.no_grad():
        tensor.copy_(tensor.roll(1))


WRITES = [scale, through_numpy, through_dlpack, broadcast, replaced_rows, exchanged_rows, rolled]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("what", ["a parameter", "a moment"])
def test_what_changes_before_it_was_told_to_is_found_within_a_round(
    trainer: Trainer, write: Callable[[Any], None], what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters(), foreach=True))
    weight = trainer.model.weight
    target = weight if what == "a parameter" else trainer.optimizer.state[weight]["exp_avg"]
    for _ in range(late.SHARES):
        was = trainer.save()
        assert trainer.is_under_way
        write(target)
        trainer.step()
        trainer.saver.settle()
        if unpack(trainer.words.load(Word.FAILED)).epoch == trainer.epoch:
            break
    else:
        pytest.fail("nobody has noticed")
    assert unpack(trainer.words.load(Word.COPIED)).epoch < trainer.epoch
    said = capfd.readouterr().err
    assert "changed while it was copied beside the step; training goes on" in said
    was = trainer.save()
    assert trainer.told.is_set()  # at the boundary from now on
    assert "Snapshots: everything is copied at the boundary, because" in capfd.readouterr().err
    assert same(trainer.found(), was)


def test_another_optimizer_of_the_same_parameters_waits_too(trainer: Trainer) -> None:
    other = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    was = trainer.save()
    trainer.model(trainer.batch(1)).square().mean().backward()
    other.step()
    assert trainer.waited == 1
    assert same(trainer.found(), was)


def test_what_no_optimizer_changes_is_copied_at_the_boundary(trainer: Trainer) -> None:
    """Running statistics, averages, and what the script keeps by itself."""
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.BatchNorm1d(SIDE))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    trainer.use(optimizer, model, average=average)
    was = trainer.save()
    assert trainer.is_under_way
    model(trainer.batch(3))
    average.update_parameters(model)
    trainer.gate.set()
    assert same(trainer.found(), was)
    assert not same(flat(trainer.contents.gather(None)["parts"]), was)


# --- what is refused ----------------------------------------------------------------------------


def refused(trainer: Trainer, capfd: pytest.CaptureFixture[str]) -> str:
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)
    lines = capfd.readouterr().err.splitlines()
    (line,) = [one for one in lines if "at the boundary" in one]
    return line.removeprefix("holdfast: ")


def test_an_optimizer_that_is_none(trainer: Trainer, capfd: pytest.CaptureFixture[str]) -> None:
    class Own:
        def __init__(self, parameters: Any) -> None:
            self.param_groups = [{"params": list(parameters)}]

        def step(self) -> None:
            with torch.no_grad():
                for one in self.param_groups[0]["params"]:
                    one.sub_(1e-3 * one.grad)

        def zero_grad(self) -> None:
            for one in self.param_groups[0]["params"]:
                one.grad = None

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, _: dict[str, Any]) -> None:
            pass

    trainer.use(Own(trainer.model.parameters()))
    assert refused(trainer, capfd) == (
        "Snapshots: optimizer is copied at the boundary, because it is no torch.optim.Optimizer, "
        "so that nobody sees when its steps begin"
    )


def test_the_wrapper_of_an_optimizer_is_looked_into(trainer: Trainer) -> None:
    """As accelerate's: a subclass without the hooks of one, around the real one."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

        @property
        def param_groups(self) -> Any:
            return self.optimizer.param_groups

        @property
        def state(self) -> Any:
            return self.optimizer.state

        def state_dict(self) -> Any:
            return self.optimizer.state_dict()

        def zero_grad(self, *_: Any) -> None:  # type: ignore[override]
            self.optimizer.zero_grad()

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

    trainer.use(Wrapper(torch.optim.AdamW(trainer.model.parameters())))
    was = trainer.save()
    assert trainer.is_under_way
    trainer.step()
    assert same(trainer.found(), was)


def follow_gradient(parameter: Any) -> None:
    parameter.data.sub_(parameter.grad * 1e-3)


def test_an_optimizer_in_the_backward_pass(
    trainer: Trainer, capfd: pytest.CaptureFixture[str]
) -> None:
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=1e-3)
    for one in trainer.model.parameters():
        one.register_post_accumulate_grad_hook(follow_gradient)
    trainer.use(optimizer)
    assert refused(trainer, capfd) == (
        "Snapshots: optimizer is copied at the boundary, because hooks of its parameters may "
        "change them in the backward pass"
    )


def test_an_embedding_that_is_renormed(trainer: Trainer, capfd: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(SIDE, SIDE, max_norm=0.5), trainer.model)
    trainer.batch = lambda number: torch.arange(8) + number % 50  # type: ignore[method-assign]
    trainer.use(torch.optim.AdamW(model.parameters()), model)
    was = trainer.save()
    assert trainer.is_under_way  # all but its weight
    model(trainer.batch(7))
    trainer.gate.set()
    assert same(trainer.found(), was)
    assert "Snapshots: model.0 is copied at the boundary, because its max_norm changes it" in (
        capfd.readouterr().err
    )


class Plain(torch.optim.Optimizer):
    """Whose step a compiler takes in one piece."""

    def step(self) -> None:  # type: ignore[override]
        with torch.no_grad():
            for group in self.param_groups:
                for one in group["params"]:
                    one.sub_(1e-3 * one.grad)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.parametrize("how", ["compiled", "replayed"])
def test_steps_that_nobody_sees(
    trainer: Trainer, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A compiler must not stumble over us; a graph that is replayed calls nobody."""
    optimizer = Plain(trainer.model.parameters(), {})
    trainer.use(optimizer)
    if how == "compiled":
        unseen = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    else:
        unseen = lambda: Plain.step.__wrapped__(optimizer)  # type: ignore[attr-defined]  # noqa: E731
    trainer.optimizer = SimpleNamespace(step=unseen)
    trainer.optimizer.zero_grad = optimizer.zero_grad
    assert "because its steps are not seen" in refused(trainer, capfd)


def test_a_script_that_knows_better(trainer: Trainer, capfd: pytest.CaptureFixture[str]) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    trainer.contents.optimizers.is_safe = False
    assert refused(trainer, capfd) == (
        "Snapshots: everything is copied at the boundary, because the script has called "
        "run.snapshot_safe(False)"
    )
    trainer.contents.optimizers.is_safe = True  # it was of that step alone
    was = trainer.save()
    assert trainer.is_under_way
    trainer.step()
    assert same(trainer.found(), was)


def test_steps_that_are_captured_in_a_graph_spoil_the_copy(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    trainer.save()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    optimizers_of = trainer.contents.optimizers
    optimizers_of._before_step(torch, trainer.optimizer)
    monkeypatch.undo()
    trainer.gate.set()
    trainer.saver.settle()
    assert unpack(trainer.words.load(Word.FAILED)).epoch == trainer.epoch
    assert "optimizer: its step is captured in a CUDA graph" in capfd.readouterr().err


def test_a_copy_that_fails_fails_alone(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    run = late.arrays.run

    def broken(_: Any) -> None:
        if threading.current_thread().name == "holdfast-late-copy":
            raise OSError("the bus is gone")
        run(_)

    monkeypatch.setattr(late.arrays, "run", broken)
    trainer.save()
    trainer.step()
    trainer.saver.settle()
    assert unpack(trainer.words.load(Word.FAILED)).epoch == trainer.epoch
    assert "could not be saved: the bus is gone; training goes on" in capfd.readouterr().err
    monkeypatch.setattr(late.arrays, "run", run)
    was = trainer.save()
    trainer.step()
    assert same(trainer.found(), was)


def test_on_a_cpu_all_is_copied_at_the_boundary(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optimizers, "LATE_ON", {"cuda"})
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)
    assert "at the boundary" not in capfd.readouterr().err
