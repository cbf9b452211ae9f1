"""A data-parallel training for `make_traces.py`. Argument: steps.

On four devices of a CPU, or on the GPUs that are there.
"""

import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import holdfast as hf

mesh = jax.make_mesh((jax.device_count(),), ("data",))
split = NamedSharding(mesh, PartitionSpec("data"))
whole = NamedSharding(mesh, PartitionSpec())


def loss(w, x):
    return jnp.square(jnp.tanh(x @ w["up"]) @ w["down"] - x).mean()


@jax.jit
def train_step(w, x):
    gradients = jax.grad(loss)(w, x)
    return jax.tree.map(lambda one, gradient: one - 0.1 * gradient, w, gradients)


def batches():
    while True:
        time.sleep(0.004)  # as a slow disk
        yield jax.device_put(jnp.ones((64, 256)), split)


run = hf.start()
w = run.restore(init=lambda: {"up": jnp.ones((256, 512)), "down": jnp.ones((512, 256))})
w = jax.device_put(w, whole)
data = iter(run.data(batches()))
for step in run.steps(int(sys.argv[1])):
    w = train_step(w, next(data))
    jax.block_until_ready(w)
    run.done(step, w)
