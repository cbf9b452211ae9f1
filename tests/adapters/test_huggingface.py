"""What Hugging Face's Trainer may be told, and Holdfast with it, beside what every trainer is.

Skipped where transformers is not installed: `make adapters` has it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, House

pytestmark = pytest.mark.real

HALF_A_POINT = 0.005
SCRIPT = Path(__file__).with_name("huggingface_script.py")


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers")


def train(house: House, kind: str, code: int = EXIT_DONE) -> str:
    words = ("run", "--name", "r", "--save-every", 12, "--", sys.executable, SCRIPT, kind)
    return house.holdfast(*words, OMP_NUM_THREADS=1).wait(code)


def end(text: str) -> tuple[int, str]:
    """The step, and the parameters."""
    found = re.search(r"^step (\d+), parameters ([0-9a-f]{16})$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]), found[2]


def test_an_evaluation_after_an_epoch_may_end_the_training(house: House) -> None:
    text = train(house, "stops early")
    assert end(text)[0] == 32
    assert (house.folder / "checkpoints" / "checkpoint-32").is_dir()


def test_a_callback_that_hears_of_it_too_soon_is_told(house: House) -> None:
    text = train(house, "is told late", EXIT_CONFIGURATION)
    assert "the training has ended after step 32, which was not saved" in text
    assert "as the last of the Trainer's callbacks" in text


def test_a_trainer_that_saves_its_best_steps_alone_is_refused(house: House) -> None:
    assert 'take save_strategy="no"' in train(house, "best", EXIT_CONFIGURATION)


@pytest.mark.parametrize("kind", ["plain", "saves each epoch"])
def test_a_run_that_is_done_trains_no_step_more(kind: str, house: House) -> None:
    text = train(house, kind)
    assert end(text)[0] == 40
    assert "saves step 40" in text
    again = train(house, kind)
    assert end(again) == end(text)
    assert "saves step" not in again, "over what was verified"
    verified = house.holdfast("ckpt", "verify", "r").wait(EXIT_DONE)
    assert "40" in verified


def test_a_script_that_fails_after_its_training_is_run_again(house: House) -> None:
    text = train(house, "fails at the end")
    assert "exited with code 3" in text
    assert end(text) == end(train(house, "plain"))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("has more layers", r"it has no transformer\.h\.2\..*, and the model has one"),
        ("goes on elsewhere", "resume from nothing else"),
        ("is registered twice", "make one, and register it once"),
    ],
)
def test_what_does_not_go_together_is_told_in_a_sentence(
    kind: str, told: str, house: House
) -> None:
    train(house, "saves each epoch")
    assert re.search(told, train(house, kind, EXIT_CONFIGURATION))


def test_an_evaluation_is_no_training(house: House) -> None:
    """At the start, at the end of an epoch and of the training: against a clock beside it."""
    text = train(house, "evaluates")
    evaluated_s = float(re.search(r"^evaluated (\S+) s$", text, re.MULTILINE)[1])
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    told_s = report["badput_s"]["custom:evaluate"]
    assert told_s == pytest.approx(evaluated_s, abs=HALF_A_POINT * report["elapsed_s"])
