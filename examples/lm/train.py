"""Train a small language model on real text. Reads from top to bottom in one sitting.

    holdfast run --name my-run -- python examples/lm/train.py --steps 400
    holdfast run --name two --ranks 2 -- python examples/lm/train.py --steps 400   # data parallel
    python examples/lm/train.py --steps 400          # one process, with nobody watching

The five lines marked (hf) are all that Holdfast asks of a training script. With the same seed, and
as many ranks, the parameters come out the same to the bit, whatever interrupts the run and however
often.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
from pathlib import Path

import jax
import numpy as np
import optax
from data import Windows, read_corpus
from jax.sharding import NamedSharding, PartitionSpec
from model import Config, init, loss
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
    p.add_argument("--threads", type=int, default=2, help="CPU threads for XLA")
    p.add_argument("--out", type=Path, help="write the final parameters' checksum to this file")
    p.add_argument("--fail-at", nargs=2, metavar=("STEP", "MARKER"),
                   help="crash at STEP unless the file MARKER exists, and create it")  # fmt: skip
    return p


def main():
    args = parser().parse_args()
    # (hf) joins the run that `holdfast run` started, or begins one of its own
    run = hf.start()
    init_state, train_step, eval_loss = training(args)
    # optional: a restart finds the step compiled, and neither traces nor compiles it again
    train_step = run.compile(train_step)

    # One program on the devices of all ranks: the state is on each of them, the batch is split.
    mesh = join_ranks()
    init_state = jax.jit(init_state, out_shardings=NamedSharding(mesh, PartitionSpec()))
    by_rows = NamedSharding(mesh, PartitionSpec("rows"))
    whole_batch = functools.partial(jax.make_array_from_process_local_data, by_rows)

    def windows(text):
        shape = args.batch, args.context + 1
        return Windows(text, *shape, args.seed, rank=run.rank, ranks=run.world_size)

    corpus, held_out = read_corpus(args.data, args.context + 1)
    # (hf) remembers how far the data were consumed; the same for any number of ranks
    batches = run.data(windows(corpus), reshard="same")
    # (hf) the newest good checkpoint; init_state() only if there never was one
    state = run.restore(init=init_state)

    losses = []
    for step in run.steps(args.steps):  # (hf) goes on with the step after the checkpoint's
        state, train_loss = train_step(state, whole_batch(next(batches)))
        if args.fail_at and step == int(args.fail_at[0]):
            fail_once(step, Path(args.fail_at[1]))
        # (hf) the boundary between two steps: recorded, and saved here when a save is due
        tokens, metrics = args.batch * args.context, {"loss": train_loss}
        run.done(step, state, ready=train_loss, tokens=tokens, metrics=metrics)

        losses.append(train_loss)
        if step % args.log_every == 0 or step == args.steps:
            say(run, f"step {step}/{args.steps}: loss {np.mean(losses):.3f}")
            losses.clear()
        if args.eval_every and step % args.eval_every == 0:
            with run.span("eval"):  # optional: this time is not training
                score = evaluate(eval_loss, state["params"], map(whole_batch, windows(held_out)))
            say(run, f"step {step}/{args.steps}: held-out loss {score:.3f}")

    if args.out and run.rank == 0:
        write_result(args.out, args.steps, state["params"])


def say(run, words: str):
    """Every rank knows the same; one of them tells it."""
    if run.rank == 0:
        print(words, flush=True)


def training(args):
    """(init_state, train_step, eval_loss): the first state, and the two compiled functions."""
    # XLA divides a sum among its threads, and floating point minds where: the same number of
    # threads in every attempt, even if this one is allowed fewer cores than the last.
    os.environ["NPROC"] = str(args.threads)
    config = Config(args.layers, args.width, args.heads)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.lr, warmup_steps=min(50, args.steps // 4), decay_steps=args.steps
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1)
    )

    def init_state():
        params = init(args.seed, config)
        key = jax.random.key(args.seed)  # for dropout
        return {"params": params, "optimizer": optimizer.init(params), "key": key}

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        key, dropout_key = jax.random.split(state["key"])
        value, grads = jax.value_and_grad(loss)(state["params"], batch, config, dropout_key)
        updates, optimizer_state = optimizer.update(grads, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state, "key": key}, value

    return init_state, train_step, jax.jit(functools.partial(loss, config=config))


def evaluate(eval_loss, params, batches):
    """Mean loss over the first few batches."""
    return np.mean([eval_loss(params, batch) for batch in itertools.islice(batches, EVAL_BATCHES)])


def write_result(path: Path, steps: int, params):
    """A checksum over every parameter's place in the tree, shape, type and bytes."""
    digest = hashlib.sha256()
    for place, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(place)} {array.shape} {array.dtype}\n".encode())
        digest.update(array.tobytes())
    path.write_text(json.dumps({"steps": steps, "params_sha256": digest.hexdigest()}) + "\n")


def fail_once(step: int, marker: Path):
    """A crash for the demonstration: in the first attempt that gets here, and in no later one."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    raise RuntimeError(f"a failure on purpose at step {step}")


if __name__ == "__main__":
    main()
