"""A trainer under DistributedDataParallel, whose ranks keep running statistics of their own.

`KILL`: steps after each of which a rank kills itself, once; `FLIP`: the step after which a weight
of rank 1 changes, once. `MARKS`: where it is remembered what was done. Not a test itself.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainer import first_time

import holdfast as hf

WIDTH = 64


def digest(tensors: list[torch.Tensor]) -> str:
    data = b"".join(one.detach().numpy().tobytes() for one in tensors)
    return hashlib.sha256(data).hexdigest()[:16]


def main(steps: int) -> None:
    torch.set_num_threads(1)
    run = hf.start()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
    model = nn.Sequential(*layers)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    run.track(model=model, optimizer=optimizer)
    run.restore()
    kills = os.environ.get("KILL", "").split(",")
    for step in run.steps(steps):
        drawn = torch.Generator().manual_seed(step * 10 + run.rank)
        optimizer.zero_grad()
        parallel(torch.randn(8, WIDTH, generator=drawn)).square().mean().backward()
        optimizer.step()
        if os.environ.get("FLIP") == str(step) and run.rank == 1 and first_time("flip"):
            with torch.no_grad():
                layers[3].weight[1, 2] += 1e-3
        time.sleep(0.01)
        run.done(step)
        if str(step) in kills and run.rank == kills.index(str(step)) % 2 and first_time(str(step)):
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"final {digest(list(model.parameters()))} own {digest(list(model.buffers()))}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
