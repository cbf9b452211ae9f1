"""Copies of JAX's arrays on their devices, with the CPU in a device's place: what a set holds then.

A copy is fetched once the test opens a gate, so nothing here depends on who is faster.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast.core.save.word import Order, pack, unpack, with_buffer
from holdfast.journal.layout import Identity, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session import boundary as boundaries
from holdfast.session import optimizers
from holdfast.session.boundary import Boundary
from holdfast.session.contents import Contents
from holdfast.session.memory import RamPlace, RankBuffers
from holdfast.session.saver import Saver
from holdfast.snapshot import device_copies, late
from holdfast.snapshot.ram_folder import buffer_name, claim_ram
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state: Any) -> Any:
    return jax.tree.map(lambda a: a + jnp.ones((), a.dtype), state)


def first_state() -> dict[str, Any]:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows = jnp.arange(64.0).reshape(len(jax.devices()), -1)
    return {
        "w": jnp.arange(1000.0),
        "half": jnp.ones((7, 5), jnp.bfloat16),
        "rows": jax.device_put(rows, NamedSharding(mesh, PartitionSpec("data"))),
        "all": jax.device_put(jnp.arange(8), NamedSharding(mesh, PartitionSpec())),
        "count": jnp.zeros((), jnp.int32),
        "none": jnp.zeros((0, 3)),
    }


class JaxTrainer:
    """A state, a step that takes its memory, and a rank under orders."""

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
        self.gate = threading.Event()
        self.told = threading.Event()
        self.boundary.hurry = self.told.set
        self.epoch = 0
        self.state = first_state()

    def ready(self) -> None:
        """Buffers are there, and the program that copies, after a save at its boundary."""
        self.step()
        join("holdfast-ram")
        assert self.words.load(Word.BUFFERS) == 3
        self.save()
        self.saver.settle()  # a copy at the boundary is over; tensors of torch are perhaps late
        join("holdfast-beside")

    def step(self) -> None:
        self.state = train_step(self.state)
        self.boundary.done(self.boundary.expected, self.state)

    def save(self, flags: int = 0) -> Any:
        """A step whose state is saved; what it was at its boundary."""
        self.gate.clear()
        self.told.clear()
        self.epoch += 1
        order = with_buffer(flags, self.epoch % 3)
        self.words.store(Word.ORDER, pack(self.epoch, self.boundary.expected, order))
        self.step()
        return jax.tree.map(lambda a: np.array(a, copy=True), self.state)

    def found(self) -> Any:
        """The state in the newest set, once it is there."""
        self.told.wait()
        assert unpack(self.words.load(Word.COPIED)).epoch == self.epoch
        place = self.folder / buffer_name(self.epoch % 3)
        seal_buffer(place, 1, attempt=0, step=unpack(self.words.load(Word.COPIED)).step)
        return read_set(place)["state"]

    @property
    def is_under_way(self) -> bool:
        return unpack(self.words.load(Word.TAKEN)).epoch == self.epoch and not self.told.is_set()

    @property
    def has_failed(self) -> bool:
        self.saver.settle()
        return unpack(self.words.load(Word.FAILED)).epoch == self.epoch


def join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()


def same(found: Any, was: Any) -> bool:
    return jax.tree.structure(found) == jax.tree.structure(was) and all(
        one.dtype == other.dtype and np.array_equal(np.asarray(one), other)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(was), strict=True)
    )


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JaxTrainer]:
    monkeypatch.setattr(device_copies, "NOT_ON", set())
    one = JaxTrainer(tmp_path)
    fetch = device_copies.Copied.fetch

    def at_gate(self: device_copies.Copied, copy: Callable[[Any], None]) -> int:
        one.gate.wait()
        return fetch(self, copy)

    monkeypatch.setattr(device_copies.Copied, "fetch", at_gate)
    yield one
    one.gate.set()
    one.saver.close()
    one.contents.optimizers.close()
    one.writer.close()


def test_a_set_holds_what_was_there_though_steps_take_the_memory(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")  # a script has JAX alone
    trainer.ready()
    for _ in range(4):
        was = trainer.save()
        assert trainer.is_under_way
        before = trainer.state
        trainer.step()
        trainer.step()
        assert jax.tree.leaves(before)[0].is_deleted()
        trainer.gate.set()
        assert same(trainer.found(), was)
    assert trainer.words.load(Word.ERRORS) == 0


def test_the_host_waits_for_no_step_that_is_copied_on_its_device(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(boundaries, "_await_device", lambda _: waited.append(trainer.epoch))
    trainer.ready()
    for flags in (0, 0, Order.DURABLE, 0):
        trainer.save(flags)
        trainer.gate.set()
        trainer.saver.settle()
    assert waited == [0, 1, 4]  # the first step, the first copy, and a durable one


def test_the_host_waits_where_some_arrays_are_not_in_the_devices_own_memory(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that a script keeps in the host's: they are copied at the boundary."""
    may_be_copied = device_copies.may_be_copied
    monkeypatch.setattr(
        device_copies,
        "may_be_copied",
        lambda leaf: leaf.path != "state/count" and may_be_copied(leaf),
    )
    trainer.ready()
    was = trainer.save()
    assert trainer.is_under_way
    trainer.step()
    trainer.gate.set()
    assert same(trainer.found(), was)
    assert trainer.saver.waits_for_device


