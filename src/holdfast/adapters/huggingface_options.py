"""What a Trainer is told, and saves by itself, beside what Holdfast wants of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.trainer_utils import SaveStrategy, get_last_checkpoint

from holdfast.adapters.newer import say_if_newer
from holdfast.errors import ConfigurationError

REFUSED = (
    ("save_strategy", "best", "a step is saved only where it is the best one", 'take "no"'),
    (
        "save_total_limit",
        1,
        "the checkpoint before is removed while the newest is not yet verified",
        "take 2 or more",
    ),
    ("save_only_model", True, "a restart would begin the optimizer anew", "leave it out"),
    (
        "restore_callback_states_from_checkpoint",
        True,
        "other callbacks come to stand behind HuggingFaceCallback, which has to be the last",
        "leave it out",
    ),
)  # an option, its value, why not, and what then


def check_options(arguments: Any, folder: Path, done: int, resume_step: int) -> None:
    """Raises ConfigurationError. `done`: the steps that the Trainer has restored."""
    if Path(arguments.output_dir).absolute() != folder:
        raise ConfigurationError(
            f"the Trainer writes to {arguments.output_dir}, and HuggingFaceCallback was given "
            f"{folder}: give it the Trainer's output_dir"
        )
    if done != resume_step:
        raise ConfigurationError(
            f"the Trainer begins after step {done}, and the run goes on from step {resume_step}: "
            "call trainer.train(resume_from_checkpoint=callback.checkpoint), and resume from "
            "nothing else"
        )
    for option, value, reason, then in REFUSED:
        if getattr(arguments, option, None) == value:
            raise ConfigurationError(f"with {option}={value!r} {reason}: {then}")


def saves_itself(arguments: Any, state: Any, control: Any) -> bool:
    """Whether the Trainer saves this step by its own `save_strategy`, here or as its epoch ends."""
    ends_epoch = float(state.epoch).is_integer()
    return control.should_save or (arguments.save_strategy == SaveStrategy.EPOCH and ends_epoch)


def say_newer_checkpoint(run: str, folder: Path, resume_step: int) -> None:
    """The Trainer's newest in that folder, if the run goes on from an older one."""
    newest = get_last_checkpoint(folder) if folder.is_dir() else None
    number = Path(newest or "").name.rpartition("-")[2]
    if newest is not None and number.isdecimal():
        say_if_newer(run, newest, int(number), resume_step)
