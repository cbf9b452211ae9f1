"""`holdfast rehearse` with real processes: warned through faults, and killed."""

from __future__ import annotations

import signal
import sys

TRAIN = """
import time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(8)})
for step in run.steps(10**6):
    time.sleep(0.01)  # what a step takes: the rehearsal ends it in one
    state["w"] += 1
    run.done(step, state)
"""
FAULTS = '{"start": ["fail html 1"], "event": [{"at": 0.2, "do": "upcoming {at}"}]}'


def _rehearse(house, *words):
    script = house.script(TRAIN, "train.py")
    command = ("--then", 1, "--", sys.executable, script)
    return house.holdfast("rehearse", *words, *command, HOLDFAST_STANDBY="off", TMPDIR=house.folder)


def test_a_run_that_is_warned_loses_no_step_and_one_that_is_killed_goes_on(house):
    faults = house.script(FAULTS, "faults.json")
    announced = ("maintenance", "--source", "gce", "--in", 15, "--script", faults)
    kept = house.folder / "kept"
    said = _rehearse(house, *announced, "--store", kept).wait(0)
    assert "well: no step was lost" in said
    (agreed,) = [line for line in said.split("\n") if "all ranks agreed on step" in line]
    step = int(agreed.split()[-1])
    assert step >= 10
    assert f"  resumed from step {step}\n" in said
    assert "  left with exit code 75 (start me again)" in said
    assert "2 attempts" in said  # the ordinary report
    # What that run has recorded tells whether a grace period is long enough.
    asked = ("doctor", "--run", "rehearsal", "--store", kept, "--notice", "off")
    hurts = house.holdfast(*asked, "--grace", 1).wait(1)
    assert "--grace is 1 s, and a save of run 'rehearsal' takes" in hurts
    again = _rehearse(house, *announced, "--store", kept).wait(78)
    assert "holds a rehearsal already" in again

    slurm = _rehearse(house, "maintenance", "--source", "slurm", "--in", 15)
    assert "well: no step was lost" in slurm.wait(0)

    said = _rehearse(house, "kill", "--ranks", 2, "--rank", 1).wait(0)
    assert "rank 1: killed by SIGKILL" in said
    assert "well: it went on by itself" in said
    assert list(house.folder.glob("holdfast-rehearsal-*")) == []


def test_a_terminal_that_is_closed_ends_the_run_and_what_lies_in_memory(house):
    rehearsal = _rehearse(house, "kill", "--after", 10**6)
    begun = "holdfast-rehearsal-*/rehearsal/attempts/0000/attempt.json"
    house.eventually(lambda: any(house.folder.glob(begun)))
    rehearsal.send(signal.SIGHUP)
    rehearsal.wait(128 + signal.SIGHUP)
    assert list(house.folder.glob("holdfast-rehearsal-*")) == []
