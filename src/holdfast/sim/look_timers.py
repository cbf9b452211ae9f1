"""The timers of a simulated run's controller, among them that of its looks for ranks that hang.

A look at ranks that step finds nothing, and the next one is as far from finding anything. So none
is taken until they stand still; what is decided then is the same, which is tested with the folding
switched off.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import events as ev
from holdfast.core.run.state import Timer
from holdfast.sim.clock import VirtualClock
from holdfast.sim.timers import VirtualTimers


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
