"""Orbax: a `CheckpointManager`, or v1's `Checkpointer`, whose decisions are Holdfast's.

    manager = wrap(ocp.CheckpointManager(folder), until=1000)
    step = manager.latest_step()  # of the checkpoint that the run goes on from; None: from scratch

    checkpointer = wrap(ocp.v1.training.Checkpointer(folder), until=1000)
    newest = checkpointer.latest  # that checkpoint; None: from scratch

It saves in its own format, in the background where it does. When to save, which step to go on from
and when to stop are answered by the run. Tried in one process and in two under `jax.distributed`,
v1 with 0.12.8 alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.adapters.newer import say_if_newer
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.session.framework_loop import Due
from holdfast.session.run import Run
from holdfast.session.start import start

TRIED = ("0.11.17", "0.12")


def wrap(manager: Any, *, until: int, base: int = 0, **how: Any) -> OrbaxManager | OrbaxV1:
    """One that does as the run says, in front of this one; call it right before the loop.

    `until`: the number of steps. `base`: the number of the first one, 0 or 1. `how`: of
    `holdfast.start`. Raises as `Run.framework` does.
    """
    if base not in (0, 1):
        raise ConfigurationError(f"steps count from 0 or from 1, not from {base}")
    check_version("Orbax", version("orbax-checkpoint"), TRIED)
    kind = OrbaxManager if hasattr(manager, "latest_step") else OrbaxV1
    return kind(manager, start(**how), until, base)


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
        self._last: Callable[[], Any] | None = None  # saves the last step, once more if it must be
        if steps := self._steps():
            path, step = self._loop.folder / self._name(max(steps)), max(steps) + self._shift
            say_if_newer(run.name, path, step, self._loop.resume_step)
        self._loop.begin(until=until, generators=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    @abstractmethod
    def _steps(self) -> Collection[int]:
        """Those that have a checkpoint."""

    @abstractmethod
    def _await_write(self) -> None:
        """Wait for the save that goes on in the background."""

    def should_save(self, step: int) -> bool:
        """Whether the run wants this step saved."""
        return self._due(step).saves

    def close(self) -> None:
        """Let what is being written end. After the last step, the run is done then."""
        self._await_saved()
        is_over = self._asked is not None and self._asked[0] + self._shift == self._until
        while is_over and self._loop.finishing():
            if self._last is None:
                raise StoreUnavailable(
                    f"the last step, {self._until - self._shift}, could not be saved: give it to "
                    "save, as any other"
                )
            self._last()
            self._end_save()
        self._manager.close()

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
        wants, is_last = due.saves or force, step + self._shift == self._until
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
        except OSError as error:
            self._loop.failed(step + self._shift, error)
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
            self._await_write()
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


class OrbaxManager(OrbaxDecisions):
    """In front of a `CheckpointManager`."""

    def __init__(self, manager: Any, run: Run, until: int, base: int) -> None:
        # Orbax before 0.12 asks JAX's preemption service in each save, which is off: SIGTERM is
        # the run's (`holdfast run` sets JAX_ENABLE_PREEMPTION_SERVICE=false).
        manager.reached_preemption = lambda step: False  # noqa: ARG005 - Orbax's
        super().__init__(manager, run, until, base)

    def latest_step(self) -> int | None:
        """The newest that counts: at first the one that the run goes on from."""
        if self._asked is None:
            return self._resumed()
        newest: int | None = self._manager.latest_step()
        return newest

    def restore(self, step: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Of that step; None: of the one that the run goes on from."""
        with self._loop.restoring():
            chosen = self.latest_step() if step is None else step
            return self._manager.restore(chosen, *args, **kwargs)

    def reached_preemption(self, step: int) -> bool:
        """Whether the run is to stop after this step: it is saved, and `wait_until_finished`."""
        return self._due(step).stops

    def save(self, step: int, *args: Any, force: bool = False, **kwargs: Any) -> bool:
        """Save it if the run wants it, or you do (`force`); whether it was saved.

        Raises Stop once a stop's save counts, StoreUnavailable where the last step never will.
        """
        return bool(self._save(self._manager.save, step, *args, force=force, **kwargs))

    def wait_until_finished(self) -> None:
        """What is being written is there; after a stop's save, raises Stop once it counts."""
        self._await_saved()

    def _steps(self) -> Collection[int]:
        steps: Collection[int] = self._manager.all_steps()
        return steps

    def _await_write(self) -> None:
        self._manager.wait_until_finished()


class OrbaxV1(OrbaxDecisions):
    """In front of v1's `training.Checkpointer`.

    `save`, `save_checkpointables` and their `_async` save if the run wants it, or you do (`force`);
    else they give False, the others None. They raise Stop once a stop's save counts.
    """

    _SAVES = frozenset(
        f"save{of}{how}" for of in ("", "_pytree", "_checkpointables") for how in ("", "_async")
    )

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._manager, name)
        if name in self._SAVES:
            return partial(self._save_by, found, None if name.endswith("_async") else False)
        if name.startswith("load"):
            return partial(self._load_by, found)
        return found

    def __enter__(self) -> OrbaxV1:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._manager.close()

    @property
    def latest(self) -> Any:
        """The newest that counts: at first the one that the run goes on from."""
        if self._asked is not None:
            return self._manager.latest
        step = self._resumed()
        return next((one for one in self._manager.checkpoints if one.step == step), None)

    def wait(self) -> None:
        """What is being written is there; after a stop's save, raises Stop once it counts."""
        self._await_saved()

    def _save_by(
        self,
        save: Callable[..., Any],
        none: Any,
        step: int,
        *args: Any,
        force: bool = False,
        **how: Any,
    ) -> Any:
        saved = self._save(save, step, *args, force=force, **how)
        return none if saved is None else saved

    def _load_by(self, load: Callable[..., Any], step: Any = None, *args: Any, **how: Any) -> Any:
        with self._loop.restoring():
            return load(self.latest if step is None else step, *args, **how)

    def _steps(self) -> Collection[int]:
        return [one.step for one in self._manager.checkpoints]

    def _await_write(self) -> None:
        self._manager.wait()
