"""How many saves there were, to memory and to disk, and what they cost, for the report."""

from __future__ import annotations

from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save import events as news


class SaveCounts:
    """The saves of one supervisor, from what its run's machine hears and answers."""

    def __init__(self) -> None:
        self._memory = self._memory_blocked_ns = 0
        self._disk = self._flushes = self._flushed_ns = 0
        self._blocked_ns: list[int] = []  # by each rank's copy of what is not sealed yet
        self._flushing_since_ns: int | None = None

    @property
    def fact(self) -> dict[str, Any]:
        """Sums of the supervisor's whole life: of several the last counts."""
        return {
            "fact": "saves",
            "memory": self._memory,
            "memory_blocked_ns": self._memory_blocked_ns,
            "disk": self._disk,
            "drains": self._flushes,
            "drained_ns": self._flushed_ns,
        }

    def event(self, event: ev.Event) -> bool:
        """Count it; whether it is time to tell: a set is durable, or an attempt is over."""
        if isinstance(event, ev.SaveTook):
            self._blocked_ns.append(event.blocked_ns)
        elif isinstance(event, ev.Sealed):
            self._memory += 1
            self._memory_blocked_ns += max(self._blocked_ns, default=0)
            self._blocked_ns.clear()
        elif isinstance(event, ev.FlushFailed | ev.FlushCommitFailed):
            self._flushing_since_ns = None
        elif isinstance(event, ev.FlushCommitted):
            self._disk += 1
            if self._flushing_since_ns is not None:
                self._flushes += 1
                self._flushed_ns += event.at_ns - self._flushing_since_ns
                self._flushing_since_ns = None
            return True
        elif isinstance(event, ev.Heard) and isinstance(event.news, news.Committed):
            self._disk += 1
            return True
        return isinstance(event, ev.TreeGone)

    def action(self, action: act.Action, at_ns: int) -> None:
        """Take the time from which a flush lasts."""
        if isinstance(action, act.Flush) and self._flushing_since_ns is None:
            self._flushing_since_ns = at_ns
