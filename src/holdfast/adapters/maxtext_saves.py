"""When MaxText saves, from which step it goes on, and when it stops: the run's decisions.

MaxText writes by Orbax, in the background; a save counts once its files are there.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.adapters.newer import say_if_newer
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.run import Run
from holdfast.session.say import say


class MaxTextSaves:
    """When MaxText saves, and from which step it goes on. Its step 0 is the run's step 1."""

    def __init__(self, run: Run, checkpointing: Any) -> None:
        """`checkpointing`: the module `maxtext.common.checkpointing`."""
        self._run = run
        self._theirs = checkpointing
        self._newest_of = checkpointing.latest_step
        self.has_restored = False
        self._manager: Any = None  # MaxText's, which is one of Orbax
        self._loop: FrameworkLoop | None = None
        self._has_stepped = False
        self._last: tuple[Any, Any, Any, int] | None = None
        self._writing: int | None = None  # the step whose save goes on beside the training

    def meet(self, manager: Any) -> None:
        """MaxText has made its checkpoint manager: the run says where to go on from."""
        self._manager = manager
        self._loop = self._run.framework(Path(manager.directory))
        newest = self._newest_of(manager)
        if newest is not None:
            path = self._loop.folder / str(newest)
            say_if_newer(self._run.name, path, newest + 1, self._loop.resume_step)

    def latest_step(self, manager: Any) -> int | None:
        """Until there is a step, the one to go on from; None: from scratch."""
        if manager is not self._manager or self._loop is None or self._has_stepped:
            newest: int | None = self._newest_of(manager)
            return newest
        return self._loop.resume_step - 1 if self._loop.resume_step else None

    def load(self, theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """MaxText restores; raises ConfigurationError for what it refuses."""
        with self._loop.restoring() if self._loop else contextlib.nullcontext():
            return theirs(*args, **kwargs)

    def begin(self, done: int, until: int) -> None:
        """MaxText has restored: so many steps are done, of so many."""
        if self._loop is None:
            raise ConfigurationError(
                "MaxText makes no checkpoints here: give it enable_checkpointing=true, without "
                "emergency or multi-tier checkpoints"
            )
        if done != self._loop.resume_step:
            raise ConfigurationError(
                f"MaxText begins after {done} steps, and the run goes on from step "
                f"{self._loop.resume_step}: give it another run_name, or train it as another run"
            )
        self._loop.begin(until=until)
        if done >= until:
            say(f"All {until} steps are done")
            sys.exit(0)

    def save(self, state: Any, config: Any, iterator: Any, step: int) -> None:
        """After each step. Raises Stop once a stop's save counts."""
        assert self._loop is not None  # noqa: S101 - begin has said so
        self._has_stepped = True
        if self._writing is not None and not self._manager.is_saving_in_progress():
            self._end_save()
        due = self._loop.due(step + 1, tokens=_tokens(config))
        if due.saves:
            self._begin_save(state, config, iterator, step)
        if due.stops:
            self._end_save()
            self._loop.leave()
        self._last = state, config, iterator, step  # the next step takes its arrays over
        if step + 1 == config.steps:
            self.finish()

    def finish(self) -> None:
        """No step follows, be it that the data ended early: the last one is saved, if it is not."""
        if self._loop is None or self._last is None:
            return
        last, self._last = self._last, None
        self._end_save()
        while self._loop.finishing():
            self._begin_save(*last)
            self._end_save()

    def _begin_save(self, state: Any, config: Any, iterator: Any, step: int) -> None:
        assert self._loop is not None  # noqa: S101
        self._end_save()
        try:
            with self._loop.saving():
                if step in self._theirs.all_steps(self._manager):  # the run did not go on from it
                    self._manager.delete(step)
                self._theirs.save_checkpoint(
                    self._manager, step, state, config, iterator, force=True
                )
        except (OSError, RuntimeError, ValueError) as error:
            self._loop.failed(step + 1, error)
        else:
            self._writing = step

    def _end_save(self) -> None:
        step, self._writing = self._writing, None
        if step is None or self._loop is None:
            return
        try:
            with self._loop.awaiting():
                self._theirs.wait_until_finished(self._manager)
        except (OSError, RuntimeError, ValueError) as error:
            self._loop.failed(step + 1, error)
        else:
            self._loop.saved(step + 1, self._loop.folder / str(step))


def _tokens(config: Any) -> int:
    """Of a step, padding included; 0: not known."""
    rows, length = (
        getattr(config, name, 0) for name in ("global_batch_size_to_train_on", "max_target_length")
    )
    return int(rows * length)
