"""A loop and checkpoints as a framework has them, joined to the run as an adapter does it.

It ends early, at step 10, and what comes after the training fails once.
"""

import json
import random
from pathlib import Path

from mishap import mishap

import holdfast as hf

run = hf.start()
loop = run.framework("checkpoints")
print("from", loop.resume_step)
total = 0.0
if loop.checkpoint is not None:
    with loop.restoring():
        total = json.loads((loop.checkpoint / "sum.json").read_text())
try:
    float(total)  # a framework may find only here that the state does not fit
except TypeError as error:
    loop.refused(error)
    raise
random.seed(7 if loop.checkpoint is None else 0)  # what a framework does as it starts
loop.begin(until=20)
is_over, steps = loop.is_over(), 0


def save(step):
    """The checkpoint of that step, as a framework writes it."""
    path = loop.folder / f"step-{step}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "sum.json").write_text(json.dumps(total))
    return path


for step in [] if is_over else range(loop.resume_step + 1, 11):
    mishap(run, step)
    steps += 1
    total += step * random.random()
    saves_itself = step == 4  # as frameworks may, beside what the run wants
    due = loop.due(step, saves_itself=saves_itself)
    loop.measured(step, {"total": total})
    loop.spent("data", 0.0)
    loop.begins("evaluate")
    loop.ends()
    if due.saves or saves_itself:
        try:
            with loop.saving():
                path = save(step)
            with loop.awaiting():
                pass  # of what a framework still writes beside the steps
            loop.saved(step, path)
        except OSError as error:
            loop.failed(step, error)
    if due.stops:
        loop.leave()
while loop.finishing():
    loop.saved(10, save(10))

if not Path("failed").exists():
    Path("failed").touch()
    raise OSError("the evaluation has no room")
print("final", steps, total)
