"""Each framework's example, as its page shows it: what befalls it changes no bit of what it trains.

Skipped where the framework is not installed: `make adapters` has them all.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House, Process

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))
sys.path.insert(0, str(Path(__file__).parent))
import proc

del sys.path[:2]

pytestmark = pytest.mark.real

STRUCK = Path(__file__).with_name("struck.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
LAST = re.compile(r"step (\d+), parameters ([0-9a-f]{16})$", re.MULTILINE)


class Trial(NamedTuple):
    """An example, the package that it needs, how many steps it does, and with how many ranks.

    `backend`: of Keras. `is_ours`: its checkpoints are Holdfast's own, and no framework's.
    """

    example: str
    package: str
    steps: int
    ranks: int = 1
    backend: str = ""
    is_ours: bool = False

    def called(self) -> str:
        """As pytest shows it."""
        ranks = f"-{self.ranks}" if self.ranks > 1 or not self.backend else ""
        return f"{self.example}{self.backend and '-'}{self.backend}{ranks}"

    @property
    def checkpoints(self) -> Path:
        """Where they are, in the working folder."""
        return Path("tiny" if self.package == "maxtext" else "", "checkpoints")

    @property
    def script(self) -> Path:
        """The example's."""
        return EXAMPLES / self.example / "train.py"

    @property
    def environment(self) -> dict[str, object]:
        """Of its processes."""
        backend = {"KERAS_BACKEND": self.backend} if self.backend else {}
        return {"OMP_NUM_THREADS": 1, "TF_CPP_MIN_LOG_LEVEL": 2, **backend}

    def start(self, house: House, *options: object, strike: str = "") -> Process:
        """Under `holdfast run`, with a save every few steps; `strike`: of struck.py."""
        words = ("--name", "trial", "--save-every", 10, "--ranks", self.ranks, *options)
        script = (STRUCK, strike, self.example) if strike else (self.script,)
        command = (sys.executable, *script, self.steps)
        return house.holdfast("run", *words, "--", *command, **self.environment)


TRIALS = (
    Trial("huggingface", "transformers", 200),
    Trial("huggingface", "transformers", 150, ranks=2),
    Trial("lightning", "lightning", 1000),
    Trial("lightning", "lightning", 500, ranks=2),
    Trial("orbax", "orbax.checkpoint", 1500),
    Trial("maxtext", "maxtext", 2500),
    Trial("maxtext", "maxtext", 400, ranks=2),
    Trial("orbax", "orbax.checkpoint", 600, ranks=2),
    Trial("orbax_v1", "orbax.checkpoint", 1500),
    Trial("keras", "keras", 10_000, backend="jax"),
    Trial("keras", "keras", 1000, ranks=2, backend="jax"),
    Trial("keras", "keras", 1500, backend="torch"),
    Trial("keras", "keras", 1500, backend="tensorflow"),
    Trial("fsdp", "torch", 500, ranks=2, is_ours=True),
    Trial("accelerate", "accelerate", 1000, ranks=2, is_ours=True),
    Trial("tensorflow", "tensorflow", 3000),
)


@pytest.fixture(params=TRIALS, ids=Trial.called)
def trial(request: pytest.FixtureRequest) -> Trial:
    pytest.importorskip(request.param.package)
    return request.param


@pytest.fixture(scope="module")
def untouched() -> dict[Trial, set[tuple[str, str]]]:
    """What each says at its end when nothing befalls it, by trial."""
    return {}


