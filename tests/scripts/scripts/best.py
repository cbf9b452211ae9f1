"""Keeps the best by accuracy, the two newest, and the first of each five."""

import os

from mishap import mishap

import holdfast as hf

run = hf.start(keep=hf.Keep(last=2, every=5))
state = run.restore(init=lambda: {"step": 0})
print("from", run.resume_step)
for step in run.steps(12):
    state["step"] = step
    accuracy = 1 - abs(step - 7) / 10
    if step in (7, 11):
        run.best("accuracy", accuracy, mode="max")
    mishap(run, step)
    run.done(step, state)

place = f"{os.environ['HOLDFAST_STORE']}/{run.name}"
print("final", hf.load(place + "@best")["step"], hf.load(place)["step"])
