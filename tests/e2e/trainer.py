"""A small training script whose every phase a test can hold and release. Not a test itself.

It trains a vector by a rule that depends on the data, on Python's and on numpy's random numbers, so
that a restart that loses or repeats any of them ends in another digest. What a test may set:

- `ALLOW`: a file with the number of the last step that may begin (or one number for each rank); it
  waits for a larger one
- `HOLD`: a phase (import, start, restore, step, loop) at which it waits for the file `GO`, or only
  the rank `HOLD_RANK` waits
- `SAVE_AT`: have these very steps saved (numbers with commas), and go on when they are
- `CRASH_AT`: raise at this step, `CRASH_ONCE`: but only if this file is not there yet,
  `CRASH_RANK`: but only on this rank, `CRASH_HOW`: with sys.exit, if it is `exit`
- `FAIL_AT`: give up at this step (with `FAIL_ONCE` as above), `FAIL_TO` and `FAIL_SKIP`: and ask to
  go back there, skipping so many batches; `FAIL_RANK`: only this rank does
- `MARKS`: a folder that remembers what was done once
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from pathlib import Path


def rank() -> str:
    """Which of the ranks this is."""
    return os.environ.get("RANK", "0")


def hold(phase: str) -> None:
    """Wait here for the test, if it wants so."""
    if os.environ.get("HOLD") == phase and os.environ.get("HOLD_RANK", rank()) == rank():
        print(f"at {phase}", flush=True)
        go = Path(os.environ["GO"])
        while not go.exists():
            time.sleep(0.002)


def first_time(what: str) -> bool:
    """Whether that was never done before."""
    mark = Path(os.environ["MARKS"]) / what
    if mark.exists():
        return False
    mark.touch()
    return True


def wait_for_permission(step: int, known: list[int] = [0]) -> None:  # noqa: B006 - remembered
    """The step may begin when the test says so."""
    allow = os.environ.get("ALLOW")
    while allow and known[0] < step:
        words = Path(allow).read_text().split()
        known[0] = int(words[min(int(rank()), len(words) - 1)])
        if known[0] < step:
            time.sleep(0.002)


def save_if_told(run: hf.Run, step: int, *, every_rank: bool = False) -> None:
    """Ask for a save of given steps, before the others can be done with them.

    `every_rank`: nothing else keeps the ranks in step, so each waits for the order.
    """
    if str(step) in os.environ.get("SAVE_AT", "").split(",") and (every_rank or rank() == "0"):
        asked_save.PATIENCE_NS = 30 * 10**9  # this very step, also on a loaded machine
        run.save(tag="told", wait=True)


def crash_if_told(step: int) -> None:
    """Fail at a given step, always or once."""
    here = os.environ.get("CRASH_RANK", rank()) == rank()
    if os.environ.get("CRASH_AT") == str(step) and here:
        once = os.environ.get("CRASH_ONCE")
        if once is None or not Path(once).exists():
            if once:
                Path(once).touch()
            if os.environ.get("CRASH_HOW") == "exit":
                sys.exit("enough")
            raise ValueError(f"the loss is not a number at step {step}")


def fail_if_told(run: hf.Run, step: int) -> None:
    """Give up at a given step, always or once, as a script does that finds its loss to be NaN."""
    get = os.environ.get
    if get("FAIL_AT") != str(step) or get("FAIL_RANK", str(run.rank)) != str(run.rank):
        return
    once = get("FAIL_ONCE")
    if once is not None and Path(once).exists():
        return
    if once:
        Path(once).touch()
    to = get("FAIL_TO")
    target = int(to) if to is not None and to.isdecimal() else to
    try:
        run.fail("loss is NaN", rollback_to=target, skip_batches=int(get("FAIL_SKIP", "0")))
    except Exception:
        print("swallowed", flush=True)


hold("import")

import numpy as np  # noqa: E402

import holdfast as hf  # noqa: E402
from holdfast.session import asked_save  # noqa: E402


class Average:
    """Something with a state of its own, for run.track."""

    def __init__(self) -> None:
        self.value = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


def batches():
    """0, 1, 2, … as vectors."""
    number = 0
    while True:
        yield np.full(256, float(number))
        number += 1


def update(weights: np.ndarray, batch: np.ndarray, average: Average) -> None:
    """One step of the "training"."""
    noise = random.random() + np.random.random()
    weights *= 0.99
    weights += batch * noise
    average.value = 0.9 * average.value + 0.1 * float(weights[0])


def digest(weights: np.ndarray, average: Average) -> str:
    """What two equal runs share."""
    return hashlib.sha256(weights.tobytes() + repr(average.value).encode()).hexdigest()[:16]


def main(until: int) -> None:
    random.seed(1)
    np.random.seed(2)
    hold("start")
    run = hf.start()
    average = Average()
    run.track(average=average)
    data = run.data(batches())

    def init() -> dict[str, np.ndarray]:
        hold("restore")
        return {"weights": np.zeros(256)}

    state = run.restore(init=init)
    print(f"from {run.resume_step}", flush=True)
    hold("loop")
    for step in run.steps(until):
        wait_for_permission(step)
        hold("step")
        crash_if_told(step)
        fail_if_told(run, step)
        update(state["weights"], next(data), average)
        save_if_told(run, step, every_rank=True)
        run.done(step, state, tokens=256)
        print(f"did {step}", flush=True)
    print(f"final {digest(state['weights'], average)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
