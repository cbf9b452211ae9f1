"""A small network with dropout, trained by Keras's `fit`; Holdfast is two lines of it."""

import hashlib
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")  # or torch, or tensorflow

import jax
import keras
import numpy as np

from holdfast.adapters.keras import KerasCallback

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
BATCHES = 50  # of an epoch

ranks, rank = (int(os.environ.get(f"JAX_{one}", "0")) for one in ("NUM_PROCESSES", "PROCESS_ID"))
if ranks > 1:  # with JAX alone
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(num_processes=ranks, process_id=rank)
    parallel = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(parallel)
holdfast = KerasCallback("checkpoints")
keras.utils.set_random_seed(0)
x = np.random.default_rng(1 + rank).standard_normal((32 * BATCHES, 64), np.float32)
y = x.sum(1)
layers = [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dropout(0.1)]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
model.compile("adamw", "mse", metrics=["mae"])
model.fit(x, y, epochs=STEPS // BATCHES, callbacks=[holdfast], verbose=0)

digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights()))
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
