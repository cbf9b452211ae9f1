"""Hugging Face's `Trainer`: a callback, and the checkpoint to resume from.

    holdfast = HuggingFaceCallback(arguments.output_dir)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[holdfast])
    trainer.train(resume_from_checkpoint=holdfast.checkpoint)

Of several callbacks it is the last: what the others decide of a step, it hears then.

The Trainer's own means throughout: it saves where `control.should_save` asks for it, in its own
format, and restores its own random generators.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import transformers
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from holdfast.adapters import huggingface_options as options
from holdfast.adapters.huggingface_weights import load_renamed, renamed_weights
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.start import start

TRIED = ("5.0", "5.24")


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Saves when Holdfast wants it, and stops with code 75 when that was a stop.

    `folder` is the Trainer's `output_dir`. Make it before the Trainer: the processes that stand by
    wait here. Raises as `Run.framework` does.
    """

    def __init__(self, folder: str | os.PathLike[str], **how: Any) -> None:
        """`how`: of `holdfast.start`."""
        check_version("transformers", transformers.__version__, TRIED)
        self.run = start(**how)
        self._loop: FrameworkLoop = self.run.framework(folder, generators=False)
        self._stops = False
        self._saved_step = self._loop.resume_step  # the last one, of those that the run wanted
        self._is_asked = False  # the Trainer, for a save that it has not made yet
        self._is_training = self._is_between_epochs = self._is_evaluating = False
        self._since_s = 0.0  # what the Trainer does next began
        self._tokens = 0
        self._max_steps = 0  # the Trainer's own, where it is told less
        self._renamed: dict[str, Any] | None = None
        options.say_newer_checkpoint(self.run.name, self._loop.folder, self._loop.resume_step)

    @property
    def checkpoint(self) -> str | None:
        """For `Trainer.train(resume_from_checkpoint=…)`; None: from scratch."""
        path = self._loop.checkpoint
        return None if path is None else str(path)

    def on_init_end(self, _args: Any, _state: Any, _control: Any, model: Any, **_: Any) -> None:
        """A checkpoint of another model is told here: the Trainer might load a part of it."""
        if self._loop.checkpoint is not None:
            with self._loop.restoring():
                self._renamed = renamed_weights(model, self._loop.checkpoint)

    def on_train_begin(self, args: Any, state: Any, _control: Any, model: Any, **_: Any) -> None:
        """The Trainer has restored what it was given."""
        options.check_options(args, self._loop.folder, state.global_step, self._loop.resume_step)
        if self._renamed is not None:
            with self._loop.restoring():
                load_renamed(model, self._renamed)
            self._renamed = None
        self._tokens = state.num_input_tokens_seen
        is_retried = getattr(args, "auto_find_batch_size", False)
        self._loop.begin(until=state.max_steps, is_retried=is_retried)
        self._max_steps = state.max_steps
        if self._loop.is_over():
            state.max_steps = state.global_step
        self._is_training = True
        self._go_on(evaluates=args.eval_on_start)

    def on_epoch_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Batches are drawn from here on."""
        self._is_between_epochs = False
        self._since_s = time.monotonic()

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """The Trainer has drawn all batches of the step."""
        self._go_on()
        self._loop.spent("data", time.monotonic() - self._since_s)

    def on_pre_optimizer_step(self, _args: Any, state: Any, _control: Any, **of: Any) -> None:
        """All steps are done, and within an epoch the Trainer does another one: of no effect."""
        if state.global_step >= state.max_steps:
            of["optimizer"].zero_grad(set_to_none=True)
            of["lr_scheduler"].step = lambda: None  # some raise at a step too many

    def on_step_end(self, args: Any, state: Any, control: Any, **of: Any) -> None:
        """What is due is done by the Trainer right after this."""
        if state.global_step > state.max_steps:
            vars(of["lr_scheduler"]).pop("step", None)  # it has its own again
            state.global_step = state.max_steps
            control.should_training_stop = True
            control.should_log = control.should_evaluate = control.should_save = False
            return
        step, seen = state.global_step, state.num_input_tokens_seen
        tokens, saves = max(0, int(seen - self._tokens)), options.saves_itself(args, state, control)
        due = self._loop.due(step, tokens=tokens, saves_itself=saves)
        self._tokens, self._stops = seen, due.stops
        self._since_s = time.monotonic()
        if due.saves:
            self._ask_save(control)
            # Resumed after an epoch's last step the Trainer begins the next epoch at once: what
            # the end of this one brings (an evaluation, a schedule) has to be in the checkpoint.
            ends = control.should_training_stop or control.should_epoch_stop
            control.should_save = not (ends or float(state.epoch).is_integer())
        elif due.stops:
            self._loop.leave()
        self._go_on(evaluates=control.should_evaluate, saves=control.should_save)

    def on_prediction_step(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """A batch of the next data set of several, or of what another callback evaluates."""
        if self._is_training and not self._is_evaluating:
            self._go_on(evaluates=True)

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """It comes before a save of the same step, is no part of it, and may end the training."""
        ends = self._is_between_epochs and control.should_training_stop
        if ends and not self._is_asked and self._loop.finishing():
            self._ask_save(control)
        self._go_on(saves=control.should_save)
        self._since_s = time.monotonic()

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Numbers for the report: loss, grad_norm, learning_rate and what else is logged."""
        logged = (logs or {}).items()
        numbers = {name: value for name, value in logged if isinstance(value, int | float)}
        if numbers and state.global_step > self._loop.resume_step:
            self._loop.measured(state.global_step, numbers)
        self._since_s = time.monotonic()

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Here the Trainer has saved: when it was asked to, or by its own `save_strategy`."""
        step = state.global_step
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.barrier()  # each rank has written its own part by now
        blocked_s = time.monotonic() - self._since_s
        folder = f"{PREFIX_CHECKPOINT_DIR}-{step}"
        self._loop.saved(step, self._loop.folder / folder, seconds=blocked_s)
        if self._is_asked:
            self._saved_step, self._is_asked = step, False
        if self._stops:
            self._stops = False
            self._loop.leave()
        self._go_on()
        self._since_s = time.monotonic()

    def on_epoch_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last step, and where the Trainer ends early, that step is still to be saved."""
        self._is_between_epochs = True
        self._since_s = time.monotonic()
        if self._loop.resume_step >= state.max_steps:  # this was evaluated, too
            control.should_log = control.should_evaluate = control.should_save = False
            return
        if state.global_step == self._saved_step:
            control.should_save = False  # over what was verified
        ends = control.should_training_stop or state.global_step >= state.max_steps
        if self._is_asked or (ends and self._loop.finishing()):
            self._ask_save(control)
        self._go_on(evaluates=control.should_evaluate, saves=control.should_save)

    def on_train_end(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """The run is done when its last step counts."""
        self._is_training = False
        state.max_steps = self._max_steps
        if not self._loop.finishing():
            return
        if self._saved_step != state.global_step:
            raise ConfigurationError(
                f"the training has ended after step {state.global_step}, which was not saved: put "
                "HuggingFaceCallback behind what ends it, as the last of the Trainer's callbacks"
            )
        raise StoreUnavailable(
            f"the last step, {state.global_step}, could not be saved; make room in "
            f"{args.output_dir} and start the run again"
        )

    def _ask_save(self, control: Any) -> None:
        """The Trainer saves right after the callbacks."""
        self._is_asked = control.should_save = True

    def _go_on(self, *, evaluates: bool = False, saves: bool = False) -> None:
        """What the Trainer does next: an evaluation comes before a save."""
        self._is_evaluating = evaluates
        if evaluates or saves:
            self._loop.begins("evaluate" if evaluates else "save")
        else:
            self._loop.ends()
