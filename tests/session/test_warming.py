"""What a restore needs is made ready once: the manifest, and memory for the arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.session.warming import Warming
from holdfast.snapshot import sets
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A set of one rank."""
    place = tmp_path / "ckpt" / sets.set_name(0, 8)
    place.parent.mkdir()
    captured = Staging().capture({"state": {"a": np.arange(1000)}})
    write_shard(place, captured, attempt=0, step=8, rank=0, world_size=1)
    sets.commit(place, 1)
    return place


def test_the_manifest_comes_with_the_memory(place: Path) -> None:
    warming = Warming(place, 0, 1)
    warm = warming.take(place)
    assert warm is not None
    assert warm.manifest == sets.read_manifest(place)
    assert set(warm.room) == {"state/a"}
    assert warming.take(place) is None  # handed over once


def test_what_was_prepared_is_for_one_set_alone(place: Path) -> None:
    assert Warming(place, 0, 1).take(place.with_name(sets.set_name(0, 9))) is None


def test_a_set_that_cannot_be_read_is_the_restores_to_tell(place: Path) -> None:
    (place / "manifest.json").write_bytes(b"{}")
    assert Warming(place, 0, 1).take(place) is None
