"""A data-parallel JAX trainer that a test can hold and release. Not a test itself.

Its state has all that ranks can share: parameters that each holds whole, a momentum of which each
holds a part, a key, a count. Its data and its noise are each rank's own. After every step it prints
the step's digest, which no two different histories share. Gates: see trainer.py.
"""

from __future__ import annotations

import hashlib
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from trainer import crash_if_told, hold, save_if_told, wait_for_permission

import holdfast as hf

RANK, RANKS = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])


class Batches:
    """Two rows a step, other ones on each rank; it knows its own position."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self):
        return self

    def __next__(self) -> np.ndarray:
        self.drawn += 1
        rows = np.random.default_rng([RANK, self.drawn]).normal(size=(2, 8))
        return (rows + np.random.random()).astype(np.float32)

    def get_state(self) -> dict[str, int]:
        return {"drawn": self.drawn, "rank": RANK}

    def set_state(self, state: dict[str, int]) -> None:
        assert state["rank"] == RANK, "another rank's data"
        self.drawn = state["drawn"]


def init():
    return {
        "weights": jnp.ones((8, 4)),
        "momentum": jnp.zeros((8, 4)),
        "key": jax.random.key(5),
        "count": jnp.asarray(0),
    }


def step_of(state, batch):
    key, use = jax.random.split(state["key"])

    def loss_of(weights):
        return jnp.mean((jnp.tanh(batch @ weights) - jax.random.normal(use, (4,))) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(state["weights"])
    momentum = 0.9 * state["momentum"] + gradient
    weights = state["weights"] - 0.1 * momentum
    return {"weights": weights, "momentum": momentum, "key": key, "count": state["count"] + 1}, loss


def digest(state) -> str:
    """Of what this rank holds of everything."""
    sha = hashlib.sha256(str(np.random.get_state()[1:3]).encode())
    for leaf in jax.tree.leaves({**state, "key": jax.random.key_data(state["key"])}):
        for shard in leaf.addressable_shards:
            sha.update(np.asarray(shard.data).tobytes())
    return sha.hexdigest()[:12]


def main(until: int) -> None:
    np.random.seed(RANK)
    hold("start")
    run = hf.start()
    print("started", flush=True)
    hold("join")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(num_processes=RANKS, process_id=RANK)
    print("initialized", flush=True)
    mesh = Mesh(jax.devices(), ("ranks",))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("ranks"))
    shardings = {"weights": whole, "momentum": cut, "key": whole, "count": whole}
    train_step = jax.jit(step_of, donate_argnums=0, out_shardings=(shardings, whole))

    data = run.data(Batches())
    state = run.restore(init=jax.jit(init, out_shardings=shardings))
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        hold("step")
        crash_if_told(step)
        save_if_told(run, step)
        batch = jax.make_array_from_process_local_data(cut, next(data))
        print(f"begins {step}", flush=True)
        state, loss = train_step(state, batch)
        float(loss)  # the collective: it waits for all ranks
        run.done(step, state, ready=loss)
        print(f"did {step} {digest(state)}", flush=True)
    print(f"final {digest(state)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
