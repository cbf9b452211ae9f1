"""Pax's example with a ruler beside it: `--exp=pax_ruler.Ruled` writes a line a step to $RULER.

A line is the process, the step's number, and when it began and was over (seconds since 1970), by
Pax's own function, whatever ends the process.
"""

import json
import os
import time
from pathlib import Path

import jax
import tiny
from paxml import experiment_registry
from paxml.programs import BaseTrainProgram

STEP_S = 0.01  # so long at least: the rows of its log are written beside the steps, and come late
train = BaseTrainProgram.run
file = Path(os.environ["RULER"]).open("a", buffering=1)  # noqa: SIM115 - for as long as it trains


def measured(self, state, step):
    """Pax's own; the step is over when its loss is there."""
    start_s = time.time()
    done = train(self, state, step)
    time.sleep(STEP_S)
    jax.block_until_ready(done.loss)
    file.write(json.dumps([os.getpid(), done.new_train_step, start_s, time.time()]) + "\n")
    return done


BaseTrainProgram.run = measured


@experiment_registry.register
class Ruled(tiny.Tiny):
    """The example as it is."""
