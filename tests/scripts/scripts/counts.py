"""Says how many FLOPs a step has, twice in different words; the later one counts."""

from mishap import mishap

import holdfast as hf
from holdfast.program import Flops

run = hf.start(flops=1e9)
state = run.restore(init=lambda: {"w": 0.0})
print("from", run.resume_step)
for step in run.steps(6):
    state["w"] += step
    mishap(run, step)
    run.flops(Flops(2 * 10**9, 3 * 10**9), tokens=10, dtype="fp16")
    run.done(step, state, tokens=10 * step)

print("final", state["w"])
