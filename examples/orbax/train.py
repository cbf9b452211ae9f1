"""A loop in JAX whose checkpoints are Orbax's, on one rank or several; Holdfast is two lines."""

import hashlib
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast.adapters.orbax import wrap

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
if (ranks := int(os.environ.get("JAX_NUM_PROCESSES", "1"))) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(num_processes=ranks, process_id=int(os.environ["JAX_PROCESS_ID"]))
mesh = Mesh(jax.devices(), ("data",))
whole, parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
optimizer = optax.adamw(1e-3)


def init():
    """A linear model."""
    params = {"w": jnp.zeros((256, 256)), "b": jnp.zeros(256)}
    opt, key = optimizer.init(params), jax.random.key_data(jax.random.key(0))
    return {"params": params, "opt": opt, "key": key}


def train_step(state):
    """Learns to reverse its inputs, from noise."""
    key, now = jax.random.split(jax.random.wrap_key_data(state["key"]))
    inputs = jax.lax.with_sharding_constraint(jax.random.normal(now, (1024, 256)), parts)

    def loss(params):
        return jnp.mean((inputs @ params["w"] + params["b"] - inputs[:, ::-1]) ** 2)

    updates, opt = optimizer.update(jax.grad(loss)(state["params"]), state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt, "key": jax.random.key_data(key)}


train_step = jax.jit(train_step, out_shardings=whole)
state = jax.jit(init, out_shardings=whole)()
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
