"""What of Lightning's epochs it keeps to itself, and tells no callback.

Where another Lightning has it no more, the training goes on, and a sentence says what that costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from lightning.pytorch.callbacks import Callback

from holdfast.session.say import say

T = TypeVar("T")


class EpochBegins(Callback):  # type: ignore[misc]
    """Stands before all other callbacks, and tells `begins` where an epoch begins."""

    def __init__(self, begins: Callable[[Any], None]) -> None:
        self._begins = begins

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """All that ends the epoch before is done."""
        self._begins(trainer)


def loaders(trainer: Any) -> list[Any]:
    """All that the training draws from."""

    def flat() -> list[Any]:
        return list(trainer.fit_loop._combined_loader.flattened)

    return of_lightnings_own(flat, [])


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
