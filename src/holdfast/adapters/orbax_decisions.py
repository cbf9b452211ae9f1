"""What Holdfast decides for Orbax, before a `CheckpointManager` as before v1's `Checkpointer`.

Which step is saved, which one is gone on from, and when to stop. Orbax writes, in the background
where it does; a save counts once its files are there.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.adapters.newer import say_if_newer
from holdfast.errors import StoreUnavailable
from holdfast.session.framework_loop import Due
from holdfast.session.run import Run

_STATUS = re.compile(r"[A-Z_]{6,}: ")  # so begins what TensorStore says, which writes the arrays


class OrbaxDecisions(ABC):
    """What both faces share: all that is not said here or there, the manager itself answers."""

    def __init__(self, manager: Any, run: Run, until: int, base: int) -> None:
        self._manager = manager
        self._loop = run.framework(Path(manager.directory))
        self._until = until
        self._shift = 1 - base
        self._asked: tuple[int, Due] | None = None  # the step that is due or not, by its number
        self._writing: int | None = None  # the step whose save goes on beside the training
        self._stops = False
        self._is_over = False
        self._last: Callable[[], Any] | None = None  # saves the last step, once more if it must be
        if steps := self._steps():
            path, step = self._loop.folder / self._name(max(steps)), max(steps) + self._shift
            say_if_newer(run.name, path, step, self._loop.resume_step)
        self._loop.begin(until=until)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    @abstractmethod
    def _steps(self) -> Collection[int]:
        """Those that have a checkpoint."""

    @abstractmethod
    def _await_write(self) -> None:
        """Wait for the save that goes on in the background."""

    def should_save(self, step: int) -> bool:
        """Whether the run wants this step saved; the last one is always given to `save`."""
        return self._due(step).saves or self._is_last(step)

    def end_at(self, step: int) -> None:
        """The loop ends with this step, and not with `until`; before that step is given to `save`.

        After it as well, where that only shows then: give the step to `save` once more.
        """
        self._until = step + self._shift

    def is_over(self) -> bool:
        """Whether an earlier attempt ended its loop by `end_at`: train no step, and close."""
        self._is_over = self._loop.is_over()
        return self._is_over

    def close(self) -> None:
        """Let what is being written end. After the last step, the run is done then."""
        self._await_saved()
        is_over = self._is_over
        if self._asked is not None:
            is_over = self._is_last(self._asked[0])
        while is_over and self._loop.finishing():
            if self._last is None:
                raise StoreUnavailable(
                    f"the last step, {self._until - self._shift}, could not be saved: give it to "
                    "save, as any other"
                )
            self._last()
            self._end_save()
        self._manager.close()

    def _is_last(self, step: int) -> bool:
        return step + self._shift == self._until

    def _resumed(self) -> int | None:
        """The step that the run goes on from; None: from scratch, or the loop has begun."""
        step = self._loop.resume_step
        return step - self._shift if step and self._asked is None else None

    def _save(
        self, save: Callable[..., Any], step: int, *args: Any, force: bool, **how: Any
    ) -> Any:
        """By that method of the manager's, if the run wants it, or the user does; what it returns.

        None: it was not saved. Raises Stop once a stop's save counts, StoreUnavailable where the
        last step never will.
        """
        due = self._due(step)
        wants, is_last = due.saves or force, self._is_last(step)
        if is_last and not wants:
            self._end_save()  # the last one is ordered once that counts
            wants = self._loop.finishing()
        if not wants:
            if due.stops:
                self._loop.leave()
            return None
        self._end_save()
        write = partial(self._write, save, step, *args, **how)
        self._last = write if is_last else None
        saved = write()
        if saved is None:
            return None
        self._stops = due.stops
        if due.stops or is_last:
            self._await_saved()
        return saved

    def _write(self, save: Callable[..., Any], step: int, *args: Any, **how: Any) -> Any:
        try:
            if step in self._steps():  # of an attempt that the run does not go on from
                self._manager.delete(step)
            with self._loop.saving():
                saved = save(step, *args, force=True, **how)
        except (OSError, RuntimeError, ValueError) as error:
            self._fail(step, error)
            return None
        self._writing = step
        return saved

    def _await_saved(self) -> None:
        """What is being written is there; after a stop's save, raises Stop once it counts."""
        self._end_save()
        if self._stops:
            self._stops = False
            self._loop.leave()

    def _due(self, step: int) -> Due:
        """Once for each step; a save in the background that has ended meanwhile is told first."""
        if self._asked is None or self._asked[0] != step:
            if self._writing is not None and not self._manager.is_saving_in_progress():
                self._end_save()
            self._asked = step, self._loop.due(step + self._shift)
        return self._asked[1]

    def _end_save(self) -> None:
        step, self._writing = self._writing, None
        if step is None:
            return
        try:
            with self._loop.awaiting():
                self._await_write()
        except (OSError, RuntimeError, ValueError) as error:
            self._fail(step, error)
            return
        self._loop.saved(step + self._shift, self._loop.folder / self._name(step))

    def _fail(self, step: int, error: Exception) -> None:
        """A full disk, say: the training goes on. Raises the error when it is none of the store."""
        if not isinstance(error, OSError) and not _STATUS.match(str(error)):
            raise error
        self._loop.failed(step + self._shift, error)

    def _name(self, step: int) -> str:
        """Of its folder, by the manager's own way to name them."""
        for path in self._loop.folder.iterdir():
            digits = path.name.rpartition("_")[2]
            if digits.isdecimal() and int(digits) == step and path.is_dir():
                return path.name
        return str(step)
