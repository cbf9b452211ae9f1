"""PyTorch with Holdfast: the six lines of examples/torch_lm, and nothing tuned."""

from __future__ import annotations

from lm_torch import Training, arguments, join

import holdfast as hf


def main() -> None:
    args = arguments()
    run = hf.start()
    training = Training(args, run.rank, run.world_size)
    join(training, args, run.world_size)
    run.track(model=training.model, optimizer=training.optimizer)
    training.batches = run.data(training.batches)
    run.restore()
    begun = False
    for step in run.steps(args.steps):
        if not begun:
            training.stamps.begin(step - 1)
            begun = True
        training.step(step)  # its result is there: nothing to be `ready` later
        run.done(step)


if __name__ == "__main__":
    main()
