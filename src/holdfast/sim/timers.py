"""The timers of a controller in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import events as ev
from holdfast.sim.clock import VirtualClock

Do = Callable[[], None]


def at_once(do: Do) -> None:
    """The controller has nothing else to do: it hears of a timer when that is due."""
    do()


class VirtualTimers:
    """A `controller.ports.ControllerClock`."""

    def __init__(
        self,
        clock: VirtualClock,
        feed: Callable[[ev.Event], None],
        when_heard: Callable[[Do], None] = at_once,
    ) -> None:
        """`when_heard`: have it done as soon as the controller's loop comes round."""
        self._clock = clock
        self._feed = feed
        self._when_heard = when_heard
        self._at_ns: dict[str, int] = {}

    def now_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._clock.now_ns

    def set(self, name: str, at_ns: int) -> None:
        """It goes off then, unless it was set anew or cancelled."""
        self._at_ns[name] = at_ns
        self._clock.at(at_ns, lambda: self._when_heard(lambda: self._fire(name, at_ns)))

    def at_ns(self, name: str) -> int | None:
        """When it goes off; None: it was not set."""
        return self._at_ns.get(name)

    def cancel(self, name: str) -> None:
        """Forget it."""
        self._at_ns.pop(name, None)

    def clear(self) -> None:
        """Forget them all."""
        self._at_ns.clear()

    def slept(self) -> None:
        """The machine was asleep: those that came due meanwhile go off now."""
        for name, at_ns in sorted(self._at_ns.items(), key=lambda item: item[1]):
            if at_ns <= self._clock.now_ns:
                self._fire(name, at_ns)

    def _fire(self, name: str, at_ns: int) -> None:
        if self._at_ns.get(name) == at_ns:
            del self._at_ns[name]
            self._feed(ev.TimerFired(self._clock.now_ns, name))
