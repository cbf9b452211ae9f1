"""A recorded fleet: which of its machines were there when, played to a simulated run.

The run has places, numbered from 0, and the machines that are there fill them; those left over
stand by. A machine that goes leaves its place empty: that is a fault. The next machine that is
there, at once or later, takes it: that is an arrival. What a machine costs to set up is the run's
affair. After the record's end nothing changes any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from random import Random

from holdfast.errors import ConfigurationError
from holdfast.sim.faults import IN_PLACE, TOGETHER, AnnouncedLoss, Arrival, Fault, FaultCause
from holdfast.sim.model import Fleet, Notices

NS_PER_S = 1_000_000_000


Event = Fault | AnnouncedLoss | Arrival


@dataclass(frozen=True, slots=True)
class TraceChange:
    """Machine number `machine` is there from now on (`cause` None), or something befell it.

    `machine` None: the record only counts machines; any of them.
    """

    at_ns: int
    machine: int | None
    cause: FaultCause | None


@dataclass(frozen=True, slots=True)
class Trace:
    """Changes in the order of time, from time 0 on.

    `machines`: their names. `are_there`: they are there at time 0, and others of which the record
    says nothing; else there is none at first. `notes`: what was odd about the record and how it was
    taken, a sentence each.
    """

    changes: tuple[TraceChange, ...]
    machines: tuple[str, ...]
    are_there: bool
    notes: tuple[str, ...] = ()

    @property
    def span_ns(self) -> int:
        """From time 0 to the last change."""
        return self.changes[-1].at_ns if self.changes else 0

    @property
    def has_hangs(self) -> bool:
        """Whether something hangs in it."""
        return any(change.cause is FaultCause.HANG for change in self.changes)

    @property
    def most(self) -> int:
        """So many of the machines that come and go are there at once."""
        held = most = 0
        for _, changes in groupby(self.changes, key=_at_ns):
            held += sum(1 if change.cause is None else -1 for change in changes)
            most = max(most, held)
        return most


def _at_ns(event: TraceChange | Event) -> int:
    return event.at_ns


class Replayed:
    """What `trace` brings to the places of a run on `fleet`.

    What the record leaves open is drawn from `seed`: which machine was in which place, which of
    those that are only counted has gone, and what was announced (`notices`).
    """

    tells_arrivals = True

    def __init__(
        self, trace: Trace, fleet: Fleet, seed: int = 0, notices: Notices | None = None
    ) -> None:
        """Raise ConfigurationError for a record of too many machines for the fleet, or too few."""
        _check(trace, fleet)
        rng = Random(f"{seed} trace")  # noqa: S311 - chance, no secret
        places = _Places(trace, fleet, rng)
        self.hosts_at_start = fleet.hosts if trace.are_there else 0
        happened = [
            event
            for at_ns, changes in groupby(trace.changes, key=_at_ns)
            for event in places.change(at_ns, list(changes))
        ]
        announced = _announcements(happened, self.hosts_at_start, notices or Notices(), rng)
        # What is told before the loss stands before it; sorting keeps what has the same time.
        self._events = deque(sorted(announced, key=_at_ns))

    def next_ns(self) -> int | None:
        """When the next event is; None: the record is over."""
        return self._events[0].at_ns if self._events else None

    def pop(self) -> Event:
        """Take that event. Raises IndexError where there is none."""
        return self._events.popleft()

    def renewed(self, host: int, at_ns: int) -> None:
        """Without effect: what was recorded happens, and machines come when the record says so."""


def _check(trace: Trace, fleet: Fleet) -> None:
    if trace.are_there and len(trace.machines) > fleet.hosts + fleet.spares:
        raise ConfigurationError(
            f"the trace tells of {len(trace.machines)} nodes, but the run has {fleet.hosts} hosts "
            f"and {fleet.spares} spares; simulate as many hosts, or keep only its nodes' lines"
        )
    needed = fleet.least_slices * fleet.hosts_per_slice if fleet.elastic else fleet.hosts
    if not trace.are_there and trace.most < needed:
        raise ConfigurationError(
            f"the trace never has more than {trace.most} nodes at once, but the run needs {needed} "
            "hosts to train; simulate fewer hosts, or give the trace of a larger fleet"
        )


class _Places:
    """Who is where. Machines that stand by take empty places in the order in which they came."""

    def __init__(self, trace: Trace, fleet: Fleet, rng: Random) -> None:
        self._rng = rng
        self._place: dict[int, int] = {}  # of the machines that have one
        self._spares: dict[int, None] = {}  # the others, as they came
        self._empty = list(range(fleet.hosts))
        self._counted: list[int] = []  # those that the record does not tell apart
        self._come = len(trace.machines)
        if trace.are_there:
            # Which of the fleet's machines the record names, nobody knows.
            machines = rng.sample(range(total := fleet.hosts + fleet.spares), total)
            self._spares = dict.fromkeys(machines)
            self._fill(0)

    def change(self, at_ns: int, changes: Sequence[TraceChange]) -> list[Event]:
        """What the changes of one instant do: first all that go, then those that come."""
        events: list[Event] = []
        together: dict[FaultCause, list[int]] = {}
        for change in changes:
            if change.cause is None:
                continue
            machine = self._any() if change.machine is None else change.machine
            stays = change.cause in IN_PLACE
            place = self._place.get(machine) if stays else self._leave(machine)
            if place is None:
                continue
            if change.cause in TOGETHER:
                together.setdefault(change.cause, []).append(place)
            else:
                events.append(Fault(at_ns, change.cause, (place,)))
        for cause, lost in together.items():
            events.append(Fault(at_ns, cause, tuple(sorted(lost))))
        for change in changes:
            if change.cause is None:
                self._spares[self._another() if change.machine is None else change.machine] = None
        return [*events, *self._fill(at_ns)]

    def _fill(self, at_ns: int) -> list[Arrival]:
        """The places that can be filled are."""
        filled = []
        while self._spares and self._empty:
            machine = next(iter(self._spares))
            del self._spares[machine]
            place = self._place[machine] = heappop(self._empty)
            filled.append(Arrival(at_ns, place))
        return filled

    def _leave(self, machine: int) -> int | None:
        """The machine is gone; the place that is empty now."""
        place = self._place.pop(machine, None)
        if place is None:
            self._spares.pop(machine, None)
        else:
            heappush(self._empty, place)
        return place

    def _another(self) -> int:
        """One more machine that is only counted."""
        self._come += 1
        self._counted.append(self._come)
        return self._come

    def _any(self) -> int:
        """One of those that are only counted; it goes."""
        n = self._rng.randrange(len(self._counted))
        self._counted[n], self._counted[-1] = self._counted[-1], self._counted[n]
        return self._counted.pop()


def _announcements(
    events: Sequence[Event], hosts: int, notices: Notices, rng: Random
) -> Iterator[Event]:
    """The events, and what was told ahead of them; not in the order of time."""
    since_ns = dict.fromkeys(range(hosts), 0)  # when the machine in each filled place came
    losses = sum(isinstance(event, Fault) and event.cause is FaultCause.HOST for event in events)
    alarms = int(losses * notices.recall * (1 / notices.precision - 1) + rng.random())
    span_ns = events[-1].at_ns if events else 0
    false_ns = sorted((round(rng.random() * span_ns) for _ in range(alarms)), reverse=True)

    def lead_ns() -> int:
        return round(notices.lead.sample_s(rng) * NS_PER_S)

    for event in events:
        at_ns = event.at_ns
        while false_ns and false_ns[-1] < at_ns:
            told_ns = false_ns.pop()
            if since_ns:
                place = rng.choice(tuple(since_ns))
                yield AnnouncedLoss(told_ns, place, told_ns + lead_ns(), comes_true=False)
        if isinstance(event, Arrival):
            since_ns[event.host] = at_ns
        elif isinstance(event, Fault) and event.cause not in IN_PLACE:
            came_ns = [since_ns.pop(host) for host in event.hosts]
            if event.cause is FaultCause.HOST and rng.random() < notices.recall:
                told_ns = max(came_ns[0], at_ns - lead_ns())
                yield AnnouncedLoss(told_ns, event.hosts[0], at_ns, comes_true=True)
        yield event
