"""Lightning's `Trainer`: a callback, and the checkpoint to resume from.

    holdfast = LightningCallback("checkpoints")
    trainer = Trainer(max_steps=1000, callbacks=[holdfast], enable_checkpointing=False)
    trainer.fit(model, ResumableDataLoader(data, shuffle=True), ckpt_path=holdfast.checkpoint)

Checkpoints are Lightning's own (`Trainer.save_checkpoint`). It restores its loops, models and
optimizers from them, and a loader that has a state; Holdfast puts the random generators back.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from holdfast.adapters.data_loader import ResumableDataLoader
from holdfast.adapters.lightning_epoch import (
    EpochBegins,
    ahead,
    evaluates_now,
    loaders,
    of_lightnings_own,
)
from holdfast.adapters.newer import say_newest
from holdfast.adapters.run_names import RunNames
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.start import start

__all__ = ["LightningCallback", "ResumableDataLoader"]

TRIED = ("2.5", "2.6")
WAITS = ".train_dataloader_next"


class LightningCallback(Callback):  # type: ignore[misc]
    """Saves when Holdfast wants it, and stops with code 75 when that was a stop.

    A step is one in which an optimizer steps, as many optimizers as there may be. The last one of
    an epoch is over when the epoch is, and one that an evaluation follows when that is.

    `folder`: where the checkpoints are written, named as in `run_names`; those of this run that
    it keeps no more are removed. Make it before the Trainer: the processes that stand by wait here.
    Raises as `Run.framework` does.
    """

    def __init__(self, folder: str | os.PathLike[str], **how: Any) -> None:
        """`how`: of `holdfast.start`."""
        check_version("Lightning", lightning.__version__, TRIED)
        self.run = start(**how)
        self._names = RunNames(self.run, ".ckpt")
        self._loop: FrameworkLoop = self.run.framework(folder, own=self._names.own)
        self._step = self._loop.resume_step
        say_newest(self.run.name, self._loop.folder, self._names.own, self._step)
        self._restored = self._optimizer_steps = 0
        self._has_begun = False
        self._is_late = False  # a step is done, and not yet over
        self._is_epoch_over = False  # at the step that is saved, or that was restored
        self._draws_again = False
        self._metrics: dict[str, Any] = {}  # of the step, if it is one of those that are logged
        self._on_sigterm = signal.getsignal(signal.SIGTERM)  # the run's

    @property
    def checkpoint(self) -> str | None:
        """For `Trainer.fit(ckpt_path=…)`; None: from scratch."""
        path = self._loop.checkpoint
        return None if path is None else str(path)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning's
        """Other callbacks change their state where a step or an epoch ends: this one comes last.

        Before all others stands what hears that the next epoch begins.
        """
        if stage == "fit":
            others = [one for one in trainer.callbacks if one is not self]
            others = [one for one in others if not isinstance(one, EpochBegins)]
            trainer.callbacks = [EpochBegins(self.begins_epoch), *others, self]

    def state_dict(self) -> dict[str, Any]:
        """A part of Lightning's checkpoint: which step of the run that is."""
        return {"step": self._step, "is_epoch_over": self._is_epoch_over}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lightning has restored a checkpoint of that step."""
        self._restored = state_dict["step"]
        self._is_epoch_over = state_dict.get("is_epoch_over", False)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Lightning has restored what it was given, and has a handler of SIGTERM of its own."""
        if self._restored != self._step:
            raise ConfigurationError(
                f"the Trainer begins after step {self._restored}, and the run goes on from step "
                f"{self._step}: call trainer.fit(…, ckpt_path=callback.checkpoint), and resume "
                "from nothing else"
            )
        self._optimizer_steps = trainer.global_step
        # Lightning's ends the fit at the epoch's end, and broadcasts to ranks that may be anywhere.
        with contextlib.suppress(ValueError, TypeError):  # not the main thread, or C's handler
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._hear_waits(trainer.profiler)
        self._has_begun = True
        self._loop.begin(until=self._until(trainer))
        if self._loop.is_over():
            trainer.should_stop = True
        elif self._restored and self._is_epoch_over:
            self._begin_epoch_anew(trainer)
        elif self._restored:
            self._draws_again = True
            self._loop.begins("restore")

    def _until(self, trainer: Any) -> int | None:
        """By Lightning's own estimate, which may be too low; None: it cannot tell."""
        with contextlib.suppress(MisconfigurationException):
            steps = trainer.estimated_stepping_batches
            if 0 < steps < math.inf:
                return max(int(steps), self._step + 1)
        return None

    def _begin_epoch_anew(self, trainer: Any) -> None:
        """Lightning would go on in the epoch whose last step was restored."""

        def begin() -> None:
            trainer.fit_loop.epoch_loop.restarting = False
            if ahead(trainer):  # drawn before the generators were put back
                iter(trainer.fit_loop._data_fetcher)

        of_lightnings_own(begin, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002 - Lightning's
        """Of an evaluation, say; or PyTorch could not load the checkpoint's state."""
        self._loop.ends()
        if not self._has_begun and isinstance(exception, RuntimeError):
            self._loop.refused(exception)

    def _hear_waits(self, profiler: Any) -> None:
        """Lightning tells its profiler, whichever that is, when it waits for a batch."""
        start, stop = profiler.start, profiler.stop
        began_s = 0.0

        def started(action: str) -> None:
            nonlocal began_s
            start(action)
            if action.endswith(WAITS):
                began_s = time.monotonic()

        def stopped(action: str) -> None:
            if action.endswith(WAITS):
                if self._draws_again:  # the batches of the epoch that was broken off
                    self._draws_again = False
                    self._loop.ends()
                else:
                    self._loop.spent("data", time.monotonic() - began_s)
            stop(action)

        profiler.start, profiler.stop = started, stopped

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A step is done, unless its gradients are still summed up."""
        if trainer.global_step == self._optimizer_steps:
            return
        self._optimizer_steps = trainer.global_step
        self._step += 1
        is_logged = self._step % trainer.log_every_n_steps == 0
        self._metrics = dict(trainer.callback_metrics) if is_logged else {}
        if trainer.is_last_batch or evaluates_now(trainer):
            self._is_late = True
        elif self._end_step(trainer):
            self._loop.leave()

    def _end_step(self, trainer: Any) -> bool:
        """What is due at the step's boundary; whether that is to leave."""
        self._is_late = False
        self._is_epoch_over = trainer.is_last_batch
        due = self._loop.due(self._step)
        if self._metrics:
            self._loop.measured(self._step, self._metrics)
        if due.saves:
            self._save(trainer)
        return due.stops

    def begins_epoch(self, trainer: Any) -> None:
        """All that ends an epoch is done: evaluation, schedulers, other callbacks."""
        if self._is_late and self._end_step(trainer):
            self._loop.leave()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """In the first epoch after a restart Lightning passes over schedulers that hear a metric.

        For the metric may be none of that epoch; where it is there, they go on as ever.
        """
        hearing = [one.monitor for one in trainer.lr_scheduler_configs if one.reduce_on_plateau]
        if all(name in trainer.callback_metrics for name in hearing):
            trainer.fit_loop._restarting = False  # its setter means more

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """The run is done when its last step counts, also if that was to be a stop."""
        if self._is_late:
            self._end_step(trainer)
        while self._loop.finishing():
            self._save(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Where all was done before, Lightning trains nothing, and nothing else is called."""
        if not self._has_begun and self._restored == self._step > 0:
            self._has_begun = True
            self._loop.begin(until=self._step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """An evaluation, within the training or before it as a check, is no part of a step."""
        self._loop.begins("evaluate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """It is over; and within an epoch so is the step before it."""
        self._loop.ends()
        if self._is_late and not trainer.is_last_batch and self._end_step(trainer):
            self._loop.leave()

    def _save(self, trainer: Any) -> None:
        for loader in loaders(trainer):
            if isinstance(loader, ResumableDataLoader):
                loader.ahead = ahead(trainer)
                if self._is_epoch_over:
                    loader.end_epoch()
        path = self._names.place(self._loop.folder, self._step)
        try:
            with self._loop.saving():
                trainer.save_checkpoint(path)
        except OSError as error:
            trainer.strategy.barrier("Trainer.save_checkpoint")  # where the other ranks wait
            self._loop.failed(self._step, error)
        else:
            self._loop.saved(self._step, path)
