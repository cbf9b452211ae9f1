"""The hosts of a simulated fleet: which are lost, who takes their place, and when all are there."""

from __future__ import annotations

from random import Random

from holdfast.sim.clock import to_ns
from holdfast.sim.model import Fleet, Recovery

PROVISION, QUEUE = "provision", "queue"  # kinds of a wait: for a spare, for another machine


class Hosts:
    """Places 0 to `hosts` − 1, each with a machine in it, or one on its way."""

    def __init__(self, fleet: Fleet, recovery: Recovery, rng: Random) -> None:
        self.spares = fleet.spares
        self.repairs_ns: list[int] = []  # when machines come back, not told yet
        self._recovery = recovery
        self._rng = rng
        self._arrivals: dict[int, tuple[int, str]] = {}  # by place: when, and after what wait

    def lose(self, place: int, at_ns: int) -> int:
        """The machine there is gone; when the next one is in its place."""
        recovery = self._recovery
        if recovery.repair is not None:
            self.repairs_ns.append(at_ns + to_ns(recovery.repair.sample_s(self._rng)))
        if self.spares:
            self.spares -= 1
            law, wait = recovery.swap, PROVISION
        else:
            law, wait = recovery.replace, QUEUE
        arrival_ns = at_ns + to_ns(law.sample_s(self._rng))
        self._arrivals[place] = arrival_ns, wait
        return arrival_ns

    def complete_at(self, at_ns: int) -> tuple[int, str]:
        """When every place has a machine, not before `at_ns`, and what the wait is for."""
        self._arrivals = {p: a for p, a in self._arrivals.items() if a[0] > at_ns}
        return max(self._arrivals.values(), default=(at_ns, PROVISION))
