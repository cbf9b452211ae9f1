"""The reference trainer and its twin: the same parameters to the bit, whatever interrupts them.

Skipped where flax, grain and qwix are not installed: `make reference` has them.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House, Process, kill, ranks_of

pytestmark = pytest.mark.real

REFERENCE = Path(__file__).parents[2] / "examples" / "reference"
STEPS = 80
MODEL = ("--layers", 2, "--width", 32, "--heads", 2, "--context", 128, "--batch", 8)


class Case(NamedTuple):
    """How the trainer is started: its switches, and with how many ranks."""

    switches: str
    ranks: int = 1
    script: str = "train.py"


CASES = {
    "plain": Case(""),
    "everything": Case(
        "--attention splash --remat offload --quant int8 --dtype bfloat16 --accumulate 2"
    ),
    "grid": Case("--cpu-devices 8 --fsdp 2 --tensor 2 --slices 2 --remat names"),
    "sparse": Case(
        "--cpu-devices 4 --tensor 2 --attention local-global --window 40 --global-every 2"
    ),
    "ranks": Case("--fsdp 2 --threads 1 --sample 3", ranks=2),
    "torch": Case("--remat full --compile --dtype bfloat16", 2, "train_torch.py"),
}


def train(house: House, case: Case, name: str) -> Process:
    for package in ("torch",) if "torch" in case.script else ("flax", "grain", "optax", "qwix"):
        pytest.importorskip(package)
    text = house.folder / "text"
    text.write_bytes(random.Random(7).randbytes(60_000))
    words = ("--steps", STEPS, "--data", text, "--out", house.folder / f"{name}.json")
    script = (sys.executable, REFERENCE / case.script, *MODEL, *words, *case.switches.split())
    evaluating = ("--eval-every", 40) if case.script == "train.py" else ()
    how = ("--name", name, "--ranks", case.ranks, "--save-every", 9)
    return house.holdfast("run", *how, "--", *script, *evaluating, "--log-every", 1)


def result(house: House, name: str) -> object:
    return json.loads((house.folder / f"{name}.json").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_notice_and_a_sigkill_leave_no_trace(house: House, case: Case) -> None:
    said = r"\[0\] step" if case.ranks > 1 else "^step"
    out = train(house, case, "straight").wait(EXIT_DONE)
    assert "traced and compiled at every start" not in out, "run.compile can look into it"
    if case.script == "train.py":
        assert re.search(r"step 40/80: held-out loss \d", out)
    noticed = train(house, case, "struck")
    noticed.saw(rf"{said} 20/")
    noticed.send(signal.SIGTERM)
    noticed.wait(EXIT_SAVED)
    assert house.saved_step("struck") >= 20
    killed = train(house, case, "struck")
    killed.saw(rf"{said} {house.saved_step('struck') + 15}/")
    kill(ranks_of(killed)[-1])
    assert "killed by SIGKILL" in killed.wait(EXIT_DONE)
    assert result(house, "struck") == result(house, "straight")


def test_the_twin_has_the_same_numbers_where_it_computes_layers_again(house: House) -> None:
    for name, switches in (("kept", "--remat none"), ("again", "--remat full")):
        train(house, Case(switches, script="train_torch.py"), name).wait(EXIT_DONE)
    assert result(house, "kept") == result(house, "again")


def test_a_run_goes_on_on_another_grid(house: House) -> None:
    """With another attention, too: a checkpoint fits whatever the switches are."""
    noticed = train(house, CASES["plain"], "moved")
    noticed.saw("^step 20/")
    noticed.send(signal.SIGTERM)
    noticed.wait(EXIT_SAVED)
    saved = house.saved_step("moved")
    out = train(house, CASES["sparse"], "moved").wait(EXIT_DONE)
    assert f"starting from step {saved} of attempt 0" in out.lower()
    report = json.loads(house.holdfast("report", "moved", "--json").wait(EXIT_DONE))
    first, last = (one["flops_per_step"] for one in report["program"]["told"])
    assert last < first, "a local layer needs less, and each start says its own"
