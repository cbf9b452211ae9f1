"""Ranks under `jax.distributed`, with gloo: collectives, a coordination service, its barriers."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Distributed

pytest.importorskip("jax")


class TestJax(Distributed):
    trainer = Path(__file__).with_name("jax_trainer.py")
