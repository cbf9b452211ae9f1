"""The PyTorch twin of train.py: FSDP2, torch.compile and activation checkpointing as switches.

    holdfast run --ranks 2 -- python examples/reference/train_torch.py --compile --remat full

Each rank holds a part of each parameter, which is gathered block by block. The model is that of
examples/torch_lm, the text that of examples/lm; it needs nothing but PyTorch. The lines marked (hf)
are all that Holdfast asks of it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "torch_lm"))

# cuBLAS sums alike each time only with a workspace of a fixed size.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed
from data import Windows, read_corpus
from model import Transformer, loss
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import holdfast as hf
from holdfast.program import of_torch


def parser():
    p = argparse.ArgumentParser(description="train a language model, fast, with PyTorch")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--data", type=Path, help="a file or a folder (default: Python's own library)")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--context", type=int, default=128, help="tokens that the model sees")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--remat", choices=["none", "full"], default="none")
    p.add_argument("--compile", action="store_true", help="compile each block (torch.compile)")
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--threads", type=int, default=1, help="CPU threads of a rank")
    p.add_argument("--out", type=Path, help="write the final parameters' checksum to this file")
    return p


def main():
    args = parser().parse_args()
    # A sum that is divided among threads depends on their number: the same in every attempt.
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    run = hf.start()  # (hf) joins the run that `holdfast run` started, or begins one of its own
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.set_default_device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
    join_ranks("nccl" if on_gpu else "gloo")

    torch.manual_seed(args.seed)
    model = Transformer(args.layers, args.width, args.heads, dropout=0.0, vocab=args.vocab)
    batch = torch.zeros(args.batch // run.world_size, args.context + 1, dtype=torch.long)
    # (hf) optional: what the model needs for a step on all ranks, for program goodput
    run.flops(of_torch(model, batch, loss=loss) * run.world_size)
    make_fast(model, args)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_and_cosine(args.steps))

    corpus, _ = read_corpus(args.data, args.context + 1)
    shape = args.batch, args.context + 1
    windows = Windows(corpus, *shape, args.seed, rank=run.rank, ranks=run.world_size)
    # (hf) what has a state, each rank's part of it, saved and restored in place
    run.track(model=model, optimizer=optimizer, schedule=schedule)
    data = run.data(windows, reshard="same")  # (hf) remembers how far the data were consumed
    run.restore()  # (hf) the newest good checkpoint, if there is one

    for step in run.steps(args.steps):  # (hf) goes on with the step after the checkpoint's
        batch = torch.from_numpy(next(data)).to(torch.get_default_device())
        train_loss = loss(model, batch)
        optimizer.zero_grad()
        train_loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        # (hf) the boundary between two steps: recorded, and saved here when a save is due
        tokens, metrics = args.batch * args.context, {"loss": train_loss.detach()}
        run.done(step, ready=train_loss, tokens=tokens, metrics=metrics)
        if run.rank == 0 and (step % args.log_every == 0 or step == args.steps):
            print(f"step {step}/{args.steps}: loss {train_loss.item():.4f}", flush=True)

    if args.out:
        write_result(args.out, run, args.steps, model)
    torch.distributed.destroy_process_group()


def join_ranks(backend: str):
    """All ranks that `holdfast run` started; a single process is a group of its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group(backend)  # finds the rest in the environment
    else:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)


def make_fast(model, args):
    """In place, from the inside: what is recomputed, what is compiled, what is divided."""
    narrow = torch.bfloat16 if args.dtype == "bfloat16" else None
    policy = MixedPrecisionPolicy(param_dtype=narrow, output_dtype=torch.float32)
    inner = MixedPrecisionPolicy(param_dtype=narrow)
    for block in model.blocks:
        if args.remat == "full":
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if args.compile:
            block.compile()
        fully_shard(block, mp_policy=inner)
    fully_shard(model, mp_policy=policy)


def warmup_and_cosine(steps: int):
    """The learning rate's factor at each step: up in a straight line, down along a cosine."""
    warmup = min(50, steps // 4)

    def factor(step):
        if step < warmup:
            return step / warmup
        return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2

    return factor


def write_result(path: Path, run, steps: int, model):
    """A checksum over every parameter's name, shape, type and bytes, by each rank."""
    digest = hashlib.sha256()
    for name, part in model.state_dict().items():
        tensor = part.full_tensor().cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
    if run.rank == 0:
        path.write_text(json.dumps({"steps": steps, "params_sha256": digest.hexdigest()}) + "\n")


if __name__ == "__main__":
    main()
