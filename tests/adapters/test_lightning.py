"""What Lightning may be told, and Holdfast with it, beside what every trainer is.

Skipped where Lightning is not installed: `make adapters` has it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, House

pytestmark = pytest.mark.real

HALF_A_POINT = 0.005
SCRIPT = Path(__file__).with_name("lightning_script.py")
EPOCHS = Path(__file__).with_name("lightning_epoch_script.py")
END = re.compile(r"^step \d+, rate .*$", re.MULTILINE)
NEVER = 10_000


@pytest.fixture(autouse=True)
def _lightning() -> None:
    pytest.importorskip("lightning")


def train(house: House, *words: object, code: int = EXIT_DONE, name: str = "r") -> str:
    options = ("run", "--name", name, "--save-every", 20, "--keep", 100)
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


def test_a_training_that_ended_early_is_over_though_the_script_fails(house: House) -> None:
    text = train(house, "stops early, then fails")
    assert "exited with code 3" in text
    assert "the script ended its training at step 20, in an earlier attempt" in text
    whole = train(house, "stops early", name="untouched")
    ends = re.compile(r"^trained (\d+) batches; (step .*)$", re.MULTILINE)
    (trained, end), (_, untouched) = *ends.findall(text), *ends.findall(whole)
    assert trained == "0"
    assert end == untouched


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


@pytest.mark.parametrize(
    ("kind", "save_at", "kill_at"),
    [
        ("shuffled", 16, 20),  # the last step of an epoch
        ("limited", 9, 11),  # an evaluation within the epoch follows it
        ("limited", 12, 14),
        ("streamed", 21, 24),
    ],
)
def test_it_ends_with_the_bits_of_lightning_alone(
    kind: str, save_at: int, kill_at: int, house: House
) -> None:
    alone = house.start(sys.executable, EPOCHS, kind, OMP_NUM_THREADS=1).wait(EXIT_DONE)
    command = ("--", sys.executable, EPOCHS, kind, save_at, kill_at)
    options = ("run", "--name", "r", "--save-every", NEVER)
    text = house.holdfast(*options, *command, OMP_NUM_THREADS=1).wait(EXIT_DONE)
    assert f"starting from step {save_at} " in text
    assert END.findall(text) == END.findall(alone) != []
    drawn = 0 if save_at % (6 if kind == "limited" else 16) else 8  # a batch of the next epoch
    assert f"outside: {{'drawn': {0 if kind == 'streamed' else drawn}, 'evaluated': 0}}" in text


def test_another_lightning_costs_an_epochs_end_and_not_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from holdfast.adapters import lightning_epoch

    trainer = SimpleNamespace(fit_loop=SimpleNamespace(epoch_loop=None))
    for _ in range(2):
        lightning_epoch.tell_loaders(trainer, is_epoch_over=True)
        assert lightning_epoch.ahead(trainer) == 0
        assert lightning_epoch.evaluates_now(trainer) is False
    told = capsys.readouterr().err
    assert told.count("'_combined_loader'): a restart may leave out an epoch's end") == 1
