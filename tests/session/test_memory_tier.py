"""The rank's side of the memory tier, driven as its supervisor drives it: through the words."""

from __future__ import annotations

import shutil
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.snapshot.virtual_driver import VirtualDriver, driver

from holdfast.core.save.word import Order, pack, unpack, with_buffer
from holdfast.errors import StoreUnavailable, Unstorable
from holdfast.journal.layout import Identity, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session import asked_save, saver
from holdfast.session.boundary import Boundary
from holdfast.session.contents import Contents
from holdfast.session.memory import RamPlace, RankBuffers
from holdfast.session.saver import Saver
from holdfast.snapshot import ram
from holdfast.snapshot.ram_folder import buffer_name, claim_ram
from holdfast.snapshot.receipt import DeclaredReplicas, Receipt, receipt_name
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.sealed import read_sealed
from holdfast.snapshot.sets import set_name

__all__ = ["driver"]

ATTEMPT = 2


class Trainer:
    """One rank under orders: what `Run` puts together."""

    def __init__(self, base: Path, ranks: int = 1) -> None:
        self.folder = claim_ram(base, "run").path
        self.writer = JournalWriter.create(
            base / "rank-00000.hfj", Identity("r", ATTEMPT, "i", 0, "host", 0, "boot")
        )
        self.words = self.writer.page
        self.contents = Contents()
        self.saver = Saver(
            base / "ckpt",
            self.words,
            self.contents,
            attempt=lambda: ATTEMPT,
            rank=0,
            world_size=ranks,
            memory=RankBuffers(RamPlace(self.folder, 3, 0, ranks), self.words, 0, ranks),
        )
        self.rung = 0
        self.boundary = Boundary(self.writer, self.saver)
        self.boundary.hurry = self._ring
        self.boundary.begin(1, 1000, 1)

    def _ring(self) -> None:
        self.rung += 1

    def order(self, epoch: int, step: int, buffer: int | None, flags: int = 0) -> None:
        self.words.store(Word.ORDER, pack(epoch, step, with_buffer(flags, buffer)))

    def ask(self) -> None:
        """As `run.save(tag=...)` does."""
        self.boundary.ask_now()

    def sealed(self, buffer: int, step: int) -> dict[str, Any]:
        """What another process finds in a buffer."""
        place = self.folder / buffer_name(buffer)
        seal_buffer(place, 1, attempt=ATTEMPT, step=step)
        return read_set(place)

    def prepared(self) -> None:
        """Who makes buffers has ended."""
        for thread in threading.enumerate():
            if thread.name == "holdfast-ram":
                thread.join()

    def written(self) -> None:
        """Nothing is left to be written to the store."""
        with self.saver._wake:
            self.saver._wake.wait_for(lambda: self.saver._work is None)

    def close(self) -> None:
        self.saver.close()
        self.writer.close()


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainer]:
    for limit in ("LIMIT_NS", "PATIENCE_NS"):
        monkeypatch.setattr(asked_save, limit, 10**18)  # a busy machine is not a failure
    monkeypatch.setattr(asked_save, "WAIT_STEP_S", 0)
    one = Trainer(tmp_path)
    yield one
    one.close()


def test_buffers_are_told_once_they_are_ready(trainer: Trainer) -> None:
    assert trainer.words.load(Word.BUFFERS) == 0
    trainer.saver.expect({"w": np.zeros(1_000_000)})
    trainer.boundary.done(1, {"w": np.zeros(3_000_000)})
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    held = [path.stat().st_blocks * 512 for path in trainer.folder.glob("buffer-*/*")]
    assert min(held) >= 24_000_000


def test_a_set_beside_the_buffers_says_what_its_ranks_are_compared_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for an array that no whole set in memory had: that is this rank's own."""
    trainer = Trainer(tmp_path, ranks=2)
    (tmp_path / "ckpt").mkdir()
    monkeypatch.setattr(trainer.contents, "replicated", lambda _: ("state/model",))
    state = {"model": {"w": np.zeros(8)}, "own": np.zeros(8)}
    trainer.saver.prepare(state, is_external=False)
    trainer.prepared()
    trainer.saver.save(state, 1, 1, with_buffer(0, 0))
    state["model"]["late"] = np.zeros(8)
    trainer.saver.save(state, 2, 2, with_buffer(0, None))
    trainer.written()
    trainer.close()
    folder = tmp_path / "ckpt" / set_name(ATTEMPT, 2)
    receipt = Receipt.from_json(read_sealed(folder / receipt_name(0)))
    assert receipt.declared == DeclaredReplicas(("state/model",), ("state/model/late",))


