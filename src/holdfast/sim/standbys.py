"""Whether a standby waits for the next attempt, in simulated time.

It is ready a while after its attempt was launched. Where failures come close together a reserve is
kept behind it, by the rules that a host goes by (`core.hosts.standby`), if there is memory for it.
"""

from __future__ import annotations

from holdfast.core.hosts.standby import StandbyRules


class SimulatedStandbys:
    """Those of one run; each takes `ready_ns` to import."""

    def __init__(self, ready_ns: int) -> None:
        self._ready_ns = ready_ns
        self._rules = StandbyRules()
        self._standby_at_ns: int | None = None  # ready from then on; None: no attempt has begun
        self._reserve_at_ns: int | None = None  # None: there is none

    def launched(self, now_ns: int) -> None:
        """An attempt begins, with the standby that there was; the reserve takes its place."""
        if not self._rules.fails_often(now_ns):
            self._reserve_at_ns = None
        self._rules.began(now_ns)
        ready_ns = now_ns + self._ready_ns
        reserve_at_ns = self._reserve_at_ns
        self._standby_at_ns = ready_ns if reserve_at_ns is None else min(reserve_at_ns, ready_ns)
        self._reserve_at_ns = None
        if self._rules.fails_often(now_ns):
            self._reserve_at_ns = max(now_ns, self._standby_at_ns) + self._ready_ns

    def is_ready(self, now_ns: int) -> bool:
        """Whether a restart at this moment is a warm one."""
        return self._standby_at_ns is not None and now_ns >= self._standby_at_ns
