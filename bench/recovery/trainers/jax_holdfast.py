"""JAX with Holdfast: the five lines of examples/lm, and nothing tuned."""

from __future__ import annotations

from lm_jax import Training, arguments
from ranks import join_ranks

import holdfast as hf


def main() -> None:
    args = arguments()
    run = hf.start()
    training = Training(args, join_ranks(), run.rank, run.world_size)
    if args.compiled:
        training.train_step = run.compile(training.train_step)
    training.batches = run.data(training.batches)
    state = run.restore(init=training.init_state)
    begun = False
    for step in run.steps(args.steps):
        if not begun:
            training.stamps.begin(step - 1)
            begun = True
        state, _ = training.step(state)  # waited for: nothing to be `ready` later
        training.did(step)
        run.done(step, state)


if __name__ == "__main__":
    main()
