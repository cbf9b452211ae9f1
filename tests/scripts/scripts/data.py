"""Draws batches and random numbers, evaluates now and then, and names a checkpoint."""

import os
import random

from mishap import mishap

import holdfast as hf

random.seed(7)
run = hf.start()
told = []
data = run.data(range(4), epochs=25, set_epoch=told.append)
state = run.restore(init=lambda: {"sum": 0.0, "evaluated": []})
print("from", run.resume_step)
for step in run.steps(10):
    batch = next(data)
    state["sum"] += batch * random.random()
    if step % 4 == 0:
        with run.span("evaluation"):
            run.poll()
            state["evaluated"].append(step)
    if step == 8:
        run.save("eighth")
    mishap(run, step)
    run.done(step, state, tokens=32)

eighth = hf.load(f"{os.environ['HOLDFAST_STORE']}/{run.name}@eighth", only="evaluated/**")
print("final", repr(state["sum"]), state["evaluated"], eighth, told[-1], data.consumed)
