"""Pax as it is, under `holdfast run` from another environment, by the command of its page.

Skipped where there is no environment with Pax: `make trainers` makes one, where Python 3.10 is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House, Process

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))
import proc

sys.path.pop(0)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAX = ROOT / os.environ.get("PAX_VENV", ".venv-pax")
EXAMPLE = ROOT / "examples" / "pax"
STEPS, SAVE_EVERY = 2000, 100
TEMPORARY = ".orbax-checkpoint-tmp"  # in the name of one that is being written
HALF_A_POINT = 0.005
BEGAN_WITH = re.compile(r"Model initial global_step=(\d+)")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (PAX / ".ready").exists(), reason="Pax is not here: make trainers"),
]


class Pax:
    """The command of the page, in a house's working folder."""

    def __init__(self, house: House, ranks: int = 1) -> None:
        self.house = house
        self.ranks = ranks
        self.log_dir = house.folder / "lm"
        self.ruler = house.folder / "ruler.jsonl"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def start(self, *, is_distributed: bool = True, experiment: str = "tiny.Tiny") -> Process:
        command = [PAX / "bin" / "python", "-m", "paxml.main", f"--exp={experiment}"]
        command.append("--mode=train")
        command.append(f"--job_log_dir={self.log_dir}")
        if is_distributed:
            command += ["--multiprocess_gpu", f"--server_addr=127.0.0.1:{self._port}"]
            command += [f"--num_hosts={self.ranks}", "--exit_after_ondemand_checkpoint"]
        if self.ranks > 1:
            host = 'exec "$0" "$@" --jax_cpu_enable_gloo_collectives --host_idx=$RANK'
            command = ["sh", "-c", host, *command]
        elif is_distributed:
            command.append("--host_idx=0")
        how = {"PYTHONPATH": f"{EXAMPLE}:{HERE}", "RULER": self.ruler}
        how |= {"OMP_NUM_THREADS": 1, "TF_CPP_MIN_LOG_LEVEL": 2}
        words = ("--name", "lm", "--store", self.house.store, "--ranks", self.ranks)
        return self.house.holdfast("run", *words, "--", *command, **how)

    def start_and_save_twice(self, **how: Any) -> Process:
        """Started, and with two checkpoints."""
        run = self.start(**how)
        self.house.eventually(lambda: 2 * SAVE_EVERY in self.saved())
        return run

    def await_save(self) -> None:
        """Until Pax has begun to write one."""
        folder = self.log_dir / "checkpoints"
        self.house.eventually(lambda: any(TEMPORARY in path.name for path in folder.iterdir()))

    def saved(self) -> list[int]:
        """The steps of its checkpoints."""
        found = (self.log_dir / "checkpoints").glob("checkpoint_*/metadata/metadata")
        names = (path.parts[-3].removeprefix("checkpoint_") for path in found)
        return sorted(int(name) for name in names if name.isdecimal())

    def digest(self) -> str:
        """Of all arrays of its last step's checkpoint: parameters, and the optimizer's."""
        state = self.log_dir / "checkpoints" / f"checkpoint_{STEPS}" / "state" / "checkpoint"
        return hashlib.sha256(state.read_bytes()).hexdigest()

    def told(self) -> dict[str, Any]:
        """What a report says of the history in its summaries."""
        history = self.house.folder / "lm.jsonl"
        summaries = self.log_dir / "summaries" / "train"
        self.house.command("convert", "--from", "tensorboard", summaries, "--out", history)
        return json.loads(self.house.command("report", "--history", history, "--json"))


