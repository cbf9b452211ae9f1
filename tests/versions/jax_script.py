"""A short training in JAX for `make versions`. Arguments: steps, the step at which it is killed.

It is killed once: the file `killed` says that it was. Prints "tracing" whenever the step is traced,
and a digest of the final state, which does not depend on interruptions.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import holdfast as hf

until, kill_at, killed = int(sys.argv[1]), int(sys.argv[2]), Path("killed")
run = hf.start()
optimizer = optax.adamw(1e-2)


def init():
    params = {"w": jnp.linspace(-1, 1, 32).reshape(8, 4), "b": jnp.zeros(4, jnp.bfloat16)}
    return {"params": params, "opt": optimizer.init(params), "key": jax.random.key(7)}


@jax.jit
def train_step(state, rows):
    print("tracing")
    key, use = jax.random.split(state["key"])

    def loss_of(params):
        y = jnp.tanh(rows @ params["w"]) + params["b"].astype(jnp.float32)
        return jnp.mean((y + jax.random.normal(use, (4,))) ** 2)

    grads = jax.grad(loss_of)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt, "key": key}


compiled_step = run.compile(train_step)
state = run.restore(init=init)
print("resumed at", run.resume_step)
for step in run.steps(until):
    state = compiled_step(state, jnp.full((2, 8), step / 7))
    if step == kill_at - 2:
        run.save(wait=True)
    if step == kill_at and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    run.done(step, state)

leaves = jax.tree_util.tree_leaves(state | {"key": jax.random.key_data(state["key"])})
print("final", hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in leaves)).hexdigest()[:16])
