"""The end-to-end trainer, which can be held in each of its phases. Not a test itself."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).with_name("held"))]
import phase_hold  # noqa: E402

phase_hold.install()
phase_hold.reached("import")
sys.path[:0] = [str(Path(__file__).parent.with_name("e2e"))]
import trainer  # noqa: E402

STEP_S = 0.05  # until the fault: what is done beside the steps takes longer than such a small one


def compile_a_program() -> None:
    """What a traced function does, it does while it is compiled. JAX draws numbers of numpy's."""
    dice = trainer.np.random.get_state()
    import jax

    jax.jit(lambda x: phase_hold.reached("compile") or x + 1)(1.0)
    trainer.np.random.set_state(dice)


def hold(phase: str) -> None:
    """In the trainer's place."""
    if phase == "loop" and os.environ["HELD_COMPILES"]:
        compile_a_program()
    phase_hold.reached(phase)
    if phase == "step" and not Path(os.environ["HELD"], "go").exists():
        time.sleep(STEP_S)


if __name__ == "__main__":
    print(f"pid {os.getpid()}", flush=True)
    trainer.hold = hold
    trainer.main(int(sys.argv[1]))
