"""What bench/preload.py starts: imports, a restore, the first data, a program to compile, steps."""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize  # type: ignore[import-untyped]  # noqa: F401 - as trainers have more

import holdfast as hf

LAYERS = 8


@jax.jit  # type: ignore[untyped-decorator]
def step_of(w: jax.Array, x: float) -> jax.Array:
    for _ in range(4):
        w = jnp.tanh(w * x + jnp.roll(w, 1))
    return w


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data", required=True)
    p.add_argument("--data-mb", type=int, required=True)
    p.add_argument("--state-mb", type=int, required=True)
    args = p.parse_args()
    run = hf.start()

    def init() -> dict[str, object]:
        rows = args.state_mb * 1_000_000 // (4 * 1024 * LAYERS)
        return {"layers": [np.ones((rows, 1024), np.float32) for _ in range(LAYERS)],
                "w": jnp.ones(1024)}  # fmt: skip

    state = run.restore(init=init)
    with run.span("data"):
        first = float(np.fromfile(args.data, np.uint8, args.data_mb * 1_000_000)[::4096].mean())
    for step in run.steps(10**6):
        state["w"] = step_of(state["w"], first)
        state["w"].block_until_ready()
        run.done(step, state)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