@pytest.fixture
def wanted(
    trial: Trial,
    untouched: dict[Trial, set[tuple[str, str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> set[tuple[str, str]]:
    if trial not in untouched:
        house = House(tmp_path_factory.mktemp("untouched"), tmp_path_factory.mktemp("store"))
        text = trial.start(house, "--store", house.store).wait(EXIT_DONE)
        untouched[trial] = said(text)
        house.close()
    assert [step for step, _ in untouched[trial]] == [str(trial.steps)]
    return untouched[trial]


def said(text: str) -> set[tuple[str, str]]:
    """By the ranks at the end: the step, and the parameters' digest."""
    return set(LAST.findall(text))


def saved(trial: Trial, house: House, count: int) -> None:
    """Wait until there are so many checkpoints, whole or not."""
    ours = house.store / "trial" / "ckpt"
    found = (ours if trial.is_ours else house.folder / trial.checkpoints).glob
    house.eventually(
        lambda: sum(path.is_dir() or not trial.is_ours for path in found("*")) >= count
    )


def ranks_of(process: Process) -> list[int]:
    """Of the first attempt."""
    return [pid for pid in proc.tree_of(process.pid) if proc.attempt_of(pid) == 0]


def test_nothing_befalls_it(trial: Trial, wanted: set[tuple[str, str]]) -> None:
    assert len(wanted) == 1, "all ranks have the same parameters"


@pytest.mark.parametrize("whole", [True, False], ids=["trains", "soon"])
def test_a_killed_rank_goes_on_where_it_was(
    trial: Trial, whole: bool, wanted: set[tuple[str, str]], house: House
) -> None:
    process = trial.start(house)
    saved(trial, house, 3 if whole else 2)
    if whole:
        house.eventually(lambda: len(good(house)) > 1)
    os.kill(ranks_of(process)[-1], signal.SIGKILL)
    text = process.wait(EXIT_DONE)
    assert said(text) == wanted
    assert "killed by SIGKILL" in text


@pytest.mark.parametrize("whom", ["run", "rank"])
def test_a_stop_is_saved_and_goes_on(
    trial: Trial, whom: str, wanted: set[tuple[str, str]], house: House
) -> None:
    process = trial.start(house)
    saved(trial, house, 2)
    pid = process.pid if whom == "run" else ranks_of(process)[-1]
    os.kill(pid, signal.SIGTERM)
    text = process.wait(EXIT_SAVED)
    assert re.search(r"stopped; step (\d+) is saved", text), text
    again = trial.start(house).wait(EXIT_DONE)
    assert said(again) == wanted
    assert "starting from step" in again


def test_a_stop_without_a_supervisor_is_saved_and_goes_on(
    trial: Trial, wanted: set[tuple[str, str]], house: House
) -> None:
    if trial.ranks > 1:
        pytest.skip("ranks are started by a supervisor here")
    words = (sys.executable, trial.script, trial.steps)
    how = {"HOLDFAST_NAME": "trial", "HOLDFAST_SAVE_EVERY_STEPS": 10, **trial.environment}
    process = house.start(*words, **how)
    saved(trial, house, 2)
    process.send(signal.SIGTERM)
    process.wait(EXIT_SAVED)
    again = house.start(*words, **how).wait(EXIT_DONE)
    assert said(again) == wanted
    assert "starting from step" in again


def test_a_run_that_is_done_trains_nothing_more(
    trial: Trial, wanted: set[tuple[str, str]], house: House
) -> None:
    struck = trial.start(house, strike="kill at the end").wait(EXIT_DONE)
    assert said(struck) == wanted
    assert "killed by SIGKILL" in struck
    again = trial.start(house).wait(EXIT_DONE)
    assert said(again) == wanted or f"All {trial.steps} steps are done" in again
    report = json.loads(house.holdfast("report", "trial", "--json").wait(EXIT_DONE))
    assert (report["steps_kept"], report["lost_steps"]) == (trial.steps, 0)


def test_a_rank_that_is_killed_within_a_save_goes_on_from_the_one_before(
    trial: Trial, wanted: set[tuple[str, str]], house: House
) -> None:
    text = trial.start(house, strike="kill in a save").wait(EXIT_DONE)
    assert said(text) == wanted
    assert "killed by SIGKILL" in text
    struck_step = int((house.folder / "struck").read_text())
    resumed = [int(step) for step in re.findall(r"starting from step (\d+)", text)]
    assert len(resumed) == 1
    assert 0 < resumed[0] < struck_step


def test_a_disk_that_is_full_in_a_save_is_told(
    trial: Trial, wanted: set[tuple[str, str]], house: House
) -> None:
    if trial.example == "maxtext" and trial.ranks > 1:
        pytest.skip("raised where a save begins, the other process is in it alone: no disk's way")
    text = trial.start(house, strike="fill the disk in a save").wait(EXIT_DONE)
    assert said(text) == wanted
    struck_step = int((house.folder / "struck").read_text())
    if trial.example == "huggingface":  # the Trainer asks no callback: the run starts again
        assert "No space left on device" in text
        assert "starting from step" in text
    else:
        why = r"(\[Errno 28\] No space left|[A-Z_]+: .*File too large)"  # Python's words; Orbax's
        assert re.search(rf"step {struck_step} could not be saved: {why}", text), text
        assert "starting from step" not in text


def good(house: House) -> list[str]:
    """The sets that a restart may start from."""
    listed = house.holdfast("ckpt", "ls", "trial", "--json").wait(EXIT_DONE)
    return [one["name"] for one in json.loads(listed)["checkpoints"] if one["state"] == "good"]
