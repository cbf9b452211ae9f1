"""How a run names its checkpoints, by step and attempt: RUN.step-000001234.a0002.

After a rollback the same step is saved again, by a later attempt: what was saved before stays as it
was, for a set that somebody pinned may stand for it.
"""

from __future__ import annotations

from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.session.run import Run

STEP_DIGITS, ATTEMPT_DIGITS = 9, 4


class RunNames:
    """Of one run, in any folder. `suffix`: of a file's name."""

    def __init__(self, run: Run, suffix: str = "") -> None:
        self._run, self._suffix = run, suffix
        step, attempt = ("[0-9]" * count for count in (STEP_DIGITS, ATTEMPT_DIGITS))
        self.own = f"{escape(run.name)}.step-{step}.a{attempt}{suffix}"
        """A pattern of the names that this run gives, and nobody else."""

    def place(self, folder: Path, step: int) -> Path:
        """Where this attempt saves that step; the same on all ranks."""
        numbers = f"step-{step:0{STEP_DIGITS}d}.a{self._run.attempt:0{ATTEMPT_DIGITS}d}"
        return folder / f"{self._run.name}.{numbers}{self._suffix}"
