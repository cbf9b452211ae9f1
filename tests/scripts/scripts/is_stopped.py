"""Is asked to stop in the middle, saves, and is started again."""

import os
import signal
from pathlib import Path

from mishap import mishap

import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"sum": 0})
print("from", run.resume_step)
asked = Path("asked")
until = run.resume_step + 5 if asked.exists() else 10**9
try:
    for step in run.steps(until):
        if step == 9 and not asked.exists():
            asked.touch()
            os.kill(os.getpid(), signal.SIGTERM)
            while not run.stopping:
                run.poll()
        state["sum"] += step
        mishap(run, step)
        run.done(step, state)
except hf.Stop as stop:
    print("stopped:", stop.reason)
    raise

print("final", state["sum"] == sum(range(step + 1)))
