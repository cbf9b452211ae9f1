"""Meets a bad batch, goes back to a checkpoint it has named, and passes over it."""

from mishap import mishap

import holdfast as hf

run = hf.start()
data = run.data(iter(range(1, 100)))
state = run.restore(init=lambda: {"seen": []})
print("from", run.resume_step)
for step in run.steps(6):
    batch = next(data)
    if batch == 6:
        run.fail("batch 6 cannot be read", rollback_to="good", skip_batches=3)
    state["seen"].append(batch)
    if step == 3:
        run.save("good", wait=True)
    mishap(run, step)
    run.done(step, state)

print("final", state["seen"])