@pytest.fixture(scope="module", params=[1, 2])
def ranks(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def wanted(ranks: int, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest at the end when nothing befalls it."""
    house = House(tmp_path_factory.mktemp("untouched"), tmp_path_factory.mktemp("store"))
    pax = Pax(house, ranks)
    pax.start().wait(EXIT_DONE)
    house.close()
    return pax.digest()


@pytest.fixture
def pax(ranks: int, wanted: str, house: House) -> Pax:
    """What is to be struck; the one that nothing befell has ended."""
    return Pax(house, ranks)


def starts(text: str) -> list[int]:
    """The step that each of its processes began with."""
    return [int(step) for step in BEGAN_WITH.findall(text)]


def last_rank(run: Process) -> int:
    """Of the first attempt."""
    return [pid for pid in proc.tree_of(run.pid) if proc.attempt_of(pid) == 0][-1]


def check_history(told: dict[str, Any]) -> None:
    """All steps, one disruption, and each process's first step is start-up with its compilation."""
    assert (told["steps_kept"], len(told["disruptions"])) == (STEPS, 1)
    assert told["badput_s"]["startup"] > 0
    assert 0 < told["productive_s"] < told["elapsed_s"] - told["disruptions"][0]["downtime_s"]


def test_a_stop_is_saved_by_pax_and_goes_on(pax: Pax, wanted: str) -> None:
    run = pax.start_and_save_twice()
    run.send(signal.SIGTERM)
    text = run.wait(EXIT_SAVED)
    stopped = pax.saved()[-1]
    assert f"Saving checkpoint at step {stopped} due to preemption" in text
    assert stopped < STEPS
    again = pax.start().wait(EXIT_DONE)
    assert starts(again) == [stopped] * pax.ranks
    assert pax.digest() == wanted
    check_history(pax.told())


@pytest.mark.parametrize("saves", [False, True], ids=["trains", "saves"])
def test_a_killed_rank_goes_on_from_its_newest_checkpoint(
    pax: Pax, wanted: str, *, saves: bool
) -> None:
    run = pax.start_and_save_twice()
    if saves:
        pax.await_save()
    os.kill(last_rank(run), signal.SIGKILL)
    text = run.wait(EXIT_DONE)
    assert "killed by SIGKILL" in text
    first, again = starts(text)[: pax.ranks], starts(text)[pax.ranks :]
    assert first == [0] * pax.ranks
    assert again == [again[0]] * pax.ranks
    assert again[0] >= 2 * SAVE_EVERY
    assert again[0] % SAVE_EVERY == 0
    assert pax.digest() == wanted
    check_history(pax.told())


def test_a_rank_that_gets_sigterm_has_all_saved_and_is_started_again(pax: Pax, wanted: str) -> None:
    run = pax.start_and_save_twice()
    os.kill(last_rank(run), signal.SIGTERM)
    text = run.wait(EXIT_DONE)
    assert "exited with code 1" in text
    (saved,) = set(re.findall(r"Saving checkpoint at step (\d+) due to preemption", text))
    assert starts(text) == [0] * pax.ranks + [int(saved)] * pax.ranks
    assert pax.digest() == wanted


def test_the_history_says_what_a_ruler_says(house: House) -> None:
    pax = Pax(house)
    run = pax.start_and_save_twice(experiment="pax_ruler.Ruled")
    os.kill(last_rank(run), signal.SIGKILL)
    run.wait(EXIT_DONE)
    lines = [json.loads(line) for line in pax.ruler.read_text().splitlines()]
    before, after = ([*group] for _, group in groupby(lines, key=lambda line: line[0]))
    resumed = after[0][1] - 1
    kept = [[line for line in before if line[1] <= resumed], after]
    # What came before the first step of a process was over is start-up.
    alone_s = sum(end_s - start_s for one in kept for _, _, start_s, end_s in one[1:])
    whole_s = sum(one[-1][3] - one[0][3] for one in kept)
    told = pax.told()
    assert told["steps_kept"] == STEPS
    # What is between steps, a save say, counts with its steps, or as "other" where it is long.
    near_s = HALF_A_POINT * told["elapsed_s"]
    assert alone_s - near_s <= told["productive_s"] <= whole_s + near_s
    assert told["productive_s"] + told["badput_s"]["other"] >= whole_s - near_s


def test_without_jax_distributed_pax_saves_nothing_on_a_stop(house: House) -> None:
    pax = Pax(house)
    run = pax.start(is_distributed=False)
    house.eventually(lambda: SAVE_EVERY in pax.saved())
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    assert pax.saved()[-1] % SAVE_EVERY == 0
