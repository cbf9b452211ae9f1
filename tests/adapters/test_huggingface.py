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
ALONE = Path(__file__).with_name("huggingface_alone_script.py")


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers")


def train(
    house: House, kind: str, code: int = EXIT_DONE, *options: object, name: str = "r", **how: object
) -> str:
    words = ("run", "--name", name, "--save-every", 12, *options)
    command = (sys.executable, SCRIPT, kind)
    return house.holdfast(*words, "--", *command, OMP_NUM_THREADS=1, **how).wait(code)


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


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("best", r"""save_strategy='best'.*: take "no\""""),
        ("keeps one", "save_total_limit=1 .*: take 2 or more"),
        ("saves the model alone", "save_only_model=True .* begin the optimizer anew"),
        ("restores callbacks", "restore_callback_states_from_checkpoint=True .*: leave it out"),
    ],
)
def test_an_option_that_a_restart_would_not_survive_is_refused(
    kind: str, told: str, house: House
) -> None:
    assert re.search(told, train(house, kind, EXIT_CONFIGURATION))


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
    assert end(text) == end(train(house, "in one cycle", name="untouched"))


@pytest.mark.parametrize(("kind", "last"), [("stops early", 32), ("stops in an epoch", 20)])
def test_a_training_that_ended_early_is_over_though_the_script_fails(
    kind: str, last: int, house: House
) -> None:
    text = train(house, f"{kind}, then fails")
    assert "exited with code 3" in text
    assert f"the script ended its training at step {last}, in an earlier attempt" in text
    assert re.search(r"^trained [01] batches$", text, re.MULTILINE), "one has no effect"
    assert "saves step" not in text.partition("Nothing is left")[2]
    house.folder.joinpath("checkpoints").rename(house.folder / "failed")
    assert end(text) == end(train(house, kind, name="untouched"))


@pytest.mark.parametrize(
    ("kind", "saves", "kill"),
    [("slows down", 6, 8), ("has experts", 20, 23)],
)
def test_a_killed_run_ends_with_the_same_bits(
    kind: str, saves: int, kill: int, house: House
) -> None:
    """Of a save at an epoch's last step, the epoch's end is a part: an evaluation, a schedule."""
    text = train(house, kind, EXIT_DONE, "--save-every", 1000, SAVES=saves, KILL=kill)
    assert f"starting from step {saves} " in text
    house.folder.joinpath("checkpoints").rename(house.folder / "killed")
    assert end(text) == end(train(house, kind, name="untouched"))


@pytest.mark.parametrize(
    ("kind", "every", "start"),
    [("keeps two of an epoch each", 16, 16), ("keeps two of ten steps each", 10, 30)],
)
def test_what_the_trainer_saves_by_itself_is_the_runs_too(
    kind: str, every: int, start: int, house: House
) -> None:
    """So its own limit removes no more than what is no longer needed."""
    text = train(house, kind, EXIT_DONE, "--save-every", 1000, KILL=31, COUNTS=start)
    assert f"starting from step {start} " in text
    saved = text.partition("Restarting")[0]
    assert saved.count("saves step") == start // every, "each is one save, not two"
    assert text.count("saves step 40") == 1, "the last one, too"
    house.folder.joinpath("checkpoints").rename(house.folder / "killed")
    assert end(text) == end(train(house, kind, name="untouched"))


@pytest.mark.parametrize("batches", ["are drawn", "are made of random numbers"])
def test_a_batch_of_random_numbers_is_another_one_without_holdfast_too(
    batches: str, house: House
) -> None:
    """The page's limit is the Trainer's: Holdfast is not there."""

    def alone(*words: object) -> tuple[int, str]:
        return end(house.start(sys.executable, ALONE, batches, *words, OMP_NUM_THREADS=1).wait())

    whole = alone("to the end")
    assert alone("to the middle")[0] == 20
    goes_on = alone("from there")
    assert (goes_on == whole) is (batches == "are drawn")


def test_the_best_model_may_be_the_last(house: House) -> None:
    assert "the best is checkpoints/checkpoint-40" in train(house, "returns the best", SAVES="40")


def test_a_batch_is_found_that_fits(house: House) -> None:
    assert end(train(house, "finds its batch"))[0] == 40


def test_a_long_evaluation_and_a_long_save_are_no_hang(house: House) -> None:
    """Each at its place: in the middle of an epoch, and both at one step."""
    text = train(house, "is slow", EXIT_DONE, "--hang", 5, SAVES="30")
    assert end(text)[0] == 40
    assert "Restarting" not in text


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
    saved_s = float(re.search(r"^saved (\S+) s$", text, re.MULTILINE)[1])
    assert report["badput_s"]["save"] == pytest.approx(saved_s, abs=0.01 * report["elapsed_s"])
