"""PyTorch with NVIDIA's in-process restart: ranks, and warm spares that wait in the same job.

As its advanced example has it, what no process group owns (model, optimizer, data) is made once and
lives through restarts; the state is read back from the newest checkpoint. All intervals are at
the shortest that this machine can keep, far below the defaults (1 s monitors, 30 s heartbeats): the
package's own guide leaves them to the user.
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
from lm_torch import ROOT, Training, arguments, whoami  # noqa: F401
from nvidia_resiliency_ext import inprocess
from torch.nn.parallel import DistributedDataParallel


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class OutsideStore(inprocess.store.TCPStore):  # type: ignore[misc]  # it has no types
    """The wrapper's store, kept by the launcher instead of rank 0.

    By default rank 0 hosts it and its death ends the whole job; the guide allows another store.
    """

    def __init__(self, port: int):
        torch.distributed.TCPStore.__init__(
            self, os.environ["MASTER_ADDR"], port, is_master=False, wait_for_workers=False
        )

    @property
    def critical_ranks(self) -> tuple[int, ...]:
        return ()


def save(training: Training, step: int, path: Path) -> None:
    """Into memory, without a sync: the cheapest there is, as a local checkpoint would."""
    part = path.with_suffix(".part")
    state = {
        "step": step,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "drawn": training.batches.drawn,
    }
    torch.save(state, part)
    part.replace(path)


def load(training: Training, path: Path) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True, mmap=True)
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.batches.drawn = state["drawn"]
    return int(state["step"])


class Warm(Training):
    """A training that is built before it is known which rank it will be."""

    def as_rank(self, args: argparse.Namespace, rank: int, ranks: int) -> "Warm":
        from data import Windows
        from ruler import Stamps

        shape = args.batch * ranks, args.context + 1
        self.batches = Windows(self.batches.corpus, *shape, 0, rank=rank, ranks=ranks)
        self.stamps = Stamps(args.stamps, rank)
        return self


# The wrapper looks at the annotations for its own type: each must be a type, not a string.
def train(
    args: argparse.Namespace,
    spare: Warm,
    store: torch.distributed.Store,
    call_wrapper: inprocess.CallWrapper = None,
) -> None:
    rank, ranks = whoami()
    torch.distributed.init_process_group(
        "gloo",
        store=torch.distributed.PrefixStore(f"train-{call_wrapper.iteration}", store),
        rank=rank,
        world_size=ranks,
        timeout=seconds(args.hang_s),
    )
    training = spare.as_rank(args, rank, ranks)
    path = args.out / "checkpoint.pt"
    after = load(training, path)
    training.parallel = DistributedDataParallel(training.model)
    training.stamps.begin(after)
    for step in range(after + 1, args.steps + 1):
        training.step(step)
        call_wrapper.ping()
        if rank == 0 and step % args.save_every == 0:
            with call_wrapper.atomic():
                save(training, step, path)


def main() -> None:
    args = arguments()
    active = int(os.environ["RACE_ACTIVE_RANKS"])
    store_port = int(os.environ["RACE_STORE_PORT"])
    training = Warm(args, 0, 1)
    # The first optimizer step imports much; a spare has done that before it is needed.
    training.optimizer.zero_grad()
    training.model(torch.zeros(1, 1, dtype=torch.long)).sum().backward()
    training.optimizer.step()
    Warm.__init__(training, args, 0, 1)
    store = torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"], store_port + 1, is_master=False, wait_for_workers=False
    )
    wrapper = inprocess.Wrapper(
        store_factory=OutsideStore,
        store_kwargs={"port": store_port},
        # Too few ranks left: the wrapper gives up, and the launcher starts the job anew.
        initialize=inprocess.initialize.RetryController(min_active_world_size=active),
        rank_assignment=inprocess.Compose(
            inprocess.rank_assignment.MaxActiveWorldSize(active),
            inprocess.rank_assignment.ShiftRanks(),
        ),
        monitor_thread_interval=seconds(0.05),
        monitor_process_interval=seconds(0.05),
        heartbeat_interval=seconds(0.25),
        progress_watchdog_interval=seconds(0.25),
        soft_timeout=seconds(args.hang_s),
        hard_timeout=seconds(args.hang_s + 1),
        heartbeat_timeout=seconds(args.hang_s),
        barrier_timeout=seconds(60),
        completion_timeout=seconds(60),
        last_call_wait=seconds(0.02),
        termination_grace_time=seconds(0),
    )
    wrapper(train)(args, training, store)


if __name__ == "__main__":
    main()
