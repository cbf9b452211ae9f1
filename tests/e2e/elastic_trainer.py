"""A trainer whose numbers do not depend on how many ranks there are. Not a test itself.

All ranks hold the same parameters, and draw the same global batches. Gates: see trainer.py.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
from trainer import batches, save_if_told, wait_for_permission

import holdfast as hf


def final(steps: int) -> str:
    """What it prints at its end: the same arithmetic, with no Holdfast near it."""
    weights = np.zeros(256)
    for number in range(steps):
        weights = update(weights, np.full(256, float(number)))
    return digest(weights)


def update(weights: np.ndarray, batch: np.ndarray) -> np.ndarray:
    return weights * 0.99 + np.sin(batch)


def digest(weights: np.ndarray) -> str:
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


def main(until: int) -> None:
    run = hf.start()
    data = run.data(batches(), reshard="same")
    state = run.restore(init=lambda: {"weights": np.zeros(256)})
    print(f"from {run.resume_step} of {run.world_size}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        state["weights"] = update(state["weights"], next(data))
        save_if_told(run, step, every_rank=True)
        run.done(step, state)
        print(f"did {step}", flush=True)
    print(f"final {digest(state['weights'])}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
