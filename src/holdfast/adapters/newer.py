"""Checkpoints of a framework that are newer than what the run goes on from: said, and not used."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.session.say import say


def say_if_newer(run: str, path: str | os.PathLike[str], step: int, resume_step: int) -> None:
    """`step`: the one that the checkpoint at `path` contains."""
    if step > resume_step:
        say(
            f"{os.fspath(path)} is newer than what run {run!r} goes on from (step {resume_step}), "
            "and is not used"
        )


def say_newest(run: str, folder: Path, own: str, resume_step: int) -> None:
    """Of those in the folder whose names match `own` and hold `step-` with digits."""
    steps = {path: re.search(r"step-(\d+)", path.name) for path in folder.glob(own)}
    numbers = {path: int(found[1]) for path, found in steps.items() if found}
    if numbers:
        newest = max(numbers, key=lambda path: numbers[path])
        say_if_newer(run, newest, numbers[newest], resume_step)
