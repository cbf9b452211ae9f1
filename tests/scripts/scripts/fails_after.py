"""Leaves the loop early, and what comes after the training fails once: no step is done again."""

from pathlib import Path

from mishap import mishap

import holdfast as hf

failed = Path("failed")
run = hf.start()
state = run.restore(init=lambda: {"loss": 1.0})
print("from", run.resume_step)
steps = 0
for step in run.steps(1000):
    steps += 1
    state = {"loss": state["loss"] / 2}
    mishap(run, step)
    run.done(step, state)
    if state["loss"] < 0.01:
        break
run.finish()

if not failed.exists():
    failed.touch()
    raise OSError("the evaluation has no room")
print("final", steps, state["loss"] == 0.5**7)
