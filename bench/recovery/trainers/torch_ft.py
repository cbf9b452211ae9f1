"""PyTorch with torchft: replica groups that train on without the one that died.

A replica that comes back heals from a living one. Heartbeats and timeouts are short (its examples:
5 s process group, 30 s manager); the state is also written to a file now and then, as its guide
tells for the case that all die.

The gradients are averaged by `Manager.allreduce` itself, as one flat bucket: the wrapper
`torchft.DistributedDataParallel` 0.2.0 fails an assertion in the survivor when its peer dies in the
middle of the exchange, and takes the survivor down with it.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import torch
from lm_torch import Training, arguments
from model import loss
from ruler import boot_ns
from torch_save import load, save
from torchft import Manager, Optimizer, ProcessGroupGloo
from torchft.manager import WorldSizeMode


def main() -> None:
    args = arguments()
    replica, replicas = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
    # With spares so many groups count, and the others bring gradients of nothing, ready to count.
    spares = int(os.environ.get("RACE_SPARES", "0"))
    training = Training(args, replica, replicas)
    path = args.out / "checkpoint.pt"
    after = load(training, path)

    def state_dict() -> dict[str, Any]:
        return {
            "model": training.model.state_dict(),
            "optimizer": training.optimizer.state_dict(),
        }

    def load_state_dict(state: dict[str, Any]) -> None:
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=args.hang_s)),
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        min_replica_size=replicas - spares if spares else 1,
        world_size_mode=WorldSizeMode.FIXED_WITH_SPARES if spares else WorldSizeMode.DYNAMIC,
        replica_id=f"race_{replica}",
        timeout=timedelta(seconds=args.hang_s),
        quorum_timeout=timedelta(seconds=30),
        connect_timeout=timedelta(seconds=10),
        heartbeat_interval=timedelta(milliseconds=50),
        init_sync=False,  # all replicas draw the same weights from the same seed
    )
    manager.load_state_dict({"step": after, "batches_committed": after * replicas})
    optimizer = Optimizer(manager, training.optimizer)
    begun = False
    while manager.current_step() < args.steps:
        batch = torch.from_numpy(next(training.batches))
        since_ns = boot_ns()
        optimizer.zero_grad()
        value = loss(training.model, batch)
        value.backward()
        average(manager, training.model)
        before = manager.current_step()
        optimizer.step()
        value.item()
        time.sleep(training.pause_s)
        step = manager.current_step()
        if step == before:
            continue  # not committed: this batch is gone
        if not begun:
            # It is known only now with which step it joined: it healed within this one.
            training.stamps.begin(before)
            begun = True
        training.stamps.step(step, since_ns)
        if manager.participating_rank() == 0 and step % args.save_every == 0:
            save(training, step, path)


def average(manager: Manager, model: torch.nn.Module) -> None:
    """Over the replicas that take part in this step."""
    gradients = [weights.grad for weights in model.parameters()]
    flat = torch.cat([one.view(-1) for one in gradients])
    manager.allreduce(flat).wait()
    parts = flat.split([one.numel() for one in gradients])
    for one, part in zip(gradients, parts, strict=True):
        one.copy_(part.view_as(one))


if __name__ == "__main__":
    main()
