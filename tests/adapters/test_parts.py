"""All that PyTorch gives a state, bare, under DDP, FSDP2, tensor parallelism: killed, and equal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

pytest.importorskip("torch")

TRAINER = Path(__file__).with_name("parts_trainer.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "fsdp" / "train.py"
STEPS = 40


def trained(house: House, name: str, ranks: int, steps: int = STEPS, **env: object) -> str:
    words = ("--name", name, "--ranks", ranks, "--save-every", 4)
    command = (sys.executable, TRAINER, steps)
    return house.holdfast("run", *words, "--", *command, OMP_NUM_THREADS=1, **env).wait(EXIT_DONE)


def finals(out: str) -> list[tuple[str, ...]]:
    found = sorted(re.findall(r"\[(\d)\] final (\w+) own (\w+)", out))
    assert found, out
    return found


@pytest.mark.contract("PyTorch: FSDP2, saved by two ranks and read by one")
def test_another_number_of_ranks_has_the_same_bits(house: House) -> None:
    def digests(ranks: int) -> list[str]:
        words = ("run", "--name", "a", "--ranks", ranks, "--", sys.executable, EXAMPLE, 4)
        out = house.holdfast(*words, OMP_NUM_THREADS=1).wait(EXIT_DONE)
        return re.findall(r"step 4, parameters (\w+)", out)

    one, other = digests(2)
    assert digests(1) == [one] == [other]


@pytest.mark.parametrize(("how", "ranks"), [("bare", 1), ("ddp", 2), ("fsdp", 2), ("tp", 4)])
def test_kills_leave_no_trace(house: House, how: str, ranks: int) -> None:
    quiet = finals(trained(house, "quiet", ranks, HOW=how))
    assert len({own for *_, own in quiet}) == min(ranks, 2), "ranks draw numbers of their own"
    out = trained(house, "killed", ranks, HOW=how, KILL="13,29")
    assert out.count("killed by SIGKILL") == 2
    assert finals(out) == quiet


def test_a_compiled_model_goes_on_as_one_that_is_not_and_back(house: House) -> None:
    quiet = finals(trained(house, "quiet", 1))
    assert finals(trained(house, "turns", 1, KILL="13,29", COMPILE="1")) == quiet
