"""PyTorch in a bare loop: `torch.save`, made durable, every few steps. On SIGTERM one more."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from lm_torch import Training, arguments, join, whoami


def save(training: Training, step: int, path: Path) -> None:
    """A new file under a temporary name, synced, then renamed: the old one is good until then."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        state = {
            "step": step,
            "model": training.model.state_dict(),
            "optimizer": training.optimizer.state_dict(),
            "drawn": training.batches.drawn,
        }
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def load(training: Training, path: Path) -> int:
    """The step that the file contains; 0 without one."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True, mmap=True)
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.batches.drawn = state["drawn"]
    return int(state["step"])


def main() -> None:
    args, (rank, ranks) = arguments(), whoami()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    training = Training(args, rank, ranks)
    path = args.out / "checkpoint.pt"
    after = load(training, path)
    join(training, args, ranks)
    training.stamps.begin(after)
    for step in range(after + 1, args.steps + 1):
        training.step(step)
        # A flag that one rank has seen and another has not must not part them: they agree on it.
        stop = torch.tensor(len(stopping))
        if ranks > 1 and step % 5 == 0:
            torch.distributed.all_reduce(stop)
        leaving = bool(stop) and (ranks == 1 or step % 5 == 0)
        if rank == 0 and (leaving or step % args.save_every == 0):
            save(training, step, path)
        if leaving:
            sys.exit(75)


if __name__ == "__main__":
    main()
