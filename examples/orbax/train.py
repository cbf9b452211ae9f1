"""A loop in JAX whose checkpoints are Orbax's; Holdfast is two lines of it."""

import hashlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

from holdfast.adapters.orbax import wrap

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
optimizer = optax.adamw(1e-3)


def init():
    """A linear model."""
    params = {"w": jnp.zeros((256, 256)), "b": jnp.zeros(256)}
    return {
        "params": params,
        "opt": optimizer.init(params),
        "key": jax.random.key_data(jax.random.key(0)),
    }


@jax.jit
def train_step(state):
    """Learns to reverse its inputs, from noise."""
    key, now = jax.random.split(jax.random.wrap_key_data(state["key"]))
    inputs = jax.random.normal(now, (1024, 256))

    def loss(params):
        return jnp.mean((inputs @ params["w"] + params["b"] - inputs[:, ::-1]) ** 2)

    grads = jax.grad(loss)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt, "key": jax.random.key_data(key)}


state = init()
manager = wrap(ocp.CheckpointManager(Path("checkpoints").absolute()), until=STEPS)
last = manager.latest_step()
if last is not None:
    state = manager.restore(last, args=ocp.args.StandardRestore(state))
for step in range(0 if last is None else last + 1, STEPS):
    state = train_step(state)
    manager.save(step, args=ocp.args.StandardSave(state))
manager.close()

digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)))
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