def test_the_first_copy_and_those_that_are_waited_for_are_made_at_the_boundary(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer.boundary, "await_verdict", lambda *_: None)
    trainer.ready()
    for flags in (Order.DURABLE, Order.STOP | Order.DURABLE):
        was = trainer.save(flags)
        assert trainer.told.is_set()
        assert same(trainer.found(), was)
    trainer.boundary._last_step = trainer.boundary.expected
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)


def test_another_state_is_copied_at_the_boundary_once(trainer: JaxTrainer) -> None:
    trainer.ready()
    trainer.state["w"] = jnp.arange(7.0)
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)
    join("holdfast-beside")
    was = trainer.save()
    assert trainer.is_under_way
    trainer.gate.set()
    assert same(trainer.found(), was)


def test_keys_and_weak_types_come_back_as_they_were(trainer: JaxTrainer) -> None:
    trainer.state = {"key": jax.random.key(3), "weak": jnp.asarray(2.0), "n": jnp.zeros(3)}
    step = jax.jit(lambda s: {**s, "n": s["n"] + 1}, donate_argnums=0)
    trainer.step = lambda: (  # type: ignore[method-assign]
        setattr(trainer, "state", step(trainer.state)),
        trainer.boundary.done(trainer.boundary.expected, trainer.state),
    )[1]
    trainer.step()
    join("holdfast-ram")
    for _ in range(2):
        trainer.gate.clear()
        trainer.told.clear()
        trainer.epoch += 1
        order = pack(trainer.epoch, trainer.boundary.expected, with_buffer(0, trainer.epoch % 3))
        trainer.words.store(Word.ORDER, order)
        trainer.step()
        was = np.asarray(jax.random.key_data(trainer.state["key"]))
        is_late = trainer.is_under_way
        trainer.step()
        trainer.gate.set()
        found = trainer.found()
        join("holdfast-beside")
    assert is_late
    assert found["weak"].weak_type
    assert np.array_equal(jax.random.key_data(found["key"]), was)


def test_tensors_of_torch_in_the_same_set(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "LATE_ON", {"cpu"})
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    trainer.contents.track({"model": model, "optimizer": optimizer})

    def step() -> None:
        model(torch.ones(2, 64)).square().mean().backward()
        optimizer.step()
        JaxTrainer.step(trainer)

    trainer.step = step  # type: ignore[method-assign]
    trainer.ready()
    was = trainer.save()
    weight = model.weight.detach().clone()
    assert trainer.is_under_way
    trainer.step()  # the optimizer waits for its copy alone
    trainer.gate.set()
    assert same(trainer.found(), was)
    parts = read_set(trainer.folder / buffer_name(trainer.epoch % 3))["parts"]
    assert torch.equal(torch.as_tensor(parts["model"]["weight"]), weight)


# --- what is refused ----------------------------------------------------------------------------


