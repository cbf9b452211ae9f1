"""Looks at what was recorded, when it is over."""

from mishap import mishap

import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"sum": 0})
print("from", run.resume_step)
first = run.resume_step
for step in run.steps(10, base=0):
    assert step >= first, "counted from 0: the next one has the number of the steps done"
    state["sum"] += step
    mishap(run, step + 1)
    run.done(step, state, metrics={"sum": state["sum"]})
run.close()
run.close()

look = hf.look(run.name)
for chart in (look.timeline(), look.badput(), look.step_times()):
    assert chart.to_dict()
assert run.attempt == (1 if first else 0)
print("final", state["sum"], run.name, f"{run.rank} of {run.world_size}")
