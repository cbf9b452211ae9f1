"""A data-parallel PyTorch trainer that a test can hold and release. Not a test itself.

Gradients are averaged with gloo; the data, the dropout and numpy's noise are each rank's own.
After every step it prints the step's digest, which no two different histories share. Gates: see
trainer.py.

DistributedDataParallel and torch.optim would do the same, but import torch._dynamo, which doubles
what a process costs. examples/torch_lm has both, and is interrupted by tests/examples.
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


class Momentum:
    """Gradient descent with a memory."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = dict(model.named_parameters())
        self.velocities = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self) -> None:
        """Average the gradients over all ranks (the collective: it waits for them), and descend."""
        for name, parameter in self.parameters.items():
            torch.distributed.all_reduce(parameter.grad)
            velocity = self.velocities[name]
            velocity.mul_(0.9).add_(parameter.grad / torch.distributed.get_world_size())
            parameter.sub_(0.01 * velocity)
            parameter.grad = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.velocities

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, velocity in self.velocities.items():
            velocity.copy_(state[name])


def digest(model: nn.Module, optimizer: Momentum) -> str:
    """Of the parameters, the optimizer's moments and this rank's random generators."""
    sha = hashlib.sha256(str(np.random.get_state()[1:3]).encode())
    sha.update(torch.get_rng_state().numpy().tobytes())
    for state in (model.state_dict(), optimizer.state_dict()):
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
    optimizer = Momentum(model)
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
        model(inputs).square().mean().backward()
        optimizer.step()
        run.done(step)
        print(f"did {step} {digest(model, optimizer)}", flush=True)
    print(f"final {digest(model, optimizer)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
