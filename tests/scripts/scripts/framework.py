"""A loop and checkpoints as a framework has them, joined to the run as an adapter does it."""

import json
import random

from mishap import mishap

import holdfast as hf

run = hf.start()
loop = run.framework("checkpoints")
print("from", loop.resume_step)
total = 0.0 if loop.checkpoint is None else json.loads((loop.checkpoint / "sum.json").read_text())
random.seed(7 if loop.checkpoint is None else 0)  # what a framework does as it starts
loop.begin(until=10)


def save(step):
    """The checkpoint of that step, as a framework writes it."""
    path = loop.folder / f"step-{step}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "sum.json").write_text(json.dumps(total))
    return path


for step in range(loop.resume_step + 1, 11):
    mishap(run, step)
    total += step * random.random()
    due = loop.due(step)
    loop.measured(step, {"total": total})
    loop.spent("evaluate", 0.0)
    if due.saves:
        try:
            with loop.saving():
                path = save(step)
            loop.saved(step, path)
        except OSError as error:
            loop.failed(step, error)
    if due.stops:
        loop.leave()
while loop.finishing():
    loop.saved(10, save(10))

print("final", total)
