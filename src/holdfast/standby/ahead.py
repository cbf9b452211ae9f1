"""What one process imports ahead, and whether that is still what a cold start would import."""

from __future__ import annotations

import os
import sys

from . import learned, priority
from .freshness import Freshness
from .preload import ModuleRefused, import_all
from .surroundings import VariableReads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .channel import Task
    from .command import PythonCommand

REFUSALS_MAX = 32


class ImportsAhead:
    """Made before the first import. `names`: what was to be imported, by all tasks so far."""

    def __init__(self, command: PythonCommand) -> None:
        self.surroundings = VariableReads()
        self.names: set[str] = set()
        self._command = command
        self._libraries = learned.Libraries()
        self._freshness = Freshness(self._libraries)
        self._never: learned.NeverList | None = None

    def take(self, task: Task) -> bool:
        """Import what was learned for that task; False: it is asked for before all is there.

        Raises ModuleRefused; OSError, ValueError, TypeError or KeyError where nothing was learned
        that can be read.
        """
        names = learned.read(task.imports, self._libraries)
        self.names.update(names)
        self._never = never = learned.NeverList(task.imports)
        if task.is_lowered:
            priority.lower_again()
        with self.surroundings, _MainFile(self._command):
            return import_all(
                names, never, self._libraries, self._freshness, task.wake_fd,
                is_lowered=task.is_lowered,
            )  # fmt: skip

    def refuse(self, refused: ModuleRefused) -> bool:
        """Note what must not be imported ahead; False: there is too much of it."""
        if self._never is None or len(self._never.entries) >= REFUSALS_MAX:
            return False
        self._never.add(refused.name, refused.kind, refused.why)
        return True

    @property
    def reasons(self) -> dict[str, str]:
        """What was left out, and why."""
        return {} if self._never is None else self._never.reasons()

    def change(self, folder: str) -> str:
        """Why something must be imported anew, for the command in this folder; empty: nothing."""
        return self._freshness.change(self._command, folder)


class _MainFile:
    """Modules take a `__main__` without a file for an interactive session; CPython sets it late."""

    def __init__(self, command: PythonCommand) -> None:
        self._has_file = command.form != "code"
        self._file = os.path.abspath(command.target)

    def __enter__(self) -> None:
        if self._has_file:
            sys.modules["__main__"].__file__ = self._file

    def __exit__(self, *_: object) -> None:
        if self._has_file:
            del sys.modules["__main__"].__file__
