"""Where in which epoch Keras's `fit` is, and how it comes back there.

`fit` begins an epoch with its first batch. Those that were trained before are passed over: in the
place of `model.train_function` stands one that draws such a batch and does not train.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import keras

from holdfast.adapters.keras_iterator import SavedIterator
from holdfast.adapters.seeds import assign
from holdfast.errors import ConfigurationError
from holdfast.session.say import say
from holdfast.snapshot.parts import capture_rng, restore_rng


class EpochPlace:
    """Of one `fit`. `number`: of the epoch, from 0; `calls`: of its train function, in it."""

    def __init__(self, backend: str) -> None:
        """`backend`: of Keras."""
        self.number = self.calls = 0
        self._backend = backend
        self._to_pass = 0  # of the calls, so many that were trained before
        self._began: dict[str, Any] = {}  # the random generators as the epoch began
        self._now: dict[str, Any] = {}  # and as they were at the step that is gone on from
        self._metrics: list[Any] = []  # their variables' values at that step
        self._checkpoint: Path | None = None  # of that step
        self._logs: dict[str, Any] = {}
        self._model: Any = None
        self._train: Callable[..., Any] | None = None  # the model's own train function
        self._iterator = SavedIterator(backend)

    def state_dict(self) -> dict[str, Any]:
        """What a set keeps of it."""
        metrics = self._model.metrics_variables
        return {
            "epoch": self.number,
            "calls": self.calls,
            "began": self._began,
            "metrics": [keras.ops.convert_to_numpy(one) for one in metrics],
        }

    def go_on(self, kept: dict[str, Any], checkpoint: Path) -> None:
        """From where a set was made."""
        self.number, self._to_pass = kept["epoch"], kept["calls"]
        self._began, self._metrics = kept["began"], kept["metrics"]
        self._checkpoint = checkpoint

    def begin(self, model: Any) -> None:
        """`fit` has made the model's train function."""
        self._model, self._train, self._now = model, model.train_function, capture_rng()
        if self._to_pass or self._iterator.is_saved:
            model.train_function = self._train_or_pass

    def begin_epoch(self, number: int) -> None:
        """Keras has reset its metrics, and draws the order of the epoch after this.

        Raises ConfigurationError when it is not the epoch to go on in.
        """
        if self._to_pass:
            if number != self.number:
                raise ConfigurationError(
                    f"fit begins with epoch {number}, and the run goes on in epoch {self.number} "
                    "(from 0): call fit(…, initial_epoch=callback.initial_epoch)"
                )
            restore_rng(self._began)
            if self._backend != "tensorflow":  # there they are made with the first batch
                self._restore_metrics()
        else:
            self.number, self._began = number, capture_rng()
        self.calls = 0

    @property
    def passes(self) -> bool:
        """Whether the next batch of the epoch was trained before, and is passed over."""
        return self.calls < self._to_pass

    def has_trained(self) -> bool:
        """A batch is over: whether it was trained, and not passed over."""
        self.calls += 1
        if self.calls <= self._to_pass:
            return False
        self._to_pass = 0
        return True

    def end_epoch(self) -> None:
        """There may have been fewer batches than were trained before."""
        self._to_pass = 0

    def end(self) -> None:
        """`fit` is over: the model has its own train function again."""
        self._model.train_function = self._train

    def write(self, checkpoint: Path) -> None:
        """TensorFlow's iterator, beside the model. Raises OSError."""
        self._iterator.write(checkpoint)

    def _train_or_pass(self, *given: Any) -> Any:
        """In the place of the train function: of (state, iterator), an iterator, or a batch."""
        if self._backend == "tensorflow":
            self._meet(given[0])
        if not self.passes:
            assert self._train is not None  # noqa: S101 - it stands in for that
            return self._train(*given)
        if self._backend != "torch" and not self._iterator.is_saved:
            for _ in islice(given[-1], self._model.steps_per_execution):
                pass
        if self.calls + 1 == self._to_pass:
            restore_rng(self._now)
            if self._backend != "tensorflow":
                self._model.train_function = self._train
        return (self._logs, given[0]) if self._backend == "jax" else self._logs

    def _meet(self, iterator: Any) -> None:
        """TensorFlow's iterator of this epoch: put it where it was."""
        if self._iterator.replace(iterator) and self._to_pass and self._checkpoint is not None:
            self._build_metrics(iterator)
            self._iterator.read(self._checkpoint)

    def _restore_metrics(self) -> None:
        assign(self._model.metrics_variables, self._metrics)
        self._logs = dict(self._model.get_metrics_result())

    def _build_metrics(self, iterator: Any) -> None:
        """With TensorFlow they are made by the first step, and would be of the rest alone."""
        try:
            self._model._symbolic_build(data_batch=iterator.element_spec)
            self._restore_metrics()
        except Exception as error:
            say(f"the metrics of epoch {self.number} are those of the rest of it ({error!r})")
