"""Looks at the ranks of a simulated run, by which the core finds out that they hang.

A look at ranks that step finds nothing, and the next one is as far from finding anything. So none
is taken until they stand still; what is decided then is the same, which is tested with the folding
switched off.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import events as ev
from holdfast.core.hang import events as hang
from holdfast.core.run.state import Timer
from holdfast.sim.clock import VirtualClock
from holdfast.sim.timers import VirtualTimers
from holdfast.sim.training import Training


class LookTimers(VirtualTimers):
    """The controller's timers; that of its looks waits for as long as the ranks step (`folds`)."""

    def __init__(
        self, clock: VirtualClock, feed: Callable[[ev.Event], None], *, folds: bool
    ) -> None:
        super().__init__(clock, feed)
        self._folds = folds
        self._are_stepping = False

    def step(self) -> None:
        """The ranks step from now on."""
        self._are_stepping = True

    def stand_still(self) -> None:
        """From now on the ranks are looked at; a look that was due finds them as they are now."""
        self._are_stepping = False
        at_ns = self.at_ns(Timer.HANG)
        if at_ns is not None and at_ns <= self.now_ns():
            self.set(Timer.HANG, self.now_ns())

    def _fire(self, name: str, at_ns: int) -> None:
        if not (self._are_stepping and self._folds and name == Timer.HANG):
            super()._fire(name, at_ns)


def look(training: Training | None, resumed_step: int, at_ns: int) -> hang.RankLook:
    """What the pages of ranks show that step together; `at_ns`: now, or when they came to stand."""
    if training is None:
        return hang.RankLook(0, doing=hang.STARTING, process="S")
    step = training.completed(at_ns)
    saving_since_ns = training.saving_since_ns(at_ns)
    return hang.RankLook(
        0,
        doing=hang.TRAINING,
        step=step,
        step_ns=min(training.passed_ns(step), at_ns) if step > resumed_step else 0,
        span="" if saving_since_ns is None else "save",
        span_ns=saving_since_ns or 0,
        span_ended_ns=0 if saving_since_ns is not None else training.anchor_ns,
        process="S",
        samples=max(0, step - resumed_step - 1),
        median_ns=training.step_ns,
        longest_ns=training.step_ns,
    )
