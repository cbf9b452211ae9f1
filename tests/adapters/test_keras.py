"""Keras goes on within an epoch: with each backend, and each kind of data that it has a way for.

Skipped where Keras is not installed: `make trainers` has it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, House

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).with_name("keras_script.py")
NEVER = 10_000
CASES = (
    *[(backend, kind) for backend in ("jax", "torch") for kind in ("arrays", "generator")],
    ("jax", "several at once"),
    ("torch", "PyDataset"),
    *[("tensorflow", kind) for kind in ("arrays", "tf.data", "generator", "several at once")],
)


@pytest.fixture(autouse=True)
def _keras() -> None:
    pytest.importorskip("keras")


def train(
    house: House, backend: str, kind: str, kill_at: int, code: int = EXIT_DONE, *, name: str = "r"
) -> str:
    words = ("run", "--name", name, "--save-every", 5, "--", sys.executable, SCRIPT, kind, kill_at)
    how = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": 1, "TF_CPP_MIN_LOG_LEVEL": 2}
    return house.holdfast(*words, **how).wait(code)


def ends(text: str) -> list[str]:
    """What epochs came to, each as it was told last, and the digest."""
    told = re.findall(r"^(epoch \d+|final):? (.*)$", text, re.MULTILINE)
    return [f"{name} {numbers}" for name, numbers in dict(told).items()]


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_a_killed_training_goes_on_within_the_epoch(
    backend: str, kind: str, house: House, tmp_path: Path
) -> None:
    untouched = House(tmp_path / "untouched", house.store)
    untouched.folder.mkdir()
    whole = untouched.start(
        sys.executable,
        SCRIPT,
        kind,
        NEVER,
        KERAS_BACKEND=backend,
        OMP_NUM_THREADS=1,
        HOLDFAST_STORE=tmp_path / "other",
    ).wait(EXIT_DONE)
    untouched.close()
    killed = train(house, backend, kind, 17 if kind == "several at once" else 52)
    assert "killed by SIGKILL" in killed
    assert re.search(r"starting from step [1-9]", killed)
    assert len(ends(whole)) == 5
    assert ends(killed) == ends(whole)
    assert "outside" not in whole + killed


@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_a_training_that_ended_early_is_over_though_the_script_fails(
    backend: str, house: House
) -> None:
    text = train(house, backend, "stops early, then fails", NEVER)
    assert "exited with code 3" in text
    assert "the script ended its training at step 25, in an earlier attempt" in text
    assert "trained up to step 0\n" in text, "none since"
    house.folder.joinpath("checkpoints").rename(house.folder / "failed")
    untouched = train(house, backend, "stops early", NEVER, name="untouched")
    assert ends(text)[-1] == ends(untouched)[-1]


def test_another_model_is_told_in_a_sentence(house: House) -> None:
    train(house, "jax", "arrays", NEVER)
    changed = house.folder / "changed.py"
    changed.write_text(SCRIPT.read_text().replace("Dense(32", "Dense(48"))
    words = ("run", "--name", "r", "--", sys.executable, changed, "arrays", NEVER)
    text = house.holdfast(*words, KERAS_BACKEND="jax").wait(EXIT_CONFIGURATION)
    assert "cannot be loaded" in text


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_ranks_that_know_nothing_of_each_other_are_refused(backend: str, house: House) -> None:
    words = ("run", "--name", "r", "--ranks", 2, "--", sys.executable, SCRIPT, "arrays", NEVER)
    text = house.holdfast(*words, KERAS_BACKEND=backend).wait(EXIT_CONFIGURATION)
    assert "the run has 2 ranks, and Keras trains in 1 process" in text
