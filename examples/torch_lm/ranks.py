"""Several processes, one training: PyTorch in the ranks that `holdfast run --ranks N` starts."""

from __future__ import annotations

import os
import socket
import time

import torch.distributed
from torch.nn.parallel import DistributedDataParallel

FIRST_LOOK_S = 0.005
LAST_LOOK_S = 60.0  # for the slowest imports of rank 0


def join_ranks(model):
    """The model as it is, or, with several ranks, one whose gradients are the mean over them."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return model
    if os.environ["RANK"] != "0":
        wait_for(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    torch.distributed.init_process_group("gloo")  # finds everything else in the environment
    parallel = DistributedDataParallel(model)
    # It lays the gradients out anew after its first backward pass, and the order in which three
    # ranks or more add them up follows the layout: the first pass is one that does not count.
    parallel(torch.zeros(1, 1, dtype=torch.long)).sum().backward()
    model.zero_grad()
    return parallel


def wait_for(host: str, port: int) -> None:
    """Until rank 0 listens there. Who dials earlier is left to wait half a second by TCPStore."""
    give_up = time.monotonic() + LAST_LOOK_S
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(FIRST_LOOK_S)
