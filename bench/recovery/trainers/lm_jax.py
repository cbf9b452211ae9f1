"""What the JAX scripts of the race share: the model of examples/lm, its data, one step."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "examples" / "lm")]
sys.path.append(str(ROOT / "bench" / "recovery"))
# Two ranks share two cores; a rank that takes both would only wait for the other one's.
os.environ["NPROC"] = "1"

import jax
import optax
from data import Windows, read_corpus
from jax.sharding import NamedSharding, PartitionSpec
from model import Config, init, loss
from ruler import Stamps, boot_ns


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
    p.add_argument("--compiled", action="store_true", help="the step through run.compile")
    return p.parse_args()


class Training:
    """The compiled functions and the data of one rank, on the mesh of all ranks' devices."""

    def __init__(self, args: argparse.Namespace, mesh: jax.sharding.Mesh, rank: int, ranks: int):
        config = Config(args.layers, args.width, args.heads)
        optimizer = optax.adamw(1e-3, weight_decay=0.1)
        self.whole = NamedSharding(mesh, PartitionSpec())
        by_rows = NamedSharding(mesh, PartitionSpec("rows"))
        self.whole_batch = functools.partial(jax.make_array_from_process_local_data, by_rows)

        def init_state() -> Any:
            params, key = init(0, config), jax.random.key_data(jax.random.key(0))
            return {"params": params, "optimizer": optimizer.init(params), "key": key}

        @functools.partial(jax.jit, donate_argnums=0)
        def train_step(state: Any, batch: Any) -> Any:
            key, dropout_key = jax.random.split(jax.random.wrap_key_data(state["key"]))
            value, grads = jax.value_and_grad(loss)(state["params"], batch, config, dropout_key)
            updates, optimizer_state = optimizer.update(grads, state["optimizer"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            key = jax.random.key_data(key)
            return {"params": params, "optimizer": optimizer_state, "key": key}, value

        self.init_state = jax.jit(init_state, out_shardings=self.whole)
        self.train_step = train_step
        corpus, _ = read_corpus(args.data, args.context + 1)
        shape = args.batch * ranks, args.context + 1
        self.batches = Windows(corpus, *shape, 0, rank=rank, ranks=ranks)
        self.stamps = Stamps(args.stamps, rank)

    def step(self, state: Any) -> tuple[Any, Any]:
        """One optimizer step, waited for: (state, loss)."""
        batch = next(self.batches)
        self.since_ns = boot_ns()
        state, value = self.train_step(state, self.whole_batch(batch))
        value.block_until_ready()
        return state, value

    def did(self, number: int) -> None:
        """The step's line: when the loop has let go of the old state, whose arrays take a while."""
        self.stamps.step(number, self.since_ns)
