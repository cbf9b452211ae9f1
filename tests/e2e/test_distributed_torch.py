"""Ranks under `torch.distributed`, with DistributedDataParallel and gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Distributed

pytest.importorskip("torch")


class TestTorch(Distributed):
    trainer = Path(__file__).with_name("torch_trainer.py")
