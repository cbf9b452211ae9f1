"""A PyTorch trainer whose ranks share a model, for runs of several hosts. Not a test itself.

`HOW`: ddp (each rank has all of it) or fsdp (FSDP2: each has its part), over gloo. The data is each
rank's own, and so is its noise. After every step it prints the digest of what the rank holds, which
no two different histories share. Gates: see trainer.py.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch.distributed
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from trainer import wait_for_permission

import holdfast as hf

WIDTH = 8


def batches():
    """Rows, other ones on each rank; it is fast-forwarded after a restart."""
    drawn = 0
    while True:
        drawn += 1
        dice = torch.Generator().manual_seed(1000 * int(os.environ["RANK"]) + drawn)
        yield torch.randn(4, WIDTH, generator=dice)


def digest(*parts: nn.Module | torch.optim.Optimizer) -> str:
    """Of this rank's part of all tensors, and of its random generator."""
    sha = hashlib.sha256(torch.get_rng_state().numpy().tobytes())

    def add(value: object) -> None:
        if isinstance(value, dict):
            for one in value.values():
                add(one)
        elif isinstance(value, torch.Tensor):
            mine = value.to_local() if hasattr(value, "to_local") else value
            sha.update(mine.detach().numpy().tobytes())

    for part in parts:
        add(part.state_dict())
    return sha.hexdigest()[:12]


def main(until: int) -> None:
    torch.set_num_threads(1)
    run = hf.start()
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Tanh(), nn.Linear(WIDTH, 1))
    is_shared_out = os.environ["HOW"] == "fsdp"
    model = fully_shard(net) if is_shared_out else DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    torch.manual_seed(1 + run.rank)
    run.track(model=net, optimizer=optimizer)
    data = run.data(batches())
    run.restore()
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        model(next(data)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        run.done(step)
        print(f"did {step} {digest(net, optimizer)}", flush=True)
    print(f"final {digest(net, optimizer)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
