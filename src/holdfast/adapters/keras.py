"""Keras 3, on JAX, PyTorch or TensorFlow: a callback.

    model.fit(x, y, epochs=10, callbacks=[KerasCallback("checkpoints")])

Keras saves and loads: `save_weights` with the optimizer, and with TensorFlow the iterator of
tf.data. `fit` begins an epoch with its first batch, so those that were trained before are passed
over: for them `model.train_function` draws the batch and does not train. Kept beside Keras's file
is what that leaves out: seeds, the epoch's metrics, and the random generators as the epoch began.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import keras

from holdfast.adapters.newer import say_newest
from holdfast.adapters.seeds import assign, seeds_of
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.say import say
from holdfast.session.start import start
from holdfast.snapshot.parts import capture_rng, restore_rng

T = TypeVar("T")

TRIED = ("3.10", "3.15")
DIGITS = 9
WEIGHTS, ITERATOR = "model.weights.h5", "iterator"


class KerasCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves when Holdfast wants it, and stops with code 75 when that was a stop.

    A step is one call of the model's train function. `folder`: where the checkpoints are written,
    as RUN.step-000001234; those of this run that it keeps no more are removed. Make it before the
    model: the processes that stand by wait here. Raises as `Run.framework` does.
    """

    def __init__(self, folder: str | os.PathLike[str], **how: Any) -> None:
        """`how`: of `holdfast.start`."""
        super().__init__()
        check_version("Keras", keras.__version__, TRIED)
        self._backend = keras.backend.backend()
        self.run = start(**how)
        self._processes, self._process = self._distributed()
        self._kept: dict[str, Any] | None = None
        self.run.track(keras=self)
        own = f"{escape(self.run.name)}.step-{'[0-9]' * DIGITS}"
        self._loop: FrameworkLoop = self.run.framework(folder, own=own)
        self._step = self._loop.resume_step
        say_newest(self.run.name, self._loop.folder, own, self._step)
        self._epoch = self._calls = 0  # of the train function, in this epoch
        self._to_pass = 0  # of these, so many that were trained before
        self._began: dict[str, Any] = {}  # the generators as the epoch began
        self._now: dict[str, Any] = {}  # and as they were at the step that is gone on from
        self._logs: dict[str, Any] = {}
        self._train: Callable[..., Any] | None = None  # the model's own train function
        self._iterator: Any = None  # TensorFlow's
        self._iterators_are_saved = self._backend == "tensorflow"
        self._trained = False
        self._tested_since_s = 0.0

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

    # --- what Keras leaves out --------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """A part of the set: where in which epoch, and what is in none of Keras's files."""
        return {
            "epoch": self._epoch,
            "calls": self._calls,
            "earlier": (self._step - self._calls) * self.model.steps_per_execution,
            "began": self._began,
            "seeds": [_array(one) for one in seeds_of(self.model)],
            "metrics": [_array(one) for one in self.model.metrics_variables],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Here, as the callback is made; there is a model only when `fit` begins."""
        self._kept = state

    # --- fit --------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """`fit` has made the train function, and looks for the first epoch right after this."""
        if self._loop.checkpoint is not None and self._kept is not None:
            self._load(self._loop.checkpoint)
            self._epoch, self._to_pass = self._kept["epoch"], self._kept["calls"]
            if hasattr(self.model, "_initial_epoch"):  # as Keras's own BackupAndRestore does
                self.model._initial_epoch = self._epoch
        steps, at_once = self.params.get("steps"), self.model.steps_per_execution
        until = self.params["epochs"] * -(-steps // at_once) if steps else None
        self._loop.begin(until=until)
        self._now = capture_rng()
        self._train = self.model.train_function
        if self._to_pass or self._iterators_are_saved:
            self.model.train_function = self._train_or_pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Keras has reset its metrics, and draws the order of the epoch after this."""
        if self._to_pass:
            if epoch != self._epoch or self._kept is None:
                raise ConfigurationError(
                    f"fit begins with epoch {epoch}, and the run goes on in epoch {self._epoch} "
                    "(from 0): call fit(…, initial_epoch=callback.initial_epoch)"
                )
            self._began = self._kept["began"]
            restore_rng(self._began)
            if self._backend != "tensorflow":  # there they are made with the first batch
                self._restore_metrics()
        else:
            self._epoch, self._began = epoch, capture_rng()
        self._calls = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """A step is done, unless it was before."""
        self._calls += 1
        if self._calls <= self._to_pass:
            return
        self._to_pass = 0
        self._step += 1
        due = self._loop.due(self._step)
        if due.saves:
            self._save()
        if due.stops:
            self._loop.leave()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Keras's numbers of the epoch, those of its evaluation too."""
        self._to_pass = 0
        if logs and self._step > self._loop.resume_step:
            self._loop.measured(self._step, {name: float(value) for name, value in logs.items()})

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """An evaluation is no training."""
        self._tested_since_s = time.monotonic()

    def on_test_end(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """Nor was it."""
        self._loop.spent("evaluate", time.monotonic() - self._tested_since_s)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras's
        """The run is done when its last step counts."""
        while self._loop.finishing():
            self._save()
        self.model.train_function = self._train
        if hasattr(self.model, "_initial_epoch"):
            self.model._initial_epoch = None

    # --- batches that were trained before ---------------------------------------------------

    def _train_or_pass(self, *given: Any) -> Any:
        """In the place of the train function: of (state, iterator), an iterator, or a batch."""
        if self._backend == "tensorflow":
            self._meet(given[0])
        if self._calls >= self._to_pass:
            assert self._train is not None  # noqa: S101 - it stands in for that
            return self._train(*given)
        if self._backend != "torch" and not self._iterators_are_saved:
            for _ in islice(given[-1], self.model.steps_per_execution):
                pass
        if self._calls + 1 == self._to_pass:
            restore_rng(self._now)
            if self._backend != "tensorflow":
                self.model.train_function = self._train
        return (self._logs, given[0]) if self._backend == "jax" else self._logs

    def _meet(self, iterator: Any) -> None:
        """TensorFlow's iterator of this epoch: put it where it was."""
        if iterator is self._iterator:
            return
        self._iterator = iterator
        if self._to_pass and self._loop.checkpoint is not None:
            self._build_metrics(iterator)
            kept = self._loop.checkpoint / ITERATOR
            self._iterators_are_saved = kept.with_suffix(".index").exists() and self._of_iterator(
                lambda checkpoint: checkpoint.read(str(kept)), "gone on with"
            )

    def _of_iterator(self, work: Callable[[Any], Any], what: str) -> bool:
        import tensorflow

        try:
            work(tensorflow.train.Checkpoint(iterator=self._iterator))
        except (tensorflow.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0][:200]
            say(
                f"the iterator of tf.data cannot be {what} ({reason}): after a restart, the "
                "batches of a broken-off epoch are drawn again"
            )
            return False
        return True

    # --- what there is of a model -----------------------------------------------------------

    def _load(self, checkpoint: Path) -> None:
        if not self.model.built:
            raise ConfigurationError(
                "the model has no variables yet into which to load: give it a keras.Input, or "
                "call it on a batch before fit"
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        with self._loop.restoring():
            self.model.load_weights(checkpoint / WEIGHTS)
            assign(seeds_of(self.model), self._kept["seeds"] if self._kept else [])

    def _restore_metrics(self) -> None:
        assign(self.model.metrics_variables, self._kept["metrics"] if self._kept else [])
        self._logs = dict(self.model.get_metrics_result())

    def _build_metrics(self, iterator: Any) -> None:
        """With TensorFlow they are made by the first step, and would be of the rest alone."""
        try:
            self.model._symbolic_build(data_batch=iterator.element_spec)
            self._restore_metrics()
        except Exception as error:
            say(f"the metrics of epoch {self._epoch} begin after step {self._step} ({error!r})")

    def _distributed(self) -> tuple[int, int]:
        """How many processes train this model together, and which of them this is."""
        count, index = 1, 0
        if self._backend == "jax":
            import jax

            count, index = jax.process_count(), jax.process_index()
        if self.run.world_size != count:
            raise ConfigurationError(
                f"the run has {self.run.world_size} ranks, and Keras trains in {count} process"
                f"{'es' if count > 1 else ''}: several are for the JAX backend alone, whose script "
                "calls jax.distributed.initialize before it makes the callback"
            )
        return count, index

    def _save(self) -> None:
        """All processes write, for Keras compares them meanwhile; the first one's file stays."""
        path = self._loop.folder / f"{self.run.name}.step-{self._step:0{DIGITS}d}"
        if self._backend == "jax":
            self.model.jax_state_sync()
            _await_device([one.value for one in self.model.variables])
        with self._loop.saving(), tempfile.TemporaryDirectory() as unused:
            error = self._write(path if self._process == 0 else Path(unused) / path.name)
            if self._processes > 1:
                error = _of_the_first(error)
        if error is None:
            self._loop.saved(self._step, path)
        else:
            self._loop.failed(self._step, error)

    def _write(self, path: Path) -> OSError | None:
        try:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            self.model.save_weights(path / WEIGHTS)
            if self._iterators_are_saved and self._iterator is not None:
                kept = str(path / ITERATOR)
                self._iterators_are_saved = self._of_iterator(
                    lambda checkpoint: checkpoint.write(kept), "saved"
                )
        except OSError as error:
            return error
        return None


def _await_device(arrays: list[Any]) -> None:
    """Steps that were given to it are still computed: that is training, and no part of a save."""
    import jax

    jax.block_until_ready(arrays)


def _of_the_first(error: OSError | None) -> OSError | None:
    """Wait for the first process, and hear from it whether the file is there."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    is_there = bool(broadcast_one_to_all(error is None))
    return None if is_there else error or OSError("the first process could not write it")


def _array(variable: Any) -> Any:
    return keras.ops.convert_to_numpy(variable)
