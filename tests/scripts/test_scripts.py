"""Short scripts as a user writes them: each does what the documentation says of what it calls.

Each runs under `holdfast run` and bare; uninterrupted, and with its process killed after the fifth
step and the checkpoint of the third. Its last line is the same every time.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parent / "scripts"
KILL_AT = 5

NOISE = random.Random(7)
SUM = sum(batch % 4 * NOISE.random() for batch in range(10))
NOISE = random.Random(7)
FRAMEWORK_SUM = sum(step * NOISE.random() for step in range(1, 11))

# What each prints last, and how often it ends before it is done, of its own accord.
SCRIPTS = {
    "average": ("22.0", 0),
    "best": ("7 12", 0),
    "compiled": ("float32 0.6513 [3.33333333]", 0),
    "data": (f"{SUM!r} [4, 8] {{'evaluated': [4, 8]}} 2 10", 0),
    "early_stop": ("7 True", 0),
    "fails_after": ("0 True", 1),
    "counts": ("21.0", 0),
    "framework": (f"0 {FRAMEWORK_SUM!r}", 1),
    "gives_up": ("[1, 2, 3, 7, 8, 9]", 1),
    "is_stopped": ("True", 1),
    "own_checkpoints": ('{"step": 10, "sum": 55}', 0),
    "tracked": ("758 {'model': {'weight': 758}}", 0),
    "who": ("45 who 0 of 1", 0),
}
# No other save is in the way of those.
ONLY_WHAT_IS_ASKED_FOR = {"HOLDFAST_SAVE_EVERY_STEPS": 1000, "HOLDFAST_MEMORY": "off"}
NEEDS = {"compiled": "jax", "who": "altair"}


@pytest.mark.parametrize("kill_at", [0, KILL_AT], ids=["straight", "killed"])
@pytest.mark.parametrize("way", ["bare", "supervised"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_the_documentation_says(
    house: House, name: str, way: str, kill_at: int
) -> None:
    pytest.importorskip(NEEDS.get(name, "numpy"))
    final, ends = SCRIPTS[name]
    starts_wanted = 1 + ends + (kill_at > 0)
    command = [sys.executable, FOLDER / f"{name}.py"]
    if way == "supervised":
        command = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", name, "--", *command]
    out = ""
    for _ in range(starts_wanted):
        process = house.start(*command, KILL_AT=kill_at, **ONLY_WHAT_IS_ASKED_FOR)
        out += process.wait() + "\n"
        if "final" in process.text:
            break
    process.wait(EXIT_DONE)
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("final")] == [f"final {final}"], out
    starts = [int(line.split()[1]) for line in lines if re.fullmatch(r"from \d+", line)]
    assert len(starts) == starts_wanted, out
    assert starts[0] == 0
    assert not kill_at or starts[1] == KILL_AT - 2, out


def test_the_numbers_that_a_script_tells_are_in_its_report(house: House) -> None:
    house.start(sys.executable, FOLDER / "who.py").wait(EXIT_DONE)
    report = house.holdfast("report", "who", "--json").wait(EXIT_DONE)
    told = json.loads(report)["metrics"]["sum"]
    assert (told["step"], told["value"], told["values"], told["lost"]) == (10, 45.0, 10, 0)


def test_the_flops_that_a_script_tells_are_in_its_report(house: House) -> None:
    house.start(sys.executable, FOLDER / "counts.py", HOLDFAST_PEAK_FLOPS="1e15").wait(EXIT_DONE)
    report = json.loads(house.holdfast("report", "counts", "--json").wait(EXIT_DONE))
    assert report["program"]["tokens_per_step"] == 35
    assert report["program"]["flops_per_step"] == 2 * 10**9 * 35 // 10
    assert report["program"]["peak_flops"] == 10**15
    assert 0 < report["program_goodput"] < 1
