"""Ranks that hold equal parameters, of which one flips a bit once. Not a test itself.

`FLIP`: a file; once it is there, rank 1 flips a bit after its next step, and writes to the file at
which step that was. Gates: see trainer.py.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
from trainer import wait_for_permission

import holdfast as hf


def flip_if_told(weights: np.ndarray, step: int) -> None:
    """What a bad memory chip does, once in a run."""
    file = Path(os.environ.get("FLIP", "/nowhere"))
    if os.environ["RANK"] == "1" and file.exists() and not file.read_text():
        weights.view(np.uint8)[5] ^= 1
        file.write_text(str(step))


def main(until: int) -> None:
    run = hf.start()
    state = run.restore(init=lambda: {"w": np.arange(1000.0)})
    print(f"from {run.resume_step}", flush=True)
    for step in run.steps(until):
        wait_for_permission(step)
        state["w"] = state["w"] * 1.0001 + step
        flip_if_told(state["w"], step)
        run.done(step, state)
        print(f"did {step}", flush=True)
    print(f"final {hashlib.sha256(state['w'].tobytes()).hexdigest()[:12]}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
