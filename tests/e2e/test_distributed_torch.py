"""Ranks under `torch.distributed`, with gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Distributed

pytestmark = pytest.mark.real

pytest.importorskip("torch")


class TestTorch(Distributed):
    trainer = Path(__file__).with_name("torch_trainer.py")
    left_to_the_other = frozenset(
        (
            "test_sigterm[1]",
            "test_sigterm_while_they_train",
            "test_before_the_first_step_nothing_is_saved[import-run]",
            "test_before_the_first_step_nothing_is_saved[start-run]",
            "test_before_the_first_step_nothing_is_saved[join-0]",
            "test_before_the_first_step_nothing_is_saved[step-0]",
            "test_sigkill[0-None]",
            "test_sigkill_before_the_first_step[join-1]",
            "test_one_rank_fails[0-raise]",
        )
    )
