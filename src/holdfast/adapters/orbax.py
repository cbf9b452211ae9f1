"""Orbax: a `CheckpointManager`, or v1's `Checkpointer`, whose decisions are Holdfast's.

    manager = wrap(ocp.CheckpointManager(folder), until=1000)
    step = manager.latest_step()  # of the checkpoint that the run goes on from; None: from scratch

    checkpointer = wrap(ocp.v1.training.Checkpointer(folder), until=1000)
    newest = checkpointer.latest  # that checkpoint; None: from scratch

It saves in its own format, in the background where it does. When to save, which step to go on from
and when to stop are answered by the run. A `CheckpointManager` was tried in one process and in two
under `jax.distributed`; v1 in one, with 0.12.8 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version
from typing import Any

from holdfast.adapters.orbax_decisions import OrbaxDecisions
from holdfast.adapters.versions import check_version
from holdfast.errors import ConfigurationError
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
