"""Faults of a fleet, drawn by the laws of a scenario.

What is held, and what an event costs, follows from the failures and not from the hosts: those that
have not failed yet are in one cohort (`lives`), the others have a life of their own here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from holdfast.sim.faults import IN_PLACE, TOGETHER, AnnouncedLoss, Fault, FaultCause
from holdfast.sim.lives import FAR_NS, FIRST, DueFault, HostLife, Lives
from holdfast.sim.model import Scenario


class Drawn:
    """The faults of `scenario`; `seed` decides them all.

    A host that was lost does not fail again before it is renewed; after the failure of a process
    its host is as new, but no new machine: infant mortality does not begin again. A rack or slice
    is as new after it has failed, and fails unseen while none of its hosts is there. Raises
    ValueError for a law by which failures never end.
    """

    tells_arrivals = False

    def __init__(self, scenario: Scenario, seed: int) -> None:
        fleet, failures = scenario.fleet, scenario.failures
        self._hosts = fleet.hosts
        self._now_ns = 0
        self._due: list[tuple[int, int, DueFault]] = []  # by time, then in the order of drawing
        self._drawn = count()
        self._lives: dict[FaultCause, Lives] = {}
        self._sizes: dict[FaultCause, int] = {}  # how many hosts a rack or slice has
        self._life: dict[int, HostLife] = {}  # of the hosts that are not in their first
        self._machine: dict[
            int, HostLife
        ] = {}  # of those that are not the first, for infants alone
        self._unseen: dict[tuple[FaultCause, int], DueFault] = {}
        for cause, law, size in (
            (FaultCause.HOST, failures.between, 1),
            (FaultCause.RACK, failures.rack_between, fleet.hosts_per_rack),
            (FaultCause.SLICE, failures.slice_between, fleet.hosts_per_slice),
        ):
            if law is not None and size:
                members = -(-fleet.hosts // size)
                self._lives[cause] = Lives(cause, law, members, failures, seed)
                if cause in TOGETHER:
                    self._sizes[cause] = size
        self._of_hosts = self._lives.get(FaultCause.HOST)
        self._early: Lives | None = None
        if failures.early is not None:
            law, hosts = failures.early, fleet.hosts
            self._early = Lives(FaultCause.HOST, law, hosts, failures, seed, early=True)
        self._all = [*self._lives.values(), *([self._early] if self._early else [])]
        self._settle()

    @property
    def hosts_at_start(self) -> int:
        """All of them."""
        return self._hosts

    def next_ns(self) -> int | None:
        """When the next event is; None: never again, unless a host is renewed."""
        return self._due[0][0] if self._due else None

    def pop(self) -> Fault | AnnouncedLoss:
        """Take that event. Raises IndexError where there is none."""
        self._now_ns, _, due = heappop(self._due)
        happened = self._happen(due)
        self._settle()
        return happened

    def renewed(self, host: int, at_ns: int) -> None:
        """The host is replaced or repaired: a new one from `at_ns` on, which may lie ahead.

        Raises ValueError for a host that the fleet has not, and for a time before the last event.
        """
        if not 0 <= host < self._hosts:
            raise ValueError(f"host {host} is none of the fleet's {self._hosts}")
        if at_ns < self._now_ns:
            raise ValueError(f"host {host} cannot be new at {at_ns} ns: {self._now_ns} ns is past")
        self._renew(host, at_ns)
        if self._early is not None:
            machine = self._machine[host] = _next(self._machine.get(host, FIRST), at_ns)
            self._add(self._early.later(host, machine))
        self._settle()

    def _happen(self, due: DueFault) -> Fault | AnnouncedLoss:
        if due.lost_ns is not None:
            return AnnouncedLoss(due.at_ns, due.place, due.lost_ns, due.comes_true)
        hosts: tuple[int, ...] = (due.place,)
        if due.cause in TOGETHER:
            hosts = self._there(due)
            self._add(self._next_life(due))
        if due.cause in IN_PLACE:
            self._renew(due.place, due.at_ns)
        else:
            for host in hosts:
                self._life[host] = HostLife(self._life.get(host, FIRST).number + 1, FAR_NS)
                if self._early is not None:
                    self._machine[host] = HostLife(
                        self._machine.get(host, FIRST).number + 1, FAR_NS
                    )
        return Fault(due.at_ns, due.cause, hosts)

    def _renew(self, host: int, at_ns: int) -> None:
        life = self._life[host] = _next(self._life.get(host, FIRST), at_ns)
        if self._of_hosts is not None:
            self._add(self._of_hosts.later(host, life))
        if self._unseen:
            for cause, size in self._sizes.items():
                self._see(cause, host // size, at_ns)

    def _see(self, cause: FaultCause, place: int, at_ns: int) -> None:
        """A rack or slice has a host again: its failures count from then on."""
        due = self._unseen.pop((cause, place), None)
        while due is not None and due.at_ns < at_ns:
            due = next(iter(self._next_life(due)), None)
        self._add([due] if due else [])

    def _next_life(self, due: DueFault) -> list[DueFault]:
        """Of a rack or slice: it is as new after it has failed."""
        return self._lives[due.cause].later(due.place, HostLife(due.life + 1, due.at_ns))

    def _there(self, due: DueFault) -> tuple[int, ...]:
        """The hosts of a rack or slice that are there at that time."""
        size = self._sizes[due.cause]
        hosts = range(due.place * size, min(self._hosts, (due.place + 1) * size))
        return tuple(h for h in hosts if self._life.get(h, FIRST).born_ns <= due.at_ns)

    def _add(self, due: list[DueFault]) -> None:
        for one in due:
            heappush(self._due, (one.at_ns, next(self._drawn), one))

    def _settle(self) -> None:
        """Make what is first in the queue the next thing that happens."""
        while True:
            for lives in self._all:
                while lives.known_ns < (self._due[0][0] if self._due else FAR_NS):
                    self._add(lives.first())
            if not self._due:
                return
            due = self._due[0][2]
            if due.cause in TOGETHER:
                if self._there(due):
                    return
                self._unseen[due.cause, due.place] = due
            else:
                lives_of = self._machine if due.early else self._life
                if due.life == lives_of.get(due.place, FIRST).number:
                    return
            heappop(self._due)


def _next(life: HostLife, at_ns: int) -> HostLife:
    """Of the same place; one that has ended already was counted then."""
    return HostLife(life.number + (life.born_ns < FAR_NS), at_ns)
