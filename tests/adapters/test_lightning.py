"""What Lightning may be told, and Holdfast with it, beside what every trainer is.

Skipped where Lightning is not installed: `make adapters` has it.
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
SCRIPT = Path(__file__).with_name("lightning_script.py")


@pytest.fixture(autouse=True)
def _lightning() -> None:
    pytest.importorskip("lightning")


def train(house: House, *words: object, code: int = EXIT_DONE) -> str:
    options = ("run", "--name", "r", "--save-every", 20, "--keep", 100)
    return house.holdfast(*options, "--", sys.executable, SCRIPT, *words, OMP_NUM_THREADS=1).wait(
        code
    )


def test_a_validation_is_no_training(house: House) -> None:
    """Against a clock beside it."""
    text = train(house, "plain")
    evaluated_s = float(re.search(r"^evaluated (\S+) s$", text, re.MULTILINE)[1])
    assert evaluated_s > 0
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    told_s = report["badput_s"]["custom:evaluate"]
    assert told_s == pytest.approx(evaluated_s, abs=HALF_A_POINT * report["elapsed_s"])


def test_what_does_not_go_together_is_told_in_a_sentence(house: House) -> None:
    train(house, "plain")
    first = min((house.folder / "checkpoints").iterdir())
    told = {
        ("has more outputs",): "cannot be loaded .*size mismatch",
        ("goes on elsewhere", first): "resume from nothing else",
        ("is registered twice",): "make one, and register it once",
    }
    for words, sentence in told.items():
        assert re.search(sentence, train(house, *words, code=EXIT_CONFIGURATION)), words
