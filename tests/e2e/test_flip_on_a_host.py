"""A bit is flipped in one of three replicas: its host is named and left, and no trace is left."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from processes import EXIT_DONE, FAR, LIMIT_S, House, Process

pytestmark = pytest.mark.real

TRAINER = Path(__file__).with_name("flip_trainer.py")
TRAIN, SPARE = 3, 3
STEPS = 3000
REST_S = 0.2
ENOUGH = 5  # sets that were compared: from the third on an array is known to be equal everywhere


def final(steps: int) -> str:
    """What a run that nothing happened to ends with."""
    w = np.arange(1000.0)
    for step in range(1, steps + 1):
        w = w * 1.0001 + step
    return hashlib.sha256(w.tobytes()).hexdigest()[:12]


def copied() -> set[str]:
    """Steps of which host 2 has a copy of what rank 1 holds."""
    folder = Path(os.environ["HOLDFAST_MEMORY_DIR"])
    found = set()
    for path in folder.glob("*/*-host2/ram/*/manifest.json"):
        words = path.read_text()
        if re.search(r'"here":\[1\]', words) and (step := re.search(r'"step":(\d+)', words)):
            found.add(step[1])
    return found


def test_the_host_whose_bit_was_flipped_is_named_and_left(house: House) -> None:
    flip = house.folder / "flip"
    house.allow(0)
    often = ("--hosts", TRAIN, "--spares", 1, "--save-every", 100_000, "--snapshot-every", 2)
    agents: list[Process] = [
        house.run(*often, "--host-index", index, steps=STEPS, trainer=TRAINER, FLIP=flip)
        for index in range(TRAIN + 1)
    ]
    step = 0

    def train_until(holds: Callable[[], bool]) -> None:
        """Step by step, slowly enough for what is done beside the steps."""
        nonlocal step
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, "\n".join(agent.text for agent in agents)
            step += 1
            house.allow(step)
            time.sleep(REST_S)

    def is_known_to_be_equal() -> bool:
        seen.update(copied())
        return len(seen) >= ENOUGH

    seen: set[str] = set()
    agents[0].saw(r"\[0\] from 0$")
    train_until(is_known_to_be_equal)
    flip.touch()
    train_until(lambda: any("Silent corruption" in agent.text for agent in agents))
    house.allow(FAR)
    agents[SPARE].saw("This is host 3 of 4 in the place of host 1")
    words = "\n".join(agent.wait(EXIT_DONE) for agent in agents)
    at = int(flip.read_text())
    found = re.search(
        r"Silent corruption by step (\d+) on host 1: its state/w differs from what all other", words
    )
    assert found is not None, words
    assert int(found[1]) >= at
    back = re.search(r"back to step (\d+): silent corruption", words)
    assert back is not None, words
    assert int(back[1]) < at
    assert "Host 1 gives up its part: it is in quarantine" in words
    assert len(re.findall(rf"final {final(STEPS)}", words)) == TRAIN
