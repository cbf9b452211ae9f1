"""Keeps its state in objects that are restored in place."""

import os

from mishap import mishap

import holdfast as hf


class Model:
    """As torch's modules and optimizers are."""

    weight = 1

    def state_dict(self):
        """All that must be kept."""
        return {"weight": self.weight}

    def load_state_dict(self, state):
        """Take it back."""
        self.weight = state["weight"]


run = hf.start()
model = Model()
run.track(model=model)
run.snapshot_safe(False)
run.restore()
print("from", run.resume_step)
for step in run.steps(10):
    with run.collective():
        model.weight = model.weight * 2 + step
    mishap(run, step)
    run.done(step)
    if step == 8:
        break
run.finish()

print("final", model.weight, hf.load(f"{os.environ['HOLDFAST_STORE']}/{run.name}"))
