"""Keeps another state at the end than it trained with, and notices the end inside a step."""

import os

from mishap import mishap

import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"w": 0.0, "mean": 0.0})
print("from", run.resume_step)
batches = [float(n) for n in range(1, 11)]
for step in run.steps(1000):
    if step > len(batches):
        break
    state["w"] += batches[step - 1]
    state["mean"] += state["w"] / len(batches)
    mishap(run, step)
    run.done(step, state)
run.finish({"w": state["mean"], "mean": 0.0})
run.finish()

print("final", hf.load(f"{os.environ['HOLDFAST_STORE']}/{run.name}")["w"])
