"""TensorFlow 2, a loop of your own around a `tf.train.Checkpoint`.

    loop = TensorFlowLoop(checkpoint, "checkpoints", until=1000)
    for step in loop.steps():
        train_step(next(batches))

TensorFlow saves and restores what the checkpoint tracks: variables, the optimizer, generators
(`tf.random.Generator`), and an iterator of tf.data, with what is in its buffers. The seeds of
Keras's layers, which it leaves out, are in the set beside it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from holdfast.adapters.newer import say_newest
from holdfast.adapters.run_names import RunNames
from holdfast.adapters.seeds import Seeds
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.start import start

TRIED = ("2.21", "2.21")
PREFIX = "ckpt"  # of the files in a checkpoint's folder


class TensorFlowLoop:
    """Goes through the steps that are still to do; saves and stops as the run says.

    `folder`: where the checkpoints are written, named as in `run_names`; those of this run that it
    keeps no more are removed. Data whose iterator TensorFlow cannot save go through
    `loop.run.data(dataset)` before `steps`: what was drawn before is drawn again.
    """

    def __init__(
        self, checkpoint: Any, folder: str | os.PathLike[str], *, until: int, **how: Any
    ) -> None:
        """`checkpoint`: a `tf.train.Checkpoint`. `until`: the last step. `how`: of `hf.start`."""
        check_version("TensorFlow", tf.__version__, TRIED)
        self.run = start(**how)
        if self.run.world_size > 1:
            raise ConfigurationError(
                f"the run has {self.run.world_size} ranks, which would all write the same "
                "checkpoint: a TensorFlowLoop is of one process"
            )
        models = [one for one in vars(checkpoint).values() if hasattr(one, "weights")]
        self.run.track(seeds=Seeds([one for one in models if hasattr(one, "variables")]))
        self._checkpoint = checkpoint
        self._folder = folder
        self._until = until
        self._is_ended = False
        self._names = RunNames(self.run)

    def steps(self) -> Iterator[int]:
        """Restores, then gives the numbers of the steps, from 1. Raises Stop when a stop counts."""
        own = self._names.own
        loop = self.run.framework(self._folder, own=own)
        say_newest(self.run.name, loop.folder, own, loop.resume_step)
        if loop.checkpoint is not None:
            with loop.restoring():
                status = self._checkpoint.read(str(loop.checkpoint / PREFIX))
                status.assert_existing_objects_matched()
        loop.begin(until=self._until)
        self._is_ended = loop.is_over()
        step = loop.resume_step
        while step < self._until and not self._is_ended:
            step += 1
            yield step
            due = loop.due(step)
            if due.saves:
                self._save(loop, step)
            if due.stops:
                loop.leave()
        while loop.finishing():
            self._save(loop, step)

    def end(self) -> None:
        """The step that is under way is the last one, and not `until`; the loop ends by itself."""
        self._is_ended = True

    def _save(self, loop: FrameworkLoop, step: int) -> None:
        path = self._names.place(loop.folder, step)
        try:
            with loop.saving():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir(parents=True)
                self._checkpoint.write(str(path / PREFIX))
        except (OSError, tf.errors.OpError) as error:
            loop.failed(step, error)
        else:
            loop.saved(step, path)
