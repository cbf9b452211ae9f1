"""Two ranks under DistributedDataParallel, each of which copies its part of what they share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

pytest.importorskip("torch")

TRAINER = Path(__file__).with_name("ddp_trainer.py")
STEPS = 160
OFTEN = ("--ranks", 2, "--snapshot-every", 1, "--save-every-s", 2)


def finals(out: str) -> list[tuple[str, ...]]:
    return sorted(re.findall(r"\[(\d)\] final (\w+) own (\w+)", out))


def trained(house: House, name: str, **env: object) -> str:
    marks = house.folder / f"marks-{name}"
    marks.mkdir()
    run = house.run(*OFTEN, "--name", name, steps=STEPS, trainer=TRAINER, MARKS=marks, **env)
    return run.wait(EXIT_DONE)


def test_kills_and_a_replica_that_went_bad_leave_no_trace(house: House) -> None:
    wanted = finals(trained(house, "quiet"))
    assert len(wanted) == 2
    assert wanted[0][1] == wanted[1][1]
    assert wanted[0][2] != wanted[1][2], "running statistics are each rank's own"

    out = trained(house, "killed", KILL="50,81,120")
    assert finals(out) == wanted
    assert out.count("it is read from memory") == 3

    out = trained(house, "flipped", FLIP=100)
    assert "Silent corruption by step 1" in out
    assert "parts/model/3.weight" in out
    assert finals(out) == wanted
