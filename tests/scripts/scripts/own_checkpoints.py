"""Writes checkpoints of its own when one is due."""

import json
from pathlib import Path

from mishap import mishap

import holdfast as hf

mine = Path("mine.json")
saved = json.loads(mine.read_text()) if mine.exists() else {"step": 0, "sum": 0}
total = saved["sum"]


def commit(step):
    """Returns when it is durable."""
    draft = mine.with_suffix(".new")
    draft.write_text(json.dumps({"step": step, "sum": total}))
    draft.replace(mine)


run = hf.start()
print("from", saved["step"])
for step in run.steps(10, after=saved["step"]):
    total += step
    mishap(run, step)
    run.done(step, commit=commit)

print("final", mine.read_text())
