"""A rank that trains a vector with torch.distributed (gloo), for tests of ranks without supervisor.

Each step ends in an `all_reduce` of the step number as well: a rank that leaves or saves at another
step than its peers hangs or fails. Not a test itself. `START`: hf.start `before` or `after` the
process group's initialisation, or `never` initialise. For what else a test may want see gates.py.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from gates import in_step, wait_for_permission

import holdfast as hf

START = os.environ.get("START", "after")


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
        in_step(run, step)
        run.done(step, state)
        print(f"[{rank}] did {step}", flush=True)
    digest = hashlib.sha256(state["w"].numpy().tobytes()).hexdigest()[:16]
    print(f"[{rank}] final {digest}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
