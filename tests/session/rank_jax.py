"""A rank that trains with jax.distributed on CPU, for tests of ranks without supervisor.

Each step sums over both processes, and checks that both are at the same step. Not a test itself.
`START`: hf.start `before` or `after` jax.distributed's initialisation, or `never` initialise.
`SIGTERM_AFTER_INITIALIZE`: this rank sends itself a SIGTERM as soon as JAX is initialised. For what
else a test may want see gates.py.
"""

from __future__ import annotations

import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
from gates import in_step, wait_for_permission
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import holdfast as hf

START = os.environ.get("START", "after")


def initialize() -> None:
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    if START != "never":
        jax.distributed.initialize(address, int(os.environ["SIZE"]), int(os.environ["NUMBER"]))
    if os.environ.get("SIGTERM_AFTER_INITIALIZE") == os.environ["NUMBER"]:
        os.kill(os.getpid(), signal.SIGTERM)


def main(until: int) -> None:
    if START == "before":
        run = hf.start()
        initialize()
    else:
        initialize()
        run = hf.start()
    rank = run.rank
    devices = np.array(jax.devices())
    split = NamedSharding(Mesh(devices, ("x",)), PartitionSpec("x"))
    whole = NamedSharding(Mesh(devices, ("x",)), PartitionSpec())
    summed = jax.jit(lambda parts: jnp.sum(parts, axis=0), out_shardings=whole)

    def over_all(mine: np.ndarray) -> np.ndarray:
        parts = jax.make_array_from_process_local_data(split, mine[None])
        return np.asarray(summed(parts))

    random = np.random.RandomState(rank)
    run.track(random=Random(random))
    data = run.data(iter(range(10_000_000)))
    state = run.restore(init=lambda: {"w": np.zeros(64, np.float32)})
    print(f"[{rank}] from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        gradient = random.random_sample(64) * (1 + next(data))
        told = over_all(np.append(gradient, step).astype(np.float32))
        assert told[-1] == step * jax.process_count(), f"ranks at different steps: {told[-1]}"
        state = {"w": state["w"] + told[:-1]}
        in_step(run, step)
        run.done(step, state)
        print(f"[{rank}] did {step}", flush=True)
    print(f"[{rank}] final {state['w'].tobytes().hex()[:16]}", flush=True)


class Random:
    """A generator of this rank's own."""

    def __init__(self, random: np.random.RandomState) -> None:
        self.random = random

    def get_state(self) -> dict[str, object]:
        name, keys, position, has_gauss, gauss = self.random.get_state()
        return {"name": name, "keys": keys, "at": position, "has": has_gauss, "gauss": gauss}

    def set_state(self, state: dict[str, object]) -> None:
        names = ("name", "keys", "at", "has", "gauss")
        self.random.set_state(tuple(state[name] for name in names))


if __name__ == "__main__":
    main(int(sys.argv[1]))
