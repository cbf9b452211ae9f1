"""A data-parallel training for `make_traces.py`. Argument: steps.

Of two ranks with gloo, or of one on a GPU where there is one.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast as hf

torch.set_num_threads(1)
if torch.cuda.is_available():
    torch.set_default_device("cuda")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
else:
    dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 128))
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batches():
    while True:
        time.sleep(0.004)  # as a slow disk
        yield torch.ones(32, 128, device="cpu")


run = hf.start()
run.track(model=model, optimizer=optimizer)
run.restore()
data = iter(run.data(batches()))
for step in run.steps(int(sys.argv[1])):
    x = next(data).to(torch.get_default_device())
    optimizer.zero_grad()
    (parallel(x) - x).square().mean().backward()
    optimizer.step()
    run.done(step)
