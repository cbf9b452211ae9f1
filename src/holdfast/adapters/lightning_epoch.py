"""What of Lightning's epochs it keeps to itself, and tells no callback.

Where another Lightning has it no more, the training goes on, and a sentence says what that costs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from holdfast.adapters.data_loader import ResumableDataLoader
from holdfast.session.say import say

T = TypeVar("T")


class EpochBegins(Callback):  # type: ignore[misc]
    """Stands before all other callbacks, and tells `begins` where an epoch begins."""

    def __init__(self, begins: Callable[[Any], None]) -> None:
        self._begins = begins

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """All that ends the epoch before is done."""
        self._begins(trainer)


def last_step(trainer: Any, done: int) -> int | None:
    """By Lightning's own estimate, which may be too low; None: it cannot tell."""
    with contextlib.suppress(MisconfigurationException):
        steps = trainer.estimated_stepping_batches
        if 0 < steps < math.inf:
            return max(int(steps), done + 1)
    return None


def begin_epoch(trainer: Any) -> None:
    """Begin the next one: Lightning would go on in the epoch whose last step was restored."""

    def begin() -> None:
        trainer.fit_loop.epoch_loop.restarting = False
        if ahead(trainer):  # drawn before the generators were put back
            iter(trainer.fit_loop._data_fetcher)

    of_lightnings_own(begin, None)


def tell_loaders(trainer: Any, *, is_epoch_over: bool) -> None:
    """Before a save: what of their batches nobody has used yet."""

    def loaders() -> list[Any]:
        return list(trainer.fit_loop._combined_loader.flattened)

    nothing: list[Any] = []
    for loader in of_lightnings_own(loaders, nothing):
        if isinstance(loader, ResumableDataLoader):
            loader.ahead = ahead(trainer)
            if is_epoch_over:
                loader.end_epoch()


def ahead(trainer: Any) -> int:
    """Batches that are drawn before their turn: of data without a length, to know the last one."""

    def drawn() -> int:
        return len(getattr(trainer.fit_loop._data_fetcher, "batches", ()))

    return of_lightnings_own(drawn, 0)


def evaluates_now(trainer: Any) -> bool:
    """Whether an evaluation follows this batch, within an epoch; by the clock nobody knows."""
    if getattr(trainer, "_val_check_time_interval", None) is not None:
        return False

    def evaluates() -> bool:
        fit = trainer.fit_loop
        loop = fit.epoch_loop
        is_skipped = loop._skip_next_val or loop.val_loop.skip
        return bool(loop._should_check_val_fx(fit._data_fetcher)) and not is_skipped

    return of_lightnings_own(evaluates, False)


def let_schedulers_hear(trainer: Any) -> None:
    """The metric that they go by may be none of this epoch; where it is there, they go on as ever.

    An epoch that was broken off is all that Lightning passes over them for.
    """
    hearing = [one.monitor for one in trainer.lr_scheduler_configs if one.reduce_on_plateau]
    if all(name in trainer.callback_metrics for name in hearing):
        trainer.fit_loop._restarting = False  # its setter means more


def of_lightnings_own(look: Callable[[], T], otherwise: T) -> T:
    """What it gives; `otherwise`, if this Lightning is another one, which is said once."""
    try:
        return look()
    except (AttributeError, TypeError) as error:
        _say_missing(str(error))
        return otherwise


@lru_cache
def _say_missing(what: str) -> None:
    say(f"this Lightning is another one ({what:.200}): a restart may leave out an epoch's end")
