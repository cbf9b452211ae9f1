"""The parts of the example language model: its data and its function."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

LM = Path(__file__).parents[2] / "examples" / "lm"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_lm_{name}", LM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


data = load("data")


def corpus(n: int = 5000) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=n, dtype=np.uint8)


def test_windows_go_on_where_their_state_was_taken() -> None:
    straight, before = (data.Windows(corpus(), 4, 17, seed=3) for _ in range(2))
    for _ in range(5):
        next(straight)
        next(before)
    after = data.Windows(corpus(), 4, 17, seed=3)
    after.set_state(before.get_state())
    for _ in range(5):
        expected = next(straight)
        assert expected.shape == (4, 17)
        assert expected.dtype == np.uint8
        np.testing.assert_array_equal(next(after), expected)


@pytest.mark.parametrize("other", [(corpus(4999), 3), (corpus(), 4)])
def test_a_position_in_other_data_is_refused(other: tuple[np.ndarray, int]) -> None:
    state = data.Windows(corpus(), 4, 17, seed=3).get_state()
    bytes_, seed = other
    with pytest.raises(ValueError, match="other data"):
        data.Windows(bytes_, 4, 17, seed).set_state(state)


def test_ranks_share_one_batch_without_overlap() -> None:
    whole = data.Windows(corpus(), 6, 17, seed=3)
    ranks = [data.Windows(corpus(), 6, 17, seed=3, rank=rank, ranks=3) for rank in range(3)]
    for _ in range(5):
        parts = [next(windows) for windows in ranks]
        assert [part.shape for part in parts] == [(2, 17)] * 3
        np.testing.assert_array_equal(np.concatenate(parts), next(whole))
    with pytest.raises(SystemExit, match="4 ranks cannot share a batch of 6 evenly"):
        data.Windows(corpus(), 6, 17, seed=3, rank=0, ranks=4)


def test_windows_reach_both_ends_of_the_corpus() -> None:
    windows = data.Windows(np.arange(20, dtype=np.uint8), 64, 17, seed=0)
    assert {int(row[0]) for row in next(windows)} == {0, 1, 2, 3}


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1").write_bytes(b"second" * 100)
    (tmp_path / "a").write_bytes(b"first." * 100)
    train, held_out = data.read_corpus(tmp_path, 8)
    joined = np.concatenate([train, held_out]).tobytes()
    assert joined == b"first." * 100 + b"\n" + b"second" * 100
    with pytest.raises(SystemExit, match="1201 bytes; give at least"):
        data.read_corpus(tmp_path, 100)
    with pytest.raises(SystemExit, match="0 bytes"):
        data.read_corpus(tmp_path / "nowhere", 8)


def test_the_default_corpus_is_this_pythons_library() -> None:
    train, _ = data.read_corpus(None, 64)
    assert len(train) > 3_000_000
    assert b"import" in train[:100_000].tobytes()


def test_the_model_starts_without_an_opinion_and_never_looks_ahead() -> None:
    jax = pytest.importorskip("jax")
    model = load("model")
    config = model.Config(layers=2, width=32, heads=2)
    params = model.init(0, config)
    batch = np.random.default_rng(0).integers(256, size=(2, 17), dtype=np.uint8)
    assert float(model.loss(params, batch, config)) == pytest.approx(math.log(256), abs=0.05)

    tokens = batch[:, :-1].astype(np.int32)
    changed = tokens.copy()
    changed[:, 9] ^= 1
    apply = jax.jit(lambda t: model.apply(params, t, config))
    before, after = np.asarray(apply(tokens)), np.asarray(apply(changed))
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert not np.array_equal(before[:, 9:], after[:, 9:])
