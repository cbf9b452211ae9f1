"""Keras 3, on JAX, PyTorch or TensorFlow: a callback.

    model.fit(x, y, epochs=10, callbacks=[KerasCallback("checkpoints")])

Keras saves and loads: `save_weights` with the optimizer, and with TensorFlow the iterator of
tf.data. `fit` goes on within the epoch (keras_epoch.py). Kept beside Keras's file is what that
leaves out: seeds, the epoch's metrics, and the random generators as the epoch began.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import keras

from holdfast.adapters.keras_epoch import EpochPlace
from holdfast.adapters.keras_processes import check_processes, of_the_first, sync
from holdfast.adapters.newer import say_newest
from holdfast.adapters.run_names import RunNames
from holdfast.adapters.seeds import assign, seeds_of
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.start import start

T = TypeVar("T")

TRIED = ("3.10", "3.15")
WEIGHTS = "model.weights.h5"


class KerasCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves when Holdfast wants it, and stops with code 75 when that was a stop.

    A step is one call of the model's train function. `folder`: where the checkpoints are written,
    named as in `run_names`; those of this run that it keeps no more are removed. Make it before the
    model: the processes that stand by wait here. Raises as `Run.framework` does.
    """

    def __init__(self, folder: str | os.PathLike[str], **how: Any) -> None:
        """`how`: of `holdfast.start`."""
        super().__init__()
        check_version("Keras", keras.__version__, TRIED)
        self._backend = keras.backend.backend()
        self.run = start(**how)
        self._processes, self._process = check_processes(self._backend, self.run.world_size)
        self._kept: dict[str, Any] | None = None
        self.run.track(keras=self)
        self._names = RunNames(self.run)
        self._loop: FrameworkLoop = self.run.framework(folder, own=self._names.own)
        self._step = self._loop.resume_step
        say_newest(self.run.name, self._loop.folder, self._names.own, self._step)
        self._place = EpochPlace(self._backend)
        self._rate: float | None = None  # of the step that is gone on from

    @property
    def initial_epoch(self) -> int:
        """The epoch that `fit` goes on in; it is told, unless Keras has another way by now."""
        return self._kept["epoch"] if self._kept else 0

    def data(self, batches: Iterator[T]) -> Iterator[T]:
        """For a generator from which all epochs draw (`steps_per_epoch`), with any backend.

        What earlier epochs drew is drawn again, here.
        """
        earlier = self._kept["earlier"] if self._kept else 0
        if sum(1 for _ in islice(batches, earlier)) < earlier:
            raise ConfigurationError(f"the data ended before its batch {earlier}: is it the same?")
        return batches

    def state_dict(self) -> dict[str, Any]:
        """A part of the set: where in which epoch, and what is in none of Keras's files."""
        earlier = (self._step - self._place.calls) * self.model.steps_per_execution
        seeds = [keras.ops.convert_to_numpy(one) for one in seeds_of(self.model)]
        return {**self._place.state_dict(), "earlier": earlier, "seeds": seeds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Here, as the callback is made; there is a model only when `fit` begins."""
        self._kept = state

    # --- fit --------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """`fit` has made the train function, and looks for the first epoch right after this."""
        if self._loop.checkpoint is not None and self._kept is not None:
            self._load(self._loop.checkpoint, self._kept)
            self._place.go_on(self._kept, self._loop.checkpoint)
            if hasattr(self.model, "_initial_epoch"):  # as Keras's own BackupAndRestore does
                self.model._initial_epoch = self._place.number
        steps, at_once = self.params.get("steps"), self.model.steps_per_execution
        until = self.params["epochs"] * -(-steps // at_once) if steps else None
        self._loop.begin(until=until)
        if hasattr(self.model, "_initial_epoch") and self._loop.is_over():
            self.model._initial_epoch = self.params["epochs"]
        self._place.begin(self.model)
        self.model.evaluate = self._evaluate

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Maybe the one that was broken off."""
        self._place.begin_epoch(epoch)
        if self._place.passes:
            self._loop.begins("restore")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """A step is done, unless it was before."""
        if not self._place.has_trained():
            if not self._place.passes:
                self._loop.ends()
                self._set_rate()
            return
        self._step += 1
        due = self._loop.due(self._step)
        if due.saves:
            self._save()
        if due.stops:
            self._loop.leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Keras's numbers of the epoch, those of its evaluation too."""
        self._place.end_epoch()
        self._loop.ends()
        if logs and self._step > self._loop.resume_step:
            self._loop.measured(self._step, {name: float(value) for name, value in logs.items()})

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """The run is done when its last step counts."""
        while self._loop.finishing():
            self._save()
        self._place.end()
        del self.model.evaluate
        if hasattr(self.model, "_initial_epoch"):
            self.model._initial_epoch = None

    def _evaluate(self, *given: Any, **named: Any) -> Any:
        """The model's own evaluation, within `fit`: it is no training.

        Keras has no callback for an evaluation that fails, and a span that stays open hides a hang.
        """
        self._loop.begins("evaluate")
        try:
            return type(self.model).evaluate(self.model, *given, **named)
        finally:
            self._loop.ends()

    def _set_rate(self) -> None:
        """Callbacks that set the learning rate as an epoch begins have done it once more."""
        if self._rate is not None:
            if self._backend == "jax":
                sync(self.model)
            self.model.optimizer.learning_rate = self._rate

    # --- Keras's files ----------------------------------------------------------------------

    def _load(self, checkpoint: Path, kept: dict[str, Any]) -> None:
        if not self.model.built:
            raise ConfigurationError(
                "the model has no variables yet into which to load: give it a keras.Input, or "
                "call it on a batch before fit"
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        with self._loop.restoring():
            self.model.load_weights(checkpoint / WEIGHTS)
            assign(seeds_of(self.model), kept["seeds"])
        rate = self.model.optimizer.learning_rate
        if isinstance(rate, keras.Variable):  # and no schedule
            self._rate = float(rate)

    def _save(self) -> None:
        """All processes write, for Keras compares them meanwhile; the first one's file stays."""
        path = self._names.place(self._loop.folder, self._step)
        if self._backend == "jax":
            sync(self.model)
        elsewhere = tempfile.TemporaryDirectory() if self._process else nullcontext()
        with self._loop.saving(), elsewhere as unused:
            error = self._write(path if unused is None else Path(unused) / path.name)
            if self._processes > 1:
                error = of_the_first(error)
        if error is None:
            self._loop.saved(self._step, path)
        else:
            self._loop.failed(self._step, error)

    def _write(self, path: Path) -> OSError | None:
        try:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            self.model.save_weights(path / WEIGHTS)
            self._place.write(path)
        except OSError as error:
            return error
        return None
