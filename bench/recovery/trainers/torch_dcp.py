"""PyTorch under torchrun or NVIDIA's ft_launcher: asynchronous `torch.distributed.checkpoint`.

One stager for all saves (a new one each time would pay for cold memory), a new folder for each set
(overwriting one in place and being killed leaves none), a process group of its own for the saver's
thread. A set is complete when its `.metadata` is there.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from lm_torch import Training, arguments, join, whoami
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class Saver:
    """Sets of (model, optimizer, position), the newest two kept."""

    def __init__(self, training: Training, folder: Path, ranks: int):
        self.training, self.folder, self.ranks = training, folder, ranks
        # No pinned memory without CUDA; what is left is a copy into memory that is kept.
        self.stager = DefaultStager(StagingOptions(False, False, False, False))
        self.group = torch.distributed.new_group(backend="gloo") if ranks > 1 else None
        self.pending: Any = None

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.training.model, self.training.optimizer)
        drawn = torch.tensor(self.training.batches.drawn)
        return {"model": model, "optimizer": optimizer, "drawn": drawn}

    def complete(self) -> list[int]:
        """The steps of all complete sets, oldest first."""
        return sorted(int(path.parent.name) for path in self.folder.glob("*/.metadata"))

    def save(self, step: int) -> None:
        self.wait()
        self.pending = dcp.async_save(
            self.state(),
            checkpoint_id=self.folder / str(step),
            async_stager=self.stager,
            process_group=self.group,
            no_dist=self.ranks == 1,
        )

    def wait(self) -> None:
        """For the save that is under way: there is one stager."""
        if self.pending is None:
            return
        self.pending.result()
        self.pending = None
        if os.environ.get("RANK", "0") == "0":
            for old in self.complete()[:-2]:
                shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def restore(self) -> int:
        """The step of the newest complete set, which rank 0 names; 0 without one."""
        step = torch.tensor(max(self.complete(), default=0))
        if self.ranks > 1:
            torch.distributed.broadcast(step, 0)
        if not step:
            return 0
        state = self.state()
        dcp.load(state, checkpoint_id=self.folder / str(int(step)), no_dist=self.ranks == 1)
        set_state_dict(
            self.training.model,
            self.training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.training.batches.drawn = int(state["drawn"])
        return int(step)


def heartbeats() -> Callable[[], object]:
    """ft_launcher's heartbeat, where it is the launcher: it notices a hang by its absence."""
    if "FT_RANK_MONITOR_IPC_SOCKET" not in os.environ:
        return lambda: None
    from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

    client = RankMonitorClient()
    client.init_workload_monitoring()
    beat: Callable[[], object] = client.send_heartbeat
    return beat


def main() -> None:
    args, (rank, ranks) = arguments(), whoami()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    beat = heartbeats()
    training = Training(args, rank, ranks)
    join(training, args, ranks)
    saver = Saver(training, args.out, ranks)
    after = saver.restore()
    training.stamps.begin(after)
    for step in range(after + 1, args.steps + 1):
        training.step(step)
        beat()
        stop = torch.tensor(len(stopping))
        if ranks > 1 and step % 5 == 0:
            torch.distributed.all_reduce(stop)
        leaving = bool(stop) and (ranks == 1 or step % 5 == 0)
        if leaving or step % args.save_every == 0:
            saver.save(step)
        if leaving:
            saver.wait()
            sys.exit(75)


if __name__ == "__main__":
    main()
