"""Trains with JAX, beside a mean that numpy keeps in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from mishap import mishap

import holdfast as hf

run = hf.start()


@functools.partial(run.compile, donate_argnums=0)
def train_step(w):
    """One step of training."""
    w = w * 0.9 + 0.1
    return w, jnp.sum(w)


def init():
    """What training starts with."""
    return {"w": jnp.zeros(3), "mean": np.zeros(1), "key": jax.random.key(0)}


state = run.restore(init=init)
print("from", run.resume_step)
for step in run.steps(10):
    state["w"], loss = train_step(state["w"])
    state["mean"] = state["mean"] + 1 / 3
    mishap(run, step)
    run.done(step, state, ready=loss)

print("final", state["w"].dtype, round(float(state["w"][0]), 4), state["mean"])
