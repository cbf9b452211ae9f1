"""Sealing with what is known of the sets before gives what sealing without it gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CorruptCheckpoint
from holdfast.snapshot import layout
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.seal import KnownHeaders, seal_part
from holdfast.snapshot.sets import read_manifest
from holdfast.snapshot.structure import has_same_arrays

RANKS = 2
SHARED = ("state", "parts/model")


def tree(value: int, rows: int, *, has_bias: bool) -> dict[str, Any]:
    model: dict[str, Any] = {"w": np.full((rows, 8), float(value)), "embedding": np.ones((32, 16))}
    if has_bias:
        model["bias"] = np.full(300, value)
    return {"state": value, "parts": {"model": model}, "rng": {"drawn": value / 2}}


kinds = st.tuples(st.sampled_from([16, 24]), st.booleans())
sets = st.tuples(st.integers(0, 9), st.booleans(), st.tuples(*[kinds] * RANKS))


def result(folder: Path, step: int, known: KnownHeaders | None) -> Any:
    """What the manifest says, or why there is none."""
    buffer = folder / buffer_name(0)
    try:
        seal_part(buffer, RANKS, attempt=0, step=step, known=known)
    except CorruptCheckpoint as error:
        return str(error)
    return {**read_manifest(buffer).to_json(), "created_unix_ns": 0}


@settings(max_examples=60, deadline=None)
@given(st.lists(sets, min_size=2, max_size=8))
def test_any_sets_in_any_order(sequence: list[Any]) -> None:
    """Values, shapes and arrays that change, on one rank or both, whole and in parts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = KnownHeaders()
        files = [
            BufferFiles(folder, wanted=1, rank=rank, world_size=RANKS, local_world_size=RANKS)
            for rank in range(RANKS)
        ]
        for one in files:
            assert one.prepare(1 << 20) == ""
        for step, (value, in_parts, trees) in enumerate(sequence):
            named = Named(0, step, step, SHARED, (), ("parts/model",), in_parts)
            for one, (rows, has_bias) in zip(files, trees, strict=True):
                one.begin(0, tree(value, rows, has_bias=has_bias), named, None)
            assert result(folder, step, known) == result(folder, step, None)


def test_a_set_like_the_last_one_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownHeaders()
    files = BufferFiles(tmp_path, wanted=1, rank=0, world_size=1, local_world_size=1)
    files.prepare(1 << 20)
    for step in range(3):
        if step == 2:
            monkeypatch.setattr(layout, "stored_arrays", lambda _: pytest.fail("read again"))
        files.begin(0, tree(step, 16, has_bias=True), Named(0, step, 0, SHARED, ()), None)
        seal_part(tmp_path / buffer_name(0), 1, attempt=0, step=step, known=known)


ARRAY = {"$": "array", "kind": "numpy", "dtype": "float32", "shape": [3]}


@pytest.mark.parametrize(
    ("said", "is_same"),
    [
        ({"a": ARRAY, "n": [1, {"$": "float", "bits": "7ff0000000000000"}]}, True),
        ({"a": ARRAY, "n": [2, None]}, True),
        ({"a": ARRAY, "n": [2]}, False),
        ({"a": ARRAY, "n": [2, ARRAY]}, False),
        ({"a": 5, "n": [1, 2.5]}, False),
        ({"b": ARRAY, "n": [1, 2.5]}, False),
        ({"a": {**ARRAY, "shape": [4]}, "n": [1, 2.5]}, False),
        ({"a": ARRAY, "n": {"$": "tuple", "of": [1, 2.5]}}, False),
        ([ARRAY, [1, 2.5]], False),
    ],
)
def test_structures_that_differ_in_values_alone(said: Any, is_same: bool) -> None:
    assert has_same_arrays(said, {"a": ARRAY, "n": [1, 2.5]}) is is_same


@pytest.mark.parametrize("rubbish", [{"$": "float", "bits": "x"}, {"$": "nothing"}])
def test_rubbish_in_place_of_a_value(rubbish: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        has_same_arrays({"a": ARRAY, "n": rubbish}, {"a": ARRAY, "n": 1})
