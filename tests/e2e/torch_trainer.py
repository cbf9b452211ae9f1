"""A data-parallel PyTorch trainer that a test can hold and release. Not a test itself.

DistributedDataParallel with gloo; the data, the dropout and numpy's noise are each rank's own.
After every step it prints the step's digest, which no two different histories share. Gates: see
trainer.py.
"""

from __future__ import annotations

import hashlib
import os
import sys

import numpy as np
import torch
import torch.distributed
from torch import nn
from trainer import crash_if_told, hold, save_if_told, wait_for_permission

import holdfast as hf

RANK = int(os.environ["RANK"])


def batches():
    """Two rows a step, other ones on each rank; it is fast-forwarded after a restart."""
    drawn = 0
    while True:
        drawn += 1
        yield np.random.default_rng([RANK, drawn]).normal(size=(2, 8)).astype(np.float32)


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Of the parameters, the optimizer's moments and this rank's random generators."""
    sha = hashlib.sha256(str(np.random.get_state()[1:3]).encode())
    sha.update(torch.get_rng_state().numpy().tobytes())
    for state in (model.state_dict(), *optimizer.state_dict()["state"].values()):
        for tensor in state.values():
            sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()[:12]


def main(until: int) -> None:
    torch.set_num_threads(1)
    np.random.seed(RANK)
    hold("start")
    run = hf.start()
    print("started", flush=True)
    hold("join")
    torch.distributed.init_process_group("gloo")
    print("initialized", flush=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 1))
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(RANK)

    run.track(model=model, optimizer=optimizer)
    data = run.data(batches())
    run.restore()
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        hold("step")
        crash_if_told(step)
        save_if_told(run, step)
        inputs = torch.from_numpy(next(data)) + np.random.random()
        print(f"begins {step}", flush=True)
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()  # the collective: it waits for all ranks
        optimizer.step()
        run.done(step)
        print(f"did {step} {digest(model, optimizer)}", flush=True)
    print(f"final {digest(model, optimizer)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
