"""A training script that hangs when it is told to, in one of many ways. Not a test itself.

`python hanging.py STEPS HOW AT`: in step AT of the first attempt, the last rank

- `sleep`: sleeps for ever; with `MEET`, so never enters the collective where the others wait
- `gil`: waits for ever in C, with the interpreter's lock
- `worker`: waits for ever for a child process
- `device`: offers something to wait for that is never ready, and goes on
- `data`: waits for ever for the next batch
- `evaluation`: is in a span of its own until the file `GO` is there
- `save`: the same, in one that says that it saves
- `slow`: waits for the file `GO`, and says nothing to anybody
- `none`: does nothing of the kind

`MEET`: a folder for the ranks' barriers.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import holdfast as hf

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def sleep_for_ever() -> None:
    while True:
        time.sleep(1000)


def hold_the_lock_for_ever() -> None:
    """Lock a mutex twice, by a call that keeps the interpreter's lock."""
    mutex = ctypes.create_string_buffer(64)  # zeros are an unlocked mutex
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


def work_for_ever() -> None:
    """What a data loader's worker might do."""
    sleep_for_ever()


def wait_for_a_child() -> None:
    child = multiprocessing.get_context("fork").Process(target=work_for_ever)
    child.start()
    child.join()


def wait_for_go() -> None:
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.005)


class Ready:
    """A device's array."""

    def block_until_ready(self) -> None:
        pass


class Never(Ready):
    """One that is never ready."""

    def block_until_ready(self) -> None:
        sleep_for_ever()


def batches(at: int) -> Iterator[float]:
    for number in range(1, 1_000_000):
        if number == at:
            sleep_for_ever()
        yield float(number)


def barrier(step: int) -> None:
    """A collective, by files: left when all ranks have entered."""
    place, name = Path(os.environ["MEET"]), f"{os.environ['HOLDFAST_ATTEMPT']}-{step}-"
    (place / f"{name}{RANK}").touch()
    while len(list(place.glob(f"{name}*"))) < RANKS:
        time.sleep(0.001)


def main(until: int, how: str, at: int) -> None:
    run = hf.start()
    hangs = RANK == RANKS - 1 and run.attempt == 0
    data = run.data(batches(at if how == "data" and hangs else 0))
    state = run.restore(init=lambda: {"sum": np.zeros(4)})
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        ready = Ready() if how == "device" else None
        if hangs and step == at:
            print(f"hangs in {step}", flush=True)
            ready = hang(run, how) or ready
        if "MEET" in os.environ:
            barrier(step)
        state["sum"] += next(data)
        time.sleep(0.3 if how == "device" and step > at else 0.05)
        run.done(step, state, ready=ready)
    print(f"sum {int(state['sum'][0])}", flush=True)


def hang(run: hf.Run, how: str) -> Never | None:
    if how == "sleep":
        sleep_for_ever()
    elif how == "gil":
        hold_the_lock_for_ever()
    elif how == "worker":
        wait_for_a_child()
    elif how == "device":
        return Never()
    elif how in ("evaluation", "save"):
        with run.span(how):
            wait_for_go()
    elif how == "slow":
        wait_for_go()
    return None


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
