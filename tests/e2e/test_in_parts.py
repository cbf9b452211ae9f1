"""Two ranks that hold a model alike, each of which copies its part of it: PyTorch's DDP, JAX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
STEPS = 160
OFTEN = ("--ranks", 2, "--snapshot-every", 1, "--save-every-s", 2)


def finals(out: str) -> list[tuple[str, ...]]:
    return sorted(re.findall(r"\[(\d)\] final (\w+) own (\w+)", out))


def trained(house: House, trainer: Path, name: str, **env: object) -> str:
    marks = house.folder / f"marks-{name}"
    marks.mkdir()
    run = house.run(*OFTEN, "--name", name, steps=STEPS, trainer=trainer, MARKS=marks, **env)
    return run.wait(EXIT_DONE)


@pytest.mark.parametrize(
    ("framework", "script", "array"),
    [
        ("torch", "ddp_trainer.py", "parts/model/3.weight"),
        ("jax", "replicated_jax_trainer.py", "state/weights/3"),
    ],
)
def test_kills_and_a_replica_that_went_bad_leave_no_trace(
    house: House, framework: str, script: str, array: str
) -> None:
    pytest.importorskip(framework)
    trainer = HERE / script
    wanted = finals(trained(house, trainer, "quiet"))
    assert len(wanted) == 2
    assert wanted[0][1] == wanted[1][1]
    assert wanted[0][2] != wanted[1][2], "running statistics, or rows, are each rank's own"

    out = trained(house, trainer, "killed", KILL="50,81,120")
    assert finals(out) == wanted
    assert out.count("it is read from memory") == 3

    out = trained(house, trainer, "flipped", FLIP=100)
    assert "Silent corruption by step 1" in out
    assert array in out
    assert finals(out) == wanted
