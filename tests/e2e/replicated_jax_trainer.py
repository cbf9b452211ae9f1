"""A data-parallel JAX trainer that kills itself, or whose replicas differ at once. Not a test.

Its weights and their momentum each rank holds whole, of a running mean each a part. `KILL`: steps
after each of which a rank kills itself, once; `FLIP`: the step after which a weight of rank 1
changes, once. `MARKS`: where it is remembered what was done.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from trainer import first_time

import holdfast as hf

WIDTH, LAYERS = 64, 6


def init():
    eye = [jnp.eye(WIDTH) * (1 + number) for number in range(LAYERS)]
    zeros = [jnp.zeros((WIDTH, WIDTH))] * LAYERS
    return {"weights": eye, "momentum": zeros, "mean": jnp.zeros((16, WIDTH))}


def step_of(state, batch):
    def loss_of(weights):
        hidden = batch
        for one in weights:
            hidden = jnp.tanh(hidden @ one)
        return jnp.mean(hidden**2)

    gradients = jax.grad(loss_of)(state["weights"])
    momentum = [0.9 * old + new for old, new in zip(state["momentum"], gradients, strict=True)]
    weights = [old - 0.1 * by for old, by in zip(state["weights"], momentum, strict=True)]
    return {"weights": weights, "momentum": momentum, "mean": 0.9 * state["mean"] + 0.1 * batch}


def flipped(array: jax.Array) -> jax.Array:
    """The same, but for a number of this process's replica."""
    (mine,) = (shard.data for shard in array.addressable_shards)
    return jax.make_array_from_single_device_arrays(
        array.shape, array.sharding, [mine.at[1, 2].add(1e-3)]
    )


def digest(arrays) -> str:
    data = b"".join(np.asarray(one.addressable_data(0)).tobytes() for one in arrays)
    return hashlib.sha256(data).hexdigest()[:16]


def main(steps: int) -> None:
    run = hf.start()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(num_processes=run.world_size, process_id=run.rank)
    mesh = Mesh(jax.devices(), ("ranks",))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("ranks"))
    shardings = {"weights": [whole] * LAYERS, "momentum": [whole] * LAYERS, "mean": cut}
    train_step = jax.jit(step_of, donate_argnums=0, out_shardings=shardings)
    state = run.restore(init=jax.jit(init, out_shardings=shardings))
    kills = os.environ.get("KILL", "").split(",")
    for step in run.steps(steps):
        rows = np.random.default_rng([step, run.rank]).normal(size=(8, WIDTH)).astype(np.float32)
        state = train_step(state, jax.make_array_from_process_local_data(cut, rows))
        jax.block_until_ready(state)
        if os.environ.get("FLIP") == str(step) and run.rank == 1 and first_time("flip"):
            state["weights"][3] = flipped(state["weights"][3])
        time.sleep(0.01)
        run.done(step, state)
        if str(step) in kills and run.rank == kills.index(str(step)) % 2 and first_time(str(step)):
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"final {digest(state['weights'])} own {digest([state['mean']])}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
