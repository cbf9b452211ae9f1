"""The hosts of a simulated fleet: which are lost, who takes their place, and when all are there."""

from __future__ import annotations

from random import Random

from holdfast.core.hosts.spares import Instead, Repaired, SparePool
from holdfast.sim.clock import NEVER_NS, SECOND, to_ns
from holdfast.sim.laws import Law
from holdfast.sim.model import Fleet, Recovery

PROVISION, QUEUE = "provision", "queue"  # kinds of a wait: for a spare, for another machine


class Hosts:
    """Places 0 to `hosts` − 1, each with a machine in it, or one on its way, or none to be had.

    Who takes a lost one's place is decided in `core.hosts.spares`; how long that takes is drawn.
    """

    def __init__(self, fleet: Fleet, recovery: Recovery, rng: Random, at_start: int) -> None:
        """So many of the places have a machine at the start."""
        self._spares = SparePool(fleet.spares)
        self._repairs_ns: list[int] = []  # when machines come back, not told yet
        self._recovery = recovery
        self._rng = rng
        self._vacated_ns: dict[int, int] = {}
        self._expected: dict[int, tuple[int, int]] = {}  # by place: since when, how long on average
        self._last = 0, PROVISION  # the last arrival, as far as one knew
        missing = range(at_start, fleet.hosts)
        self._arrivals = dict.fromkeys(missing, (NEVER_NS, QUEUE))  # by place: when, what wait

    def lose(self, place: int, at_ns: int) -> int:
        """The machine there is gone; when the next one is in its place, `NEVER_NS`: unknown."""
        recovery = self._recovery
        if recovery.repair is not None:
            self._repairs_ns.append(at_ns + to_ns(recovery.repair.sample_s(self._rng)))
        instead, _ = self._spares.lost(is_there_another=recovery.replace != recovery.repair)
        if instead is Instead.SPARE:
            self._expect(place, at_ns, recovery.swap)
            return self._comes(place, at_ns + to_ns(recovery.swap.sample_s(self._rng)), PROVISION)
        self._expect(place, at_ns, recovery.replace, recovery.repair)
        if instead is Instead.ITSELF:
            return self._comes(place, NEVER_NS, QUEUE)
        return self._comes(place, at_ns + to_ns(recovery.replace.sample_s(self._rng)), QUEUE)

    def take_repairs(self) -> list[int]:
        """When the machines come back that were lost since this was asked last."""
        repairs_ns, self._repairs_ns = self._repairs_ns, []
        return repairs_ns

    def repaired(self, at_ns: int) -> tuple[int, int] | None:
        """A lost machine is well again. The place that it takes, and when; None: nobody waits."""
        ready_ns = at_ns + to_ns(self._recovery.swap.sample_s(self._rng))
        waiting = [(arrival, place) for place, (arrival, wait) in self._arrivals.items()
                   if wait == QUEUE and arrival > ready_ns]  # fmt: skip
        becomes, _ = self._spares.repaired(is_waited_for=bool(waiting))
        if becomes is not Repaired.PLACED:
            return None
        _, place = max(waiting)
        self._expect(place, at_ns, self._recovery.swap)
        return place, self._comes(place, ready_ns, QUEUE)

    def vacate(self, place: int, at_ns: int) -> None:
        """The machine there is gone; somebody else will tell when another one has come."""
        self._vacated_ns[place] = at_ns
        self._expected.pop(place, None)
        self._comes(place, NEVER_NS, QUEUE)

    def arrived(self, place: int, at_ns: int) -> None:
        """A machine has come for that place, and is set up there."""
        self._expect(place, at_ns, self._recovery.swap)
        wait = PROVISION if self._vacated_ns.get(place) == at_ns else QUEUE
        self._comes(place, at_ns + to_ns(self._recovery.swap.sample_s(self._rng)), wait)

    def complete_at(self, at_ns: int) -> tuple[int, str]:
        """When every place has a machine, not before `at_ns`, and what the wait is for."""
        self._last = max(self._arrivals.values(), default=self._last)
        self._arrivals = {p: a for p, a in self._arrivals.items() if a[0] > at_ns}
        return max(at_ns, self._last[0]), self._last[1]

    def next_at(self, at_ns: int) -> int | None:
        """When the next machine comes after that; None: none is known to."""
        later = (arrival for arrival, _ in self._arrivals.values() if at_ns < arrival < NEVER_NS)
        return min(later, default=None)

    def expected(self, at_ns: int) -> dict[int, int | None]:
        """The places without a machine, and when one is expected there; None: nobody knows.

        By the law's mean: what chance will bring is not known ahead. What is overdue is taken to
        need as long again.
        """
        found: dict[int, int | None] = {}
        for place, (arrival, _) in self._arrivals.items():
            if arrival > at_ns:
                known = self._expected.get(place)
                found[place] = None if known is None else _still_to_come(*known, at_ns)
        return found

    def _expect(self, place: int, since_ns: int, *laws: Law | None) -> None:
        means_s = [law.mean_s for law in laws if law is not None]
        self._expected[place] = since_ns, to_ns(min(means_s))

    def _comes(self, place: int, at_ns: int, wait: str) -> int:
        self._arrivals[place] = at_ns, wait
        return at_ns


def _still_to_come(since_ns: int, mean_ns: int, at_ns: int) -> int:
    return since_ns + mean_ns if since_ns + mean_ns > at_ns else at_ns + max(SECOND, mean_ns)
