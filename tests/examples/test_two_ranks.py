"""The examples in two ranks: one seed, one set of parameters, to the bit, whatever interrupts."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House, Process, kill, ranks_of

pytestmark = pytest.mark.real

FULL = os.environ.get("FAULTS") == "full"
EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 150  # the last ones leave time to strike
MODEL = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 32, "--batch", 4, "--threads", 1]
TALK = ["--log-every", 1, "--eval-every", 70]


# FAULTS=full (`make faults`): both. In CI the JAX one is held to its bits by the compile cache's
# test, which trains it in two ranks as well.
CASES = [("lm", "optax"), ("torch_lm", "torch")] if FULL else [("torch_lm", "torch")]


@pytest.mark.parametrize(("example", "library"), CASES)
def test_a_notice_and_a_sigkill_leave_no_trace(house: House, example: str, library: str) -> None:
    pytest.importorskip(library)
    text = house.folder / "text"
    text.write_bytes(random.Random(7).randbytes(4000))

    def train(name: str, standby: str = "off") -> Process:
        script = (sys.executable, EXAMPLES / example / "train.py", *MODEL, *TALK)
        words = ("--steps", STEPS, "--data", text, "--out", house.folder / f"{name}.json")
        options = ("--name", name, "--ranks", 2, "--save-every", 9, "--standby", standby)
        return house.holdfast("run", *options, "--", *script, *words)

    def result(name: str) -> object:
        return json.loads((house.folder / f"{name}.json").read_text())

    train("straight").wait(EXIT_DONE)
    noticed = train("struck")
    noticed.saw(r"\[0\] step 20/")
    noticed.send(signal.SIGTERM)
    noticed.wait(EXIT_SAVED)
    assert house.saved_step("struck") >= 20
    killed = train("struck", standby="auto")
    killed.saw(rf"\[0\] step {house.saved_step('struck') + 15}/")
    kill(ranks_of(killed)[1])
    out = killed.wait(EXIT_DONE)
    assert "rank 1: killed by SIGKILL" in out
    assert result("struck") == result("straight")
