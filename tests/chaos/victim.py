"""The training script that the chaos campaign kills. Not a test itself.

It trains a small vector by a rule that depends on the data, on random numbers and on a tracked
object, so that a step lost, repeated or restored from the wrong place changes the final checksum.
Each step takes about a millisecond, until the file HURRY is there: then it ends as fast as it can.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import holdfast as hf

PACE_S = 0.001
WIDTH = 64
MODULUS = 2**61 - 1


class Momentum:
    """Something with a state of its own, for run.track."""

    def __init__(self) -> None:
        self.value = 1

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def numbers() -> Iterator[int]:
    """0, 1, 2, …: the data."""
    number = 0
    while True:
        yield number
        number += 1


def update(weights: list[int], number: int, momentum: Momentum) -> None:
    """One step; exact arithmetic, so that equal means equal."""
    noise = random.getrandbits(40)
    momentum.value = (momentum.value * 31 + number) % MODULUS
    place = number % WIDTH
    weights[place] = (weights[place] * 17 + noise + momentum.value) % MODULUS


def checksum(weights: list[int], momentum: Momentum) -> str:
    """What two equal runs share."""
    return hashlib.sha256(repr((weights, momentum.value)).encode()).hexdigest()[:16]


def expected(steps: int) -> str:
    """The checksum of a run that nothing interrupts: the same arithmetic, without Holdfast."""
    random.seed(7)
    momentum, weights = Momentum(), [0] * WIDTH
    for number in range(steps):
        update(weights, number, momentum)
    return checksum(weights, momentum)


def main(until: int) -> None:
    hurry = Path(os.environ["HURRY"])
    random.seed(7)
    run = hf.start()
    momentum = Momentum()
    run.track(momentum=momentum)
    data = run.data(numbers())
    state = run.restore(init=lambda: {"weights": [0] * WIDTH})
    pace_s = PACE_S
    for step in run.steps(until):
        update(state["weights"], next(data), momentum)
        run.done(step, state)
        if pace_s and step % 16 == 0 and hurry.exists():
            pace_s = 0.0
        if pace_s:
            time.sleep(pace_s)
    print(f"final {checksum(state['weights'], momentum)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