def test_a_driver_is_called_where_its_descriptors_are(
    trainer: Trainer, driver: VirtualDriver
) -> None:
    """Files are opened by threads without the descriptors that the driver works with."""
    trainer.saver.expect({"w": np.zeros(1_000_000)})
    trainer.boundary.done(1, {"w": np.zeros(3_000_000)})  # larger: mapped and registered anew
    trainer.prepared()
    buffers = trainer.saver._memory._buffers  # type: ignore[union-attr]
    assert buffers.unpinned == ""
    assert [file.pinned is not None for file in buffers._files] == [True] * 3
    shutil.rmtree(trainer.folder)  # and made again
    trainer.order(1, 2, 1)
    trainer.boundary.done(2, {"w": np.zeros(3_000_000)})
    trainer.prepared()
    assert [file.pinned is not None for file in buffers._files] == [True] * 3
    trainer.order(2, 3, 1)
    trainer.boundary.done(3, {"w": np.ones(3_000_000)})
    assert driver.copied_bytes > 24_000_000
    assert set(trainer.sealed(1, 3)["state"]["w"]) == {1}


def test_an_order_is_answered_into_its_buffer(trainer: Trainer) -> None:
    state = {"w": np.zeros(1000)}
    trainer.boundary.done(1, state)
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    for epoch, step, buffer in ((1, 3, 2), (2, 5, 0), (3, 6, 0)):
        trainer.order(epoch, step, buffer)
        while trainer.boundary.expected <= step:
            state["w"][:] = trainer.boundary.expected
            trainer.boundary.done(trainer.boundary.expected, state)
        assert trainer.words.load(Word.TAKEN) == trainer.words.load(Word.ORDER)
        assert unpack(trainer.words.load(Word.COPIED)) == (epoch, 0, step)
        assert trainer.rung == epoch
        stored = trainer.sealed(buffer, step)
        assert set(stored["state"]["w"]) == {step}
        assert set(stored) == {"state", "parts", "data", "rng", "session"}
    assert trainer.words.load(Word.DURABLE) == 0
    assert trainer.words.load(Word.ERRORS) == 0


def test_a_part_that_was_never_used_is_named_at_the_first_step(trainer: Trainer) -> None:
    parts = torch.nn.ModuleDict({"used": torch.nn.Linear(1, 1), "unused": torch.nn.LazyLinear(1)})
    trainer.contents.track({"model": parts})
    with pytest.raises(Unstorable, match=r"^parts/model/unused.weight: .* call the module once"):
        trainer.boundary.done(1)


@pytest.mark.parametrize(
    ("here", "ranks", "is_asked"), [(1, 1, False), (2, 2, True), (1, 2, False), (2, 4, False)]
)
def test_what_is_equal_is_asked_for_where_ranks_share_the_copy(
    trainer: Trainer, here: int, ranks: int, *, is_asked: bool
) -> None:
    asked = []
    trainer.contents.replicated = lambda _: asked.append(1) or ()  # type: ignore[method-assign]
    trainer.saver._memory = RankBuffers(
        RamPlace(trainer.folder, 3, 0, here), trainer.words, 0, ranks
    )
    trainer.boundary.done(1, {"w": np.zeros(3)})
    trainer.prepared()
    trainer.order(1, 2, 0)
    trainer.boundary.done(2, {"w": np.zeros(3)})
    assert unpack(trainer.words.load(Word.COPIED)) == (1, 0, 2)
    assert bool(asked) == is_asked


def test_without_a_buffer_the_rank_writes_it_itself(trainer: Trainer) -> None:
    trainer.order(1, 1, None)
    (trainer.folder.parents[2] / "ckpt").mkdir()
    trainer.boundary.done(1, {"w": np.ones(3)})
    trainer.written()
    assert unpack(trainer.words.load(Word.DURABLE)) == (1, 0, 1)


