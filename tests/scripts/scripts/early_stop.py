"""Leaves the loop when the loss is low enough; the state of the last step is kept."""

import os

from mishap import mishap

import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"loss": 1.0})
print("from", run.resume_step)
for step in run.steps(1000):
    state = {"loss": state["loss"] / 2}
    mishap(run, step)
    run.done(step, state)
    if state["loss"] < 0.01:
        break
run.finish()

kept = hf.load(f"{os.environ['HOLDFAST_STORE']}/{run.name}")
print("final", step, kept["loss"] == state["loss"] == 0.5**7)
