"""The report of a framework's run against a ruler beside it: the two agree to half a point."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import EXIT_DONE, House

sys.path.insert(0, str(Path(__file__).parent))
from framework_ruler import HOOKS

sys.path.pop(0)

pytestmark = pytest.mark.real

RULER = Path(__file__).with_name("framework_ruler.py")
HALF_A_POINT = 0.005


# Of an example whose framework logs its loss: each so many steps, and of a step how many tokens.
LOGS = {"huggingface": (10, 8 * 32), "lightning": (50, 0), "keras": (50, 0)}


class Measured(NamedTuple):
    """Seconds of one process: of its steps alone; and of what was none, by kind."""

    steps_s: list[float]
    spent_s: dict[str, float]


def measured(out: Path, *, knows_first: bool) -> list[Measured]:
    """By the ruler, one a process.

    `knows_first`: the first line of each is the beginning of its first step; else that is unknown,
    and the first step is taken as usual.
    """
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = []
    for _, group in groupby(lines, key=lambda line: line[0]):
        _, ends_s, spent = zip(*group, strict=True)
        over_s = [end_s for end_s in ends_s if end_s is not None]  # the last may be of no step
        rows = zip(over_s, over_s[1:], spent[1:], strict=False)
        steps_s = [end - start - sum(kinds.values()) for start, end, kinds in rows]
        first_s = [] if knows_first else [statistics.median(steps_s)]
        found.append(Measured([*first_s, *steps_s], sum(map(Counter, spent), Counter())))
    return found


@pytest.mark.parametrize(
    ("example", "package", "steps", "backend"),
    [
        ("huggingface", "transformers", 200, ""),
        ("lightning", "lightning", 1500, ""),
        ("orbax", "orbax.checkpoint", 1500, ""),
        ("orbax_v1", "orbax.checkpoint", 1500, ""),
        ("keras", "keras", 10_000, "jax"),
        ("keras", "keras", 3000, "torch"),
        ("keras", "keras", 3000, "tensorflow"),
        ("tensorflow", "tensorflow", 3000, "tensorflow"),
        ("maxtext", "maxtext", 1500, ""),
    ],
)
def test_the_report_says_what_the_ruler_says(
    example: str, package: str, steps: int, backend: str, house: House
) -> None:
    pytest.importorskip(package)
    out = house.folder / "ruler.jsonl"
    save_every = max(50, steps // 15)  # what Holdfast adds to a save is in its books alone
    options = ("--name", "r", "--save-every", save_every)
    command = (sys.executable, RULER, example, out, steps)
    how = {"OMP_NUM_THREADS": 1, "TF_CPP_MIN_LOG_LEVEL": 2, "KERAS_BACKEND": backend}
    run = house.holdfast("run", *options, "--", *command, **how)
    house.eventually(lambda: out.exists() and out.read_text().count("\n") > save_every + 10)
    os.kill(json.loads(out.read_text().splitlines()[-1])[0], signal.SIGKILL)
    run.wait(EXIT_DONE)

    before, after = measured(out, knows_first=bool(HOOKS[example].begins))
    resumed = steps - len(after.steps_s)
    kept_s = sum(before.steps_s[:resumed]) + sum(after.steps_s)
    report = json.loads(house.command("report", "r", "--json"))
    elapsed_s = report["elapsed_s"]
    assert report["steps_kept"] == steps
    recorded = len(before.steps_s) - resumed - report["lost_steps"]
    between = -1 if HOOKS[example].hears_last else 1
    assert recorded in (0, between), "the kill may come between the two"
    assert report["goodput"] == pytest.approx(kept_s / elapsed_s, abs=HALF_A_POINT)
    for kind, seconds in (Counter(before.spent_s) + Counter(after.spent_s)).items():
        told = report["badput_s"].get(kind, 0) / elapsed_s
        assert told == pytest.approx(seconds / elapsed_s, abs=HALF_A_POINT), kind
    if example in LOGS:
        every, tokens = LOGS[example]
        loss = report["metrics"]["loss"]
        assert (loss["step"], loss["values"]) == (steps // every * every, steps // every)
        assert loss["least"] < loss["greatest"]
        assert report["program"]["tokens_per_step"] == (tokens or None)