def test_a_copy_that_fails_fails_alone(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.ready()
    run = late.arrays.run

    def broken(copy: Any) -> None:
        if threading.current_thread().name == "holdfast-late-copy":
            raise OSError("the bus is gone")
        run(copy)

    monkeypatch.setattr(late.arrays, "run", broken)
    trainer.save()
    trainer.step()
    trainer.gate.set()
    assert trainer.has_failed
    said = capfd.readouterr().err
    assert "could not be saved: the bus is gone; training goes on" in said
    assert (
        "Snapshots: arrays of JAX are copied at the boundary, because a copy of them on their "
        "devices failed (the bus is gone)"
    ) in said
    was = trainer.save()
    assert trainer.told.is_set()  # at the boundary from now on
    assert same(trainer.found(), was)


def test_a_device_that_cannot_copy(
    trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer.ready()

    def full(*_: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory\nand so on")

    monkeypatch.setattr(device_copies, "_run", full)
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)
    assert capfd.readouterr().err.splitlines() == [
        "holdfast: Snapshots: arrays of JAX are copied at the boundary, because their devices "
        "could not copy them (RESOURCE_EXHAUSTED: out of memory)"
    ]


def test_a_script_that_wants_all_of_it_at_the_boundary(trainer: JaxTrainer) -> None:
    trainer.ready()
    trainer.contents.optimizers.is_safe = False
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)


def test_a_cpu_copies_at_the_boundary(trainer: JaxTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_copies, "NOT_ON", {"cpu"})
    trainer.ready()
    was = trainer.save()
    assert trainer.told.is_set()
    assert same(trainer.found(), was)


SEVERAL_DEVICES = """
    import jax, numpy as np
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)
    from jax.sharding import NamedSharding, PartitionSpec as P
    from holdfast.snapshot import device_copies
    from holdfast.snapshot.layout import place
    from holdfast.snapshot.tree import flatten
    device_copies.NOT_ON.clear()
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    specs = (P("x", "y"), P("y"), P(None, "x"), P())
    arrays = [jax.device_put(whole + n, NamedSharding(mesh, one)) for n, one in enumerate(specs)]
    arrays.append(jax.device_put(whole + 4, jax.devices()[3]))
    placed = place(flatten(arrays).leaves)
    copies = device_copies.DeviceCopies(lambda work: work(), print)
    copied, rest = copies.take(placed)
    assert copied is None and len(rest) == 5
    copied, rest = copies.take(placed)
    assert rest == []
    add = jax.jit(lambda a: a + 100, donate_argnums=0)
    after = [add(one) for one in arrays]
    assert all(one.is_deleted() for one in arrays)
    found = {}
    copied.fetch(lambda made: found.update({leaf.path: piece.source for _, leaf, piece in made}))
    assert len(found) == 5, found
    for n, one in enumerate(after):
        assert found[str(n)].sharding == one.sharding
        assert (np.asarray(found[str(n)]) == whole + n).all()
"""


@pytest.mark.real
def test_arrays_on_several_devices() -> None:
    script = [sys.executable, "-c", textwrap.dedent(SEVERAL_DEVICES)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


GB = 1 << 30


class Device:
    """A device as far as it tells of its memory."""

    def __init__(self, **told: int) -> None:
        self.platform = "gpu"
        self.told = told

    def memory_stats(self) -> dict[str, int] | None:
        return self.told or None

    def __str__(self) -> str:
        return "cuda:0"


def lacks(copies: device_copies.DeviceCopies, device: Device, nbytes: int) -> str:
    sharding = SimpleNamespace(addressable_devices=[device], shard_shape=lambda shape: shape)
    return copies._lack(((sharding, (((nbytes,), np.dtype("uint8")),)),))


def test_how_much_room_a_device_must_have() -> None:
    copies = device_copies.DeviceCopies(lambda work: work(), lambda _: None)
    device = Device(bytes_limit=64 * GB, peak_bytes_in_use=40 * GB)
    assert lacks(copies, device, 20 * GB) == ""
    device.told["peak_bytes_in_use"] = 60 * GB  # with the copy
    assert lacks(copies, device, 20 * GB) == ""
    assert lacks(copies, device, 20 * GB + 1) != ""
    device.told["peak_bytes_in_use"] = 61 * GB  # something else took more
    assert lacks(copies, device, 20 * GB) == (
        "cuda:0 has no room for a copy of them (20 GiB): steps take up to 61 GiB of 64 GiB"
    )
    assert lacks(copies, Device(), 1) == "cuda:0 does not tell how much memory is free"
