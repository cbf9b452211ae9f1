"""Whether a standby waits for the next attempt, in simulated time.

The first is ready a while after the first attempt was launched: then the fork server has imported
(`core.hosts.standby`), and each further one is a fork of it.
"""

from __future__ import annotations


class SimulatedStandbys:
    """Those of one run; `ready_ns`: what the imports take."""

    def __init__(self, ready_ns: int) -> None:
        self._ready_ns = ready_ns
        self._ready_at_ns: int | None = None  # None: no attempt has begun

    def launched(self, now_ns: int) -> None:
        """An attempt begins."""
        if self._ready_at_ns is None:
            self._ready_at_ns = now_ns + self._ready_ns

    def is_ready(self, now_ns: int) -> bool:
        """Whether a restart at this moment is a warm one."""
        return self._ready_at_ns is not None and now_ns >= self._ready_at_ns
