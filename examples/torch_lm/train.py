"""Train a small language model on real text with PyTorch: the twin of examples/lm.

    holdfast run --name my-run -- python examples/torch_lm/train.py --steps 400
    holdfast run --name two --ranks 2 -- python examples/torch_lm/train.py --steps 400   # with DDP
    python examples/torch_lm/train.py --steps 400    # one process, with nobody watching

The six lines marked (hf) are all that Holdfast asks of a training script. With the same seed, and
as many ranks, the parameters come out the same to the bit, whatever interrupts the run and however
often.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "lm"))  # the same text, in the same windows

import torch
from data import Windows, read_corpus
from model import Transformer, loss
from ranks import join_ranks

import holdfast as hf

EVAL_BATCHES = 16


def parser():
    p = argparse.ArgumentParser(description="train a small language model on real text")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--data", type=Path, help="a file or a folder (default: Python's own library)")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=160)
    p.add_argument("--heads", type=int, default=5)
    p.add_argument("--context", type=int, default=64, help="bytes that the model sees")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--eval-every", type=int, default=100)
    p.add_argument("--threads", type=int, default=2, help="CPU threads of a rank")
    p.add_argument("--out", type=Path, help="write the final parameters' checksum to this file")
    return p


def main():
    args = parser().parse_args()
    # A sum that is divided among threads depends on their number: the same in every attempt.
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    # (hf) joins the run that `holdfast run` started, or begins one of its own
    run = hf.start()

    torch.manual_seed(args.seed)
    model = Transformer(args.layers, args.width, args.heads)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_and_cosine(args.steps))
    torch.manual_seed(args.seed + 1 + run.rank)  # dropout is each rank's own
    parallel = join_ranks(model)

    def windows(text):
        shape = args.batch, args.context + 1
        return Windows(text, *shape, args.seed, rank=run.rank, ranks=run.world_size)

    corpus, held_out = read_corpus(args.data, args.context + 1)
    # (hf) what has a state, saved and restored in place; random generators go without saying
    run.track(model=model, optimizer=optimizer, schedule=schedule)
    # (hf) remembers how far the data were consumed, on each rank
    batches = run.data(windows(corpus))
    run.restore()  # (hf) the newest good checkpoint, if there is one

    losses = []
    for step in run.steps(args.steps):  # (hf) goes on with the step after the checkpoint's
        train_loss = loss(parallel, torch.from_numpy(next(batches)))
        optimizer.zero_grad()
        train_loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        # (hf) the boundary between two steps: recorded, and saved here when a save is due
        tokens, metrics = args.batch * args.context, {"loss": train_loss.detach()}
        run.done(step, ready=train_loss, tokens=tokens, metrics=metrics)

        losses.append(train_loss.item())
        if step % args.log_every == 0 or step == args.steps:
            say(run, f"step {step}/{args.steps}: loss {sum(losses) / len(losses):.3f}")
            losses.clear()
        if args.eval_every and step % args.eval_every == 0:
            with run.span("eval"):  # optional: this time is not training
                score = evaluate(model, windows(held_out))
            say(run, f"step {step}/{args.steps}: held-out loss {score:.3f}")

    if args.out and run.rank == 0:
        write_result(args.out, args.steps, model)


def say(run, words: str):
    """Of what rank 0 sees: its own rows of each batch."""
    if run.rank == 0:
        print(words, flush=True)


def warmup_and_cosine(steps: int):
    """The learning rate's factor at each step: up in a straight line, down along a cosine."""
    warmup = min(50, steps // 4)

    def factor(step):
        if step < warmup:
            return step / warmup
        return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2

    return factor


@torch.no_grad()
def evaluate(model, batches):
    """Mean loss over the first few batches."""
    model.eval()
    some = map(torch.from_numpy, itertools.islice(batches, EVAL_BATCHES))
    scores = [loss(model, batch).item() for batch in some]
    model.train()
    return sum(scores) / len(scores)


def write_result(path: Path, steps: int, model):
    """A checksum over every parameter's name, shape, type and bytes."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
    path.write_text(json.dumps({"steps": steps, "params_sha256": digest.hexdigest()}) + "\n")


if __name__ == "__main__":
    main()