def test_a_buffer_that_finds_no_room_ends_the_tier(
    trainer: Trainer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    state = {"w": np.zeros(1000)}
    trainer.boundary.done(1, state)
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3

    def full(*_: Any, **__: Any) -> int:
        raise StoreUnavailable("cannot keep step 2 in memory: no space left; free some")

    monkeypatch.setattr(ram.BufferFiles, "begin", full)
    trainer.contents.tag("best")
    trainer.order(1, 2, 1, Order.DURABLE)
    trainer.boundary.done(2, state)
    assert trainer.words.load(Word.BUFFERS) == 0
    assert trainer.words.load(Word.ERRORS) == 1
    assert unpack(trainer.words.load(Word.FAILED)) == (1, 0, 2)
    assert trainer.words.load(Word.TAKEN) == trainer.words.load(Word.ORDER)  # no miss,
    assert trainer.words.load(Word.COPIED) == 0  # and no copy
    assert trainer.rung == 1
    said = capfd.readouterr().err
    assert "step 2 could not be saved: cannot keep step 2 in memory" in said
    assert "checkpoints go to the store alone" in said
    (trainer.folder.parents[2] / "ckpt").mkdir()
    trainer.order(2, 3, None)
    trainer.boundary.done(3, state)
    trainer.written()
    assert unpack(trainer.words.load(Word.DURABLE)) == (2, 0, 3)
    receipt = next((trainer.folder.parents[2] / "ckpt").glob("*/*.receipt.json"))
    assert '"tags":["best"]' in receipt.read_text()


def test_saves_that_fail_alike_are_said_once_in_a_while(
    trainer: Trainer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """There is no folder for checkpoints: a store that is away looks like that."""
    now_ns = [1]
    monkeypatch.setattr(saver, "now_ns", lambda: now_ns[0])
    state = {"w": np.zeros(1000)}
    trainer.boundary.done(1, state)
    for step in range(2, 13):
        trainer.order(step, step, None)
        trainer.boundary.done(step, state)
        trainer.written()
        assert unpack(trainer.words.load(Word.FAILED)) == (step, 0, step)
    assert capfd.readouterr().err.count("could not be saved") == 1
    now_ns[0] += saver.SAY_AGAIN_NS
    trainer.order(13, 13, None)
    trainer.boundary.done(13, state)
    trainer.written()
    assert "step 13 could not be saved" in capfd.readouterr().err


def test_no_room_at_all_is_said_and_staging_is_warmed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ram, "find_room", lambda *_: ram.Room(1000, "the sky is low"))
    trainer = Trainer(tmp_path)
    trainer.boundary.done(1, {"w": np.zeros(1_000_000)})
    trainer.prepared()
    assert trainer.saver._staging._memory.size > 8_000_000
    trainer.close()
    assert trainer.words.load(Word.BUFFERS) == 0
    said = capfd.readouterr().err
    assert "holdfast: snapshots in memory: no buffer of 8" in said
    assert "fits, because the sky is low; checkpoints go to the store alone" in said


def test_an_asked_save_waits_for_its_own_order(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer's bits in a settled order do not count as the answer."""
    trainer.boundary.done(1, {"w": np.zeros(3)})
    trainer.order(1, 1, 2, Order.DURABLE)
    looks = _answer_at_look(trainer, monkeypatch, 3, lambda: trainer.order(2, 2, 0, Order.DURABLE))
    trainer.ask()
    assert len(looks) == 3


def test_an_asked_save_is_awaited_as_long_as_no_other_is_in_its_way(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who orders may wait for a slow disk: the save is of this step all the same."""
    monkeypatch.setattr(asked_save, "LIMIT_NS", 0)
    looks = _answer_at_look(trainer, monkeypatch, 5, lambda: trainer.order(1, 1, None))
    trainer.ask()
    assert len(looks) == 5


def test_an_asked_save_does_not_wait_for_another_unless_the_script_does(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_save, "LIMIT_NS", 0)
    trainer.boundary.done(1)
    trainer.order(1, 1, None)
    looks = _answer_at_look(trainer, monkeypatch, 5, lambda: trainer.order(2, 2, None))
    trainer.ask()
    assert len(looks) == 1
    trainer.boundary._asked.is_answered = True
    trainer.boundary.wait_for_commit = True
    trainer.ask()
    assert len(looks) == 5


def test_who_does_not_answer_is_awaited_for_long_only_once(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_save, "LIMIT_NS", 0)
    monkeypatch.setattr(asked_save, "PATIENCE_NS", 0)
    looks = _answer_at_look(trainer, monkeypatch, 9, lambda: trainer.order(1, 1, None))
    trainer.ask()
    monkeypatch.setattr(asked_save, "PATIENCE_NS", 10**18)
    trainer.ask()
    assert len(looks) == 2
    trainer.order(1, 1, None)
    trainer.ask()
    assert trainer.boundary._asked.is_answered


def _answer_at_look(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, number: int, answer: Callable[[], None]
) -> list[int]:
    """Run `answer` before the order is looked at for that time; the looks so far."""
    looks: list[int] = []
    page = trainer.words

    def load(word: int) -> int:
        if word == Word.ORDER:
            looks.append(word)
            if len(looks) == number:
                answer()
        return page.load(word)

    watched = types.SimpleNamespace(load=load)
    monkeypatch.setattr(trainer.boundary._asked, "_page", watched)
    return looks


def test_what_happens_to_arrays_afterwards_does_not_reach_the_copy(trainer: Trainer) -> None:
    """JAX buffers are donated, torch tensors and numpy arrays changed in place, right after."""
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    trainer.contents.track({"model": model, "optimizer": optimizer})
    host = np.zeros(100_000)
    state = {"jax": jnp.zeros(100_000), "key": jax.random.key(3), "numpy": host}
    moving = {"jax": state["jax"]}
    trainer.boundary.done(1, state)
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    kept: dict[int, torch.Tensor] = {}
    for n in range(2, 8):
        moving = step(moving)
        optimizer.zero_grad()
        model(torch.ones(1, 300)).sum().backward()
        optimizer.step()
        host += 1
        state = {"jax": moving["jax"], "key": state["key"], "numpy": host}
        kept[n] = model.weight.detach().clone()
        trainer.order(n, n, n % 3, Order.EARLY)
        trainer.boundary.done(n, state)
    for n in (5, 6, 7):
        stored = trainer.sealed(n % 3, n)
        assert set(np.asarray(stored["state"]["jax"])) == {n - 1}
        assert set(stored["state"]["numpy"]) == {n - 1}
        assert torch.equal(stored["parts"]["model"]["weight"], kept[n])
        assert int(stored["parts"]["optimizer"]["state"][0]["step"]) == n - 1


def test_tags_go_with_a_copy_that_becomes_durable(trainer: Trainer) -> None:
    state = {"w": np.zeros(1000)}
    trainer.boundary.done(1, state)
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    trainer.contents.tag("best")
    tags = []
    for epoch, flags in (
        (2, 0),
        (3, Order.DURABLE),
        (4, 0),
        (5, Order.DURABLE),
        (6, Order.DURABLE),
    ):
        trainer.order(epoch, epoch, 0, flags)
        trainer.boundary.done(epoch, state)
        place = trainer.folder / buffer_name(0)
        tags.append(seal_buffer(place, 1, attempt=ATTEMPT, step=epoch).tags)
        if epoch == 3:  # it could not be flushed: the next one that is to be has its tag
            trainer.words.store(Word.VERDICT, pack(3, 3, Order.ABORTED))
    assert tags == [(), ("best",), (), ("best",), ()]


def test_a_save_that_is_not_ordered_in_time_is_of_a_later_step(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.order(1, 5, None)
    monkeypatch.setattr(asked_save, "LIMIT_NS", 0)
    assert not trainer.boundary.ask_now()
    trainer.order(2, 1, None)
    assert trainer.boundary.ask_now()


def test_buffers_that_are_gone_are_made_again(
    trainer: Trainer, capfd: pytest.CaptureFixture[str]
) -> None:
    """The save into one is said to have failed, and that there is none; then there are some."""
    state = {"w": np.zeros(1000)}
    trainer.boundary.done(1, state)
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    shutil.rmtree(trainer.folder)
    trainer.order(1, 2, 0)
    trainer.boundary.done(2, state)
    assert unpack(trainer.words.load(Word.FAILED)) == (1, 0, 2)
    assert "they are made again" in capfd.readouterr().err
    trainer.prepared()
    assert trainer.words.load(Word.BUFFERS) == 3
    trainer.order(2, 3, 1)
    state["w"][:] = 3
    trainer.boundary.done(3, state)
    assert set(trainer.sealed(1, 3)["state"]["w"]) == {3}
