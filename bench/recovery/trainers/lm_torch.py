"""What all PyTorch scripts of the race share: the model of examples/torch_lm, its data, one step.

What differs between the scripts is how they save, restore and come back, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "examples" / "torch_lm"), str(ROOT / "examples" / "lm")]
sys.path.append(str(ROOT / "bench" / "recovery"))

import torch
from data import Windows, read_corpus
from model import Transformer, loss
from ranks import wait_for
from ruler import Stamps, boot_ns
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--out", type=Path, required=True, help="folder for checkpoints")
    p.add_argument("--stamps", type=Path, required=True, help="folder for the ruler's lines")
    p.add_argument("--data", type=Path, required=True, help="a text file")
    p.add_argument("--save-every", type=int, default=20)
    p.add_argument("--steps", type=int, default=10**9)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=320)
    p.add_argument("--heads", type=int, default=5)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--hang-s", type=float, default=5.0, help="a collective takes no longer")
    p.add_argument("--pause", type=float, default=0.0, help="s of each step: an accelerator's work")
    args, _ = p.parse_known_args()
    # Two ranks share two cores; a rank that takes both would only wait for the other one's.
    torch.set_num_threads(1)
    return args


class Training:
    """The model, its optimizer and its data, of one rank among several."""

    def __init__(self, args: argparse.Namespace, rank: int, ranks: int):
        torch.manual_seed(0)
        self.model = Transformer(args.layers, args.width, args.heads)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, weight_decay=0.1)
        corpus, _ = read_corpus(args.data, args.context + 1)
        shape = args.batch * ranks, args.context + 1
        self.batches = Windows(corpus, *shape, 0, rank=rank, ranks=ranks)
        self.parallel = self.model
        self.pause_s = args.pause
        self.stamps = Stamps(args.stamps, rank)

    def step(self, number: int) -> torch.Tensor:
        """One optimizer step, and its line."""
        batch = next(self.batches)
        since_ns = boot_ns()
        value = loss(self.parallel, torch.from_numpy(batch))
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()
        value.item()
        time.sleep(self.pause_s)
        self.stamps.step(number, since_ns)
        return value


def join(training: Training, args: argparse.Namespace, ranks: int) -> None:
    """Process group and DDP, from what every launcher puts into the environment.

    A collective that takes longer than `--hang-s` fails: the shortest way to notice a hang that
    plain PyTorch has.
    """
    if ranks == 1:
        return
    if os.environ["RANK"] != "0" and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
        wait_for(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=args.hang_s))
    training.parallel = DistributedDataParallel(training.model)


def whoami() -> tuple[int, int]:
    """(rank, ranks)."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
