"""A training script that hangs when it is told to, in one of some ways. Not a test itself.

`python hanging.py STEPS HOW AT`: in step AT of the first attempt it

- `sleep`: sleeps for ever
- `gil`: waits for ever in C, with the interpreter's lock
- `worker`: waits for ever for a child process
- `slow`: waits for the file `GO`, and says nothing to anybody
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np

import holdfast as hf


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


HANGS = {
    "sleep": sleep_for_ever,
    "gil": hold_the_lock_for_ever,
    "worker": wait_for_a_child,
    "slow": wait_for_go,
}


def main(until: int, how: str, at: int) -> None:
    run = hf.start()
    data = run.data(float(number) for number in range(1, 1_000_000))
    state = run.restore(init=lambda: {"sum": np.zeros(4)})
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        if step == at and run.attempt == 0:
            print(f"hangs in {step}", flush=True)
            HANGS[how]()
        state["sum"] += next(data)
        run.done(step, state)
    print(f"sum {int(state['sum'][0])}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
