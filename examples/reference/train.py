"""Train a language model, with what makes a step fast as switches: the reference trainer.

    holdfast run --name fast -- python examples/reference/train.py --remat names
    holdfast run --name two --ranks 2 -- python examples/reference/train.py --fsdp 2
    python examples/reference/train.py --cpu-devices 8 --fsdp 2 --tensor 2    # nobody watches

It needs flax, grain, optax and qwix (`make reference` has them). The lines marked (hf) are all that
Holdfast asks of it. What each switch does: docs/how-to/program-goodput.md.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "lm"))  # the same text, and how ranks are joined

import jax
import jax.numpy as jnp
import numpy as np
import optax
from data import read_corpus
from jax.sharding import NamedSharding
from mesh import ROWS, grid, parts
from model import Config, first_params, loss, needed_flops, sample
from ranks import join_ranks
from text import batches

import holdfast as hf

EVAL_BATCHES = 8


def parser():
    p = argparse.ArgumentParser(description="train a language model, fast")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--data", type=Path, help="a file or a folder (default: Python's own library)")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--context", type=int, default=128, help="tokens that the model sees")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accumulate", type=int, default=1, help="parts that a batch is computed in")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--attention", choices=["xla", "splash", "local-global"], default="xla")
    p.add_argument("--window", type=int, default=512, help="how far back a local layer sees")
    p.add_argument("--global-every", type=int, default=4, help="of so many layers one sees all")
    p.add_argument("--remat", choices=["none", "full", "names", "offload"], default="none")
    p.add_argument("--quant", choices=["none", "int8", "fp8"], default="none")
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--fsdp", type=int, default=1, help="devices that share the parameters")
    p.add_argument("--tensor", type=int, default=1, help="devices that share each product")
    p.add_argument("--slices", type=int, default=1, help="of accelerators, joined by a network")
    p.add_argument("--cpu-devices", type=int, help="so many virtual devices, without accelerators")
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--eval-every", type=int, default=100)
    p.add_argument("--sample", type=int, default=0, metavar="N", help="write N tokens at the end")
    p.add_argument("--threads", type=int, default=2, help="CPU threads for XLA")
    p.add_argument("--jit-only", action="store_true", help="trace the step again at each restart")
    p.add_argument("--out", type=Path, help="write the final parameters' checksum to this file")
    return p


def main():
    args = parser().parse_args()
    # (hf) joins the run that `holdfast run` started, or begins one of its own
    run = hf.start()
    # XLA divides a sum among its threads, and floating point minds where: always the same number.
    os.environ["NPROC"] = str(args.threads)
    if args.cpu_devices:
        jax.config.update("jax_num_cpu_devices", args.cpu_devices)
    mesh = grid(join_ranks().devices, args.fsdp, args.tensor, args.slices)
    config = config_of(args)
    init_state, train_step, eval_loss = training(args, config)
    # (hf) optional: a restart finds the step compiled, and neither traces nor compiles it again
    train_step = jax.jit(train_step, donate_argnums=0)
    train_step = train_step if args.jit_only else run.compile(train_step)

    def drawn(text):
        shape = args.context + 1, args.batch
        return batches(text, *shape, args.seed, rank=run.rank, ranks=run.world_size)

    whole_batch = functools.partial(
        jax.make_array_from_process_local_data, NamedSharding(mesh, ROWS)
    )
    with run.span("data"):  # (hf) optional: the report tells it from imports
        corpus, held_out = read_corpus(args.data, (args.context + 1) * args.batch)
    # (hf) remembers how far grain has come; the position is right for any number of ranks
    data = run.data(drawn(corpus), reshard="same")
    with jax.set_mesh(mesh):
        # (hf) optional: what the model needs for a step, for program goodput. Said at each start,
        # whose switches may be others; and here, where a standby that waits has it behind it
        run.flops(needed_flops(config, args.batch, args.context))
        shardings = parts(mesh, jax.eval_shape(init_state))
        # (hf) the newest good checkpoint, on whatever mesh; init() only if there never was one
        state = run.restore(init=jax.jit(init_state, out_shardings=shardings))

        losses = []
        for step in run.steps(args.steps):  # (hf) goes on with the step after the checkpoint's
            state, train_loss = train_step(state, whole_batch(next(data)))
            # (hf) the boundary between two steps: recorded, and saved here when a save is due
            tokens, metrics = args.batch * args.context, {"loss": train_loss}
            run.done(step, state, ready=train_loss, tokens=tokens, metrics=metrics)

            losses.append(train_loss)
            if step % args.log_every == 0 or step == args.steps:
                say(run, f"step {step}/{args.steps}: loss {np.mean(losses):.4f}")
                losses.clear()
            if args.eval_every and step % args.eval_every == 0:
                with run.span("eval"):  # optional: this time is not training
                    some = map(whole_batch, itertools.islice(drawn(held_out), EVAL_BATCHES))
                    score = np.mean([eval_loss(state["params"], batch) for batch in some])
                say(run, f"step {step}/{args.steps}: held-out loss {score:.4f}")

        if args.sample:
            start = np.frombuffer(b"def ", np.uint8).astype(np.int32)
            tokens = sample(state["params"], config, start, args.sample, args.context, args.seed)
            say(run, bytes(np.asarray(tokens).astype(np.uint8)).decode(errors="replace"))
    if args.out:
        write_result(args.out, run, args.steps, state["params"])


def say(run, words: str):
    """Every rank knows the same; one of them tells it."""
    if run.rank == 0:
        print(words, flush=True)


def config_of(args) -> Config:
    names = Config.__dataclass_fields__
    return Config(**{name: value for name, value in vars(args).items() if name in names})


def training(args, config: Config):
    """(init_state, train_step, eval_loss): the first state, a step, and the loss alone, jitted."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.lr, warmup_steps=min(50, args.steps // 4), decay_steps=args.steps
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1)
    )

    seed, pieces = args.seed, args.accumulate  # run.compile does not look into `args`

    def init_state():
        params = first_params(config, seed)
        return {"params": params, "optimizer": optimizer.init(params)}

    def train_step(state, batch):
        value, grads = mean_gradient(state["params"], batch, config, pieces)
        updates, optimizer_state = optimizer.update(grads, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state}, value

    return init_state, train_step, jax.jit(functools.partial(loss, config=config))


def mean_gradient(params, batch, config: Config, parts: int):
    """Loss and gradient of a batch [B, T + 1], computed in `parts` parts one after the other."""
    gradient = jax.value_and_grad(loss)
    if parts == 1:
        return gradient(params, batch, config)
    # Row r is of part r % parts, so that each part has rows of every device.
    pieces = batch.reshape(-1, parts, batch.shape[1]).swapaxes(0, 1)

    def add(total, piece):
        return jax.tree.map(jnp.add, total, gradient(params, piece, config)), None

    zero = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    total, _ = jax.lax.scan(add, zero, pieces)
    return jax.tree.map(lambda a: a / parts, total)


def write_result(path: Path, run, steps: int, params):
    """A checksum over every parameter's place in the tree, shape, type and bytes, by each rank."""
    digest = hashlib.sha256()
    for place, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.asarray(jax.experimental.multihost_utils.process_allgather(leaf, tiled=True))
        digest.update(f"{jax.tree_util.keystr(place)} {array.shape} {array.dtype}\n".encode())
        digest.update(array.tobytes())
    if run.rank == 0:
        path.write_text(json.dumps({"steps": steps, "params_sha256": digest.hexdigest()}) + "\n")


if __name__ == "__main__":
    main()
