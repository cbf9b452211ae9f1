"""Once a late copy is found to be torn, those before it in memory are restored no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.session.test_late_copies import Trainer, same, trainer

from holdfast.core.save.word import Order, unpack
from holdfast.errors import CorruptCheckpoint
from holdfast.journal.layout import Word
from holdfast.snapshot.flush import flush_set
from holdfast.snapshot.ram_folder import buffer_name, sealed_buffers
from holdfast.snapshot.seal import seal_buffer

__all__ = ["trainer"]

SAYS = "holdfast: Snapshots: what memory holds of step {} is not restored any more, because"


def halve(trainer: Trainer) -> None:
    """All that is copied late, so that any sixteenth shows it."""
    for group in trainer.optimizer.param_groups:
        for one in group["params"]:
            one.data.mul_(0.5).add_(1)
            for moment in trainer.optimizer.state[one].values():
                moment.data.mul_(0.5).add_(1)


def steps_in_memory(trainer: Trainer) -> list[int]:
    return [one.info.step for one in sealed_buffers(trainer.folder)[0]]


def saved(trainer: Trainer, flags: int = 0) -> int:
    """A set that is sealed; its step."""
    was = trainer.save(flags)
    assert trainer.is_under_way == (not flags)
    trainer.step()
    assert same(trainer.found(), was)
    return unpack(trainer.words.load(Word.COPIED)).step


def torn(trainer: Trainer) -> None:
    trainer.save()
    assert trainer.is_under_way
    halve(trainer)
    trainer.step()
    trainer.saver.settle()
    assert unpack(trainer.words.load(Word.FAILED)).epoch == trainer.epoch


@pytest.fixture
def adam(trainer: Trainer) -> Trainer:
    trainer.use(torch.optim.AdamW(trainer.model.parameters()))
    return trainer


def test_what_was_copied_late_before_counts_no_more(
    adam: Trainer, capfd: pytest.CaptureFixture[str]
) -> None:
    at_boundary = saved(adam, Order.DURABLE)
    late = saved(adam)
    assert steps_in_memory(adam) == [at_boundary, late]
    torn(adam)
    assert steps_in_memory(adam) == [at_boundary]
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith(SAYS.format(late))
    assert "changed while it was copied beside the step; training goes on" in second


def test_a_buffer_that_was_taken_back_is_filled_again(adam: Trainer) -> None:
    saved(adam)
    saved(adam)
    torn(adam)
    assert steps_in_memory(adam) == []
    steps = []
    for _ in range(3):
        was = adam.save()
        assert same(adam.found(), was)
        steps.append(unpack(adam.words.load(Word.COPIED)).step)
    assert steps_in_memory(adam) == steps


def test_its_seal_and_its_flush_fail(
    adam: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = saved(adam)
    place, store = adam.folder / buffer_name(adam.epoch % 3), tmp_path / "ckpt" / "set"
    torn(adam)
    with pytest.raises(CorruptCheckpoint):  # so the agent hears that it is gone
        flush_set(place, store, attempt=0, step=step)
    with pytest.raises(CorruptCheckpoint):
        seal_buffer(place, 1, attempt=0, step=step)
    assert steps_in_memory(adam) == []


def test_a_buffer_that_is_gone_disturbs_nobody(adam: Trainer) -> None:
    saved(adam)
    place = adam.folder / buffer_name(adam.epoch % 3)
    for path in place.iterdir():
        path.unlink()
    torn(adam)
    assert list(place.iterdir()) == []


def test_a_copy_that_is_spoilt_by_what_was_seen_tells_nothing_of_others(adam: Trainer) -> None:
    step = saved(adam)
    adam.save()
    late: Any = adam.saver._late
    late.spoil("its step is captured")
    adam.step()
    adam.saver.settle()
    assert unpack(adam.words.load(Word.FAILED)).epoch == adam.epoch
    assert steps_in_memory(adam) == [step]


def test_what_was_copied_at_its_boundary_over_a_late_copy_stays(adam: Trainer) -> None:
    saved(adam)
    steps = [saved(adam, Order.DURABLE) for _ in range(3)]
    torn(adam)  # in the buffer of the first of them
    assert steps_in_memory(adam) == steps[1:]
