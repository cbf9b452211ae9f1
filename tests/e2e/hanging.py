"""A training script that hangs when it is told to, in one of many ways. Not a test itself.

`python hanging.py STEPS HOW AT`: in step AT of the first attempt, rank RANK (default: the last) …

- `sleep`: sleeps for ever
- `gil`: waits for ever in C, with the interpreter's lock
- `absent`: never enters the collective in which the others wait
- `device`: offers something to wait for that never comes, and goes on
- `data`: waits for ever for the next batch, in a thread's stead
- `leave`: sleeps for ever once it has been asked to stop
- `none`: does not hang
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import numpy as np

import holdfast as hf

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
HANGS = int(os.environ.get("HANG_RANK", str(RANKS - 1))) == RANK


def sleep_for_ever() -> None:
    while True:
        time.sleep(1000)


def hold_the_lock_for_ever() -> None:
    """Lock a mutex twice, by a call that keeps the interpreter's lock."""
    mutex = ctypes.create_string_buffer(64)  # zeros are an unlocked mutex
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


class Never:
    """A device's array that is never ready."""

    def block_until_ready(self) -> None:
        sleep_for_ever()


def barrier(step: int) -> None:
    """A collective, by files: left when all ranks have entered."""
    place = Path(os.environ["MEET"])
    (place / f"{os.environ['HOLDFAST_ATTEMPT']}-{step}-{RANK}").touch()
    while len(list(place.glob(f"{os.environ['HOLDFAST_ATTEMPT']}-{step}-*"))) < RANKS:
        time.sleep(0.001)


def main(until: int, how: str, at: int) -> None:
    run = hf.start()
    state = run.restore(init=lambda: {"sum": np.zeros(4)})
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        ready = None
        if HANGS and run.attempt == 0 and step == at:
            print(f"hangs in {step}", flush=True)
            if how in ("sleep", "absent"):
                sleep_for_ever()
            elif how == "gil":
                hold_the_lock_for_ever()
            elif how == "device":
                ready = Never()
        if "MEET" in os.environ:
            barrier(step)
        state["sum"] += step
        time.sleep(0.01)
        run.done(step, state, ready=ready)
        print(f"did {step}", flush=True)
    print(f"sum {int(state['sum'][0])}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
