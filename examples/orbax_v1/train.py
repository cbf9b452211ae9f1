"""A loop in JAX whose checkpoints are those of Orbax v1; Holdfast is two lines of it."""

import hashlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint.experimental.v1 as ocp

from holdfast.adapters.orbax import wrap

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
optimizer = optax.adamw(1e-3)


@jax.jit
def train_step(state):
    """Learns to reverse its inputs, from noise."""
    key, now = jax.random.split(jax.random.wrap_key_data(state["key"]))
    inputs = jax.random.normal(now, (512, 256))
    grads = jax.grad(lambda w: jnp.mean((inputs @ w - inputs[:, ::-1]) ** 2))(state["w"])
    updates, opt = optimizer.update(grads, state["opt"], state["w"])
    w = optax.apply_updates(state["w"], updates)
    return {"w": w, "opt": opt, "key": jax.random.key_data(key)}


weights, first = jnp.zeros((256, 256)), 0
key = jax.random.key_data(jax.random.key(0))
state = {"w": weights, "opt": optimizer.init(weights), "key": key}
with wrap(ocp.training.Checkpointer(Path("checkpoints").absolute()), until=STEPS) as checkpointer:
    if checkpointer.latest is not None:
        first = checkpointer.latest.step + 1
        state = checkpointer.load(checkpointer.latest, state)
    for step in range(first, STEPS):
        state = train_step(state)
        checkpointer.save_async(step, state)

digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)))
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
