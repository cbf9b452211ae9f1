"""Lightning's `Trainer`: a callback, and the checkpoint to resume from.

    holdfast = LightningCallback("checkpoints")
    trainer = Trainer(max_steps=1000, callbacks=[holdfast], enable_checkpointing=False)
    trainer.fit(model, ResumableDataLoader(data, shuffle=True), ckpt_path=holdfast.checkpoint)

Checkpoints are Lightning's own (`Trainer.save_checkpoint`). It restores its loops, models and
optimizers from them, and a loader that has a state; Holdfast puts the random generators back.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from holdfast.adapters.data_loader import ResumableDataLoader
from holdfast.adapters.lightning_epoch import (
    EpochBegins,
    begin_epoch,
    evaluates_now,
    last_step,
    let_schedulers_hear,
    tell_loaders,
)
from holdfast.adapters.lightning_waits import hear_waits
from holdfast.adapters.newer import say_newest
from holdfast.adapters.run_names import RunNames
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.start import start

__all__ = ["LightningCallback", "ResumableDataLoader"]

TRIED = ("2.5", "2.6")


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
        hear_waits(trainer.profiler, self._waited)
        self._has_begun = True
        self._loop.begin(until=last_step(trainer, self._step))
        if self._loop.is_over():
            trainer.should_stop = True
        elif self._restored and self._is_epoch_over:
            begin_epoch(trainer)
        elif self._restored:
            self._draws_again = True
            self._loop.begins("restore")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002 - Lightning's
        """Of an evaluation, say; or PyTorch could not load the checkpoint's state."""
        self._loop.ends()
        if not self._has_begun and isinstance(exception, RuntimeError):
            self._loop.refused(exception)

    def _waited(self, seconds: float) -> None:
        """A batch was drawn; the first one after a restart: all those before it, too."""
        if self._draws_again:
            self._draws_again = False
            self._loop.ends()
        else:
            self._loop.spent("data", seconds)

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
        """After a restart Lightning passes over schedulers that hear a metric, for an epoch."""
        let_schedulers_hear(trainer)

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
        tell_loaders(trainer, is_epoch_over=self._is_epoch_over)
        path = self._names.place(self._loop.folder, self._step)
        try:
            with self._loop.saving():
                trainer.save_checkpoint(path)
        except OSError as error:
            trainer.strategy.barrier("Trainer.save_checkpoint")  # where the other ranks wait
            self._loop.failed(self._step, error)
        else:
            self._loop.saved(self._step, path)
