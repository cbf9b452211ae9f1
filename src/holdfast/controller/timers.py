"""Named timers on this host's clock."""

from __future__ import annotations

from holdfast.journal import clocks


class BootTimers:
    """Timers, at most one of each name. A `controller.ports.ControllerClock`."""

    def __init__(self) -> None:
        self._at_ns: dict[str, int] = {}

    def now_ns(self) -> int:
        """CLOCK_BOOTTIME, in nanoseconds."""
        return clocks.now_ns()

    def set(self, name: str, at_ns: int) -> None:
        """Set, or set anew."""
        self._at_ns[name] = at_ns

    def cancel(self, name: str) -> None:
        """Forget it, if it is there."""
        self._at_ns.pop(name, None)

    def next_ns(self) -> int | None:
        """When the first is due; None: there is none."""
        return min(self._at_ns.values(), default=None)

    def due(self, now_ns: int) -> list[str]:
        """Take out what is due, earliest first."""
        names = sorted((at, name) for name, at in self._at_ns.items() if at <= now_ns)
        for _, name in names:
            del self._at_ns[name]
        return [name for _, name in names]
