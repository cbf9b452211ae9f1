"""Trains with everything that PyTorch gives a state: for test_parts.py. Not a test itself.

`HOW`: bare, ddp, fsdp (FSDP2), or tp (FSDP2 over tensor parallelism, 4 ranks). `KILL`: after which
steps rank 1 (or 0, where it is alone) kills itself, in attempts 0, 1, … `COMPILE`: in which
attempts the model is wrapped by torch.compile, which here compiles nothing (backend eager).
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys

import numpy as np
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler, swa_utils

import holdfast as hf

WIDTH, HIDDEN, AVERAGE_FROM = 6, 10, 10
HOW = os.environ.get("HOW", "bare")


class Net(nn.Module):
    """Its loss, with what draws random numbers and what keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.inwards, self.outwards = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 1)
        self.norm, self.dropout = nn.BatchNorm1d(WIDTH), nn.Dropout(0.2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inwards(self.norm(rows)))
        return self.outwards(self.dropout(hidden)).square().mean()


def shared_out(net: nn.Module, ranks: int) -> nn.Module:
    """The net, its parameters shared out as FSDP2 does, over tensor parallelism or alone."""
    if HOW == "tp":
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"inwards": ColwiseParallel(), "outwards": RowwiseParallel()}
        parallelize_module(net, mesh["tp"], plan)
        return fully_shard(net, mesh=mesh["dp"])
    fully_shard(net.inwards)
    return fully_shard(net)


def digest(*states: object) -> str:
    """Of all that they hold; of a DTensor, the whole."""
    found = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                found.update(str(key).replace("_orig_mod.", "").encode())
                add(one)
        elif isinstance(value, list | tuple):
            for one in value:
                add(one)
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            found.update(whole.detach().numpy().tobytes())
        else:
            found.update(repr(value).encode())

    for state in states:
        add(state)
    return found.hexdigest()[:16]


def main(steps: int) -> None:
    torch.set_num_threads(1)
    run = hf.start()
    if HOW != "bare":
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    net = Net()
    average = swa_utils.AveragedModel(
        net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=False
    )
    if HOW in ("fsdp", "tp"):
        shared_out(net, run.world_size)
        shared_out(average.module, run.world_size)
    model = DistributedDataParallel(net) if HOW == "ddp" else net
    if str(run.attempt) in os.environ.get("COMPILE", ""):
        net = model = torch.compile(net, backend="eager")
    adam = torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=True)
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    warm = lr_scheduler.LinearLR(adam, 0.1, total_iters=5)
    cosine = lr_scheduler.CosineAnnealingWarmRestarts(adam, 7)
    schedule = lr_scheduler.SequentialLR(adam, [warm, cosine], [5])
    plateau = lr_scheduler.ReduceLROnPlateau(sgd, patience=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(1 + (run.rank // 2 if HOW == "tp" else run.rank))  # a row of "tp" has the same batch
    parts = {"net": net, "average": average, "adam": adam, "sgd": sgd, "schedule": schedule}
    run.track(**parts, plateau=plateau, scaler=scaler)
    run.restore()
    kills = [int(word) for word in os.environ.get("KILL", "").split(",") if word]
    for step in run.steps(steps):
        noise = random.random() + np.random.rand()
        loss = model(torch.randn(4, WIDTH) + noise)
        scaler.scale(loss).backward()
        for optimizer in (adam, sgd):
            scaler.step(optimizer)
        scaler.update()
        adam.zero_grad()
        schedule.step()
        plateau.step(round(loss.item(), 1) if HOW == "bare" else step // 4 * -1.0)
        if step >= AVERAGE_FROM:
            average.update_parameters(net)
        run.done(step)
        is_due = run.attempt < len(kills) and kills[run.attempt] == step
        if is_due and run.rank == run.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    states = [part.state_dict() for part in (*parts.values(), plateau, scaler)]
    mine = [torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()]
    print(f"[{run.rank}] final {digest(*states)} own {digest(mine)}", flush=True)
    if HOW != "bare":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
