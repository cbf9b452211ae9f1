"""A rank that trains a vector with torch.distributed (gloo), for tests of ranks without supervisor.

Each step ends in an `all_reduce` of the step number as well: a rank that leaves or saves at another
step than its peers hangs or fails. Not a test itself. `ALLOW`: a file with the last step that may
begin. `START`: `before` or `after` the process group's initialisation, or `never` initialise.
`HOLD_AT_THE_STOP`: this rank never comes to the boundary at which a stop is ordered.
`CRASH_AT`: `rank:step` at which to raise.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import holdfast as hf
from holdfast.core.word import Order, unpack
from holdfast.journal.layout import Word

START = os.environ.get("START", "after")


def wait_for_permission(step: int, known: list[int] = [0]) -> None:  # noqa: B006 - remembered
    """The step may begin when the test says so."""
    allow = os.environ.get("ALLOW")
    while allow and known[0] < step:
        known[0] = int(Path(allow).read_text())
        if known[0] < step:
            time.sleep(0.002)


def hold_at_the_stop(run: hf.Run, step: int) -> None:
    """Print that the step has come whose boundary is ordered for a stop, and wait for ever."""
    if os.environ.get("HOLD_AT_THE_STOP") == str(run.rank):
        order = unpack(run._attachment.writer.words.load(Word.ORDER))
        if order.flags & Order.STOP and order.step == step:
            print(f"[{run.rank}] holds at {step}", flush=True)
            time.sleep(600)


def main(until: int) -> None:
    torch.set_num_threads(1)
    if START == "before":
        run = hf.start()
    if START != "never":
        dist.init_process_group("gloo")
    if START != "before":
        run = hf.start()
    rank = run.rank
    torch.manual_seed(rank)
    data = run.data(iter(range(10_000_000)))
    state = run.restore(init=lambda: {"w": torch.zeros(64, dtype=torch.float64)})
    print(f"[{rank}] from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        gradient = torch.rand(64, dtype=torch.float64) * (1 + next(data))
        told = torch.cat([gradient, torch.tensor([float(step)], dtype=torch.float64)])
        dist.all_reduce(told)
        assert told[-1] == step * dist.get_world_size(), f"ranks at different steps: {told[-1]}"
        state["w"] += told[:-1]
        if os.environ.get("TAG_AT") == str(step):
            run.save(tag="asked", wait=True)
        if os.environ.get("CRASH_AT") == f"{rank}:{step}":
            raise ValueError(f"the loss is not a number at step {step}")
        hold_at_the_stop(run, step)
        run.done(step, state)
        print(f"[{rank}] did {step}", flush=True)
    digest = hashlib.sha256(state["w"].numpy().tobytes()).hexdigest()[:16]
    print(f"[{rank}] final {digest}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
