"""A JAX trainer on four devices, shared by however many ranks. Not a test itself.

Each of its arrays is cut in another way over a mesh of 2 × 2 devices, or 1 × 4, or transposed. The
update works on each element by itself, and the batch is global: so the numbers are the same to the
bit, however the devices are shared out.
"""

from __future__ import annotations

import hashlib
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import holdfast as hf

RANK, RANKS = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])


class Batches:
    """Global batches: the same on every rank, its position a number."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self):
        return self

    def __next__(self) -> np.ndarray:
        self.drawn += 1
        return np.random.default_rng(self.drawn).normal(size=8).astype(np.float32)

    def get_state(self) -> dict[str, int]:
        return {"drawn": self.drawn}

    def set_state(self, state: dict[str, int]) -> None:
        self.drawn = state["drawn"]


def init():
    grid = jnp.arange(64.0).reshape(8, 8)
    grids = {"both": grid, "rows": grid + 1, "columns": grid + 2, "whole": grid + 3}
    return {**grids, "count": jnp.asarray(0)}


def step_of(state, batch):
    moved = {name: state[name] * 0.5 + batch for name in ("both", "rows", "columns", "whole")}
    return {**moved, "count": state["count"] + 1}


def digest(state) -> str:
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(np.asarray(multihost_utils.process_allgather(state[name], tiled=True)).tobytes())
    return sha.hexdigest()[:12]


def main(until: int) -> None:
    run = hf.start()
    if RANKS > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(num_processes=RANKS, process_id=RANK)
    shape = tuple(map(int, os.environ["MESH"].split("x")))
    devices = np.array(jax.devices()).reshape(shape)
    mesh = Mesh(devices.T if os.environ.get("TRANSPOSED") else devices, ("a", "b"))
    specs = {"both": P("a", "b"), "rows": P("b"), "columns": P(None, "a"), "whole": P()}
    shardings = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}
    shardings["count"] = NamedSharding(mesh, P())
    rule = os.environ.get("RESHARD") or None
    data = run.data(Batches(), reshard=rule)
    state = run.restore(init=jax.jit(init, out_shardings=shardings))
    assert all(state[name].sharding == shardings[name] for name in shardings)
    print(f"from {run.resume_step} {digest(state)}", flush=True)
    update = jax.jit(step_of, donate_argnums=0, out_shardings=shardings)
    for step in run.steps(until):
        state = update(state, next(data))
        run.done(step, state)
    print(f"final {digest(state)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
