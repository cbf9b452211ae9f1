"""Orbax: a `CheckpointManager` whose decisions are Holdfast's.

    manager = wrap(ocp.CheckpointManager(folder), until=1000)
    step = manager.latest_step()  # of the checkpoint that the run goes on from; None: from scratch

The manager saves in its own format, in the background where it does. When to save, which step to go
on from and when to stop are answered by the run: `should_save`, `save`, `latest_step`,
`reached_preemption` and `wait_until_finished` mean that. Tried with Orbax 0.12.8, in one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.session.framework_loop import Due, FrameworkLoop
from holdfast.session.start import start


def wrap(manager: Any, *, until: int, base: int = 0, **how: Any) -> OrbaxManager:
    """A manager that does as the run says, in front of this one; call it right before the loop.

    `until`: the number of steps. `base`: the number of the first one, 0 or 1. `how`: of
    `holdfast.start`. Raises as `Run.framework` does.
    """
    if base not in (0, 1):
        raise ConfigurationError(f"steps count from 0 or from 1, not from {base}")
    run = start(**how)
    return OrbaxManager(manager, run.framework(Path(manager.directory)), until, base)


class OrbaxManager:
    """What `wrap` makes: all that is not said here, the manager itself answers."""

    def __init__(self, manager: Any, loop: FrameworkLoop, until: int, base: int) -> None:
        self._manager = manager
        self._loop = loop
        self._until = until
        self._shift = 1 - base
        self._asked: tuple[int, Due] | None = None  # the step that is due or not, by its number
        self._writing: int | None = None  # the step whose save goes on beside the training
        self._stops = False
        loop.begin(until=until, generators=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    # --- where to go on from ----------------------------------------------------------------

    def latest_step(self) -> int | None:
        """The newest that counts: at first the one that the run goes on from."""
        if self._asked is not None:
            newest: int | None = self._manager.latest_step()
            return newest
        step = self._loop.resume_step
        return step - self._shift if step else None

    def restore(self, step: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Of that step; None: of the one that the run goes on from."""
        return self._manager.restore(self.latest_step() if step is None else step, *args, **kwargs)

    # --- at each step -----------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Whether the run wants this step saved."""
        return self._due(step).saves

    def reached_preemption(self, step: int) -> bool:
        """Whether the run is to stop after this step: it is saved, and `wait_until_finished`."""
        return self._due(step).stops

    def save(self, step: int, *args: Any, force: bool = False, **kwargs: Any) -> bool:
        """Save it if the run wants it, or you do (`force`); whether it was saved.

        Raises Stop once a stop's save counts, StoreUnavailable where the last step never will.
        """
        due = self._due(step)
        wants, is_last = due.saves or force, step + self._shift == self._until
        if is_last and not wants:
            self._end_save()  # the last one is ordered once that counts
            wants = self._loop.finishing()
        if not wants:
            if due.stops:
                self._loop.leave()
            return False
        self._end_save()
        try:
            if step in self._manager.all_steps():  # of an attempt that the run does not go on from
                self._manager.delete(step)
            with self._loop.saving():
                saved = bool(self._manager.save(step, *args, force=True, **kwargs))
        except OSError as error:
            self._loop.failed(step + self._shift, error)
            return False
        self._writing = step
        self._stops = due.stops
        if due.stops or is_last:
            self.wait_until_finished()
        return saved

    def wait_until_finished(self) -> None:
        """What is being written is there; after a stop's save, raises Stop once it counts."""
        self._end_save()
        if self._stops:
            self._stops = False
            self._loop.leave()

    def close(self) -> None:
        """Let what is being written end. After the last step, the run is done then."""
        self.wait_until_finished()
        is_over = self._asked is not None and self._asked[0] + self._shift == self._until
        if is_over and self._loop.finishing():
            raise StoreUnavailable(
                f"the last step, {self._until - self._shift}, could not be saved; make room in "
                f"{self._loop.folder} and start the run again"
            )
        self._manager.close()

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
            self._manager.wait_until_finished()
        except OSError as error:
            self._loop.failed(step + self._shift, error)
            return
        self._loop.saved(step + self._shift, self._loop.folder / self._name(step))

    def _name(self, step: int) -> str:
        """Of its folder, by the manager's own way to name them."""
        for path in self._loop.folder.iterdir():
            digits = path.name.rpartition("_")[2]
            if digits.isdecimal() and int(digits) == step and path.is_dir():
                return path.name
        return str(step)
