"""The slices of a simulated fleet: which are whole, which the run trains on, what is expected.

What is done about it is decided by `core.hosts.elastic`; here its question is put together, each
time that a host goes or comes. A place belongs to one slice for good: an idle host of a slice that
is not whole helps no other one.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.hosts.elastic import LaunchNow, TakeIn, View, before_launch, while_training
from holdfast.sim.clock import NEVER_NS, VirtualClock, to_ns
from holdfast.sim.faults import FaultStream
from holdfast.sim.hosts import Hosts
from holdfast.sim.model import Scenario


class Slices:
    """Slice s has the places s·n to s·n + n − 1. `used`: those that the running attempt trains on.

    Between two attempts `used` is what the last one trained on, since its sets are in memory there.
    """

    def __init__(self, scenario: Scenario, hosts: Hosts) -> None:
        fleet, saves = scenario.fleet, scenario.saves
        self.wanted = fleet.slices
        self.used: frozenset[int] = frozenset()
        self._hosts = hosts
        self._size = fleet.hosts_per_slice
        self._least = fleet.least_slices
        self._chips = fleet.hosts_per_slice * fleet.chips_per_host
        self._had = self.wanted  # so many the last attempt began with
        self._restart_ns = to_ns(scenario.recovery.restart.mean_s)
        copy_s = saves.copy_s if saves.memory else saves.stall_s
        self._save_ns = to_ns(copy_s + saves.write_s)

    def uses(self, *places: int) -> bool:
        """Whether the attempt has one of these."""
        return any(place // self._size in self.used for place in places)

    def use(self, at_ns: int) -> int | None:
        """An attempt begins on all that are whole; how many chips they have, if that is news."""
        self.used = frozenset(range(self.wanted)) - self._away(at_ns).keys()
        before, self._had = self._had, len(self.used)
        return None if self._had == before else self._had * self._chips

    def longer(self, step_ns: int) -> int:
        """A step of the same global batch on the slices that there are."""
        return step_ns * self.wanted // len(self.used)

    def view(self, at_ns: int, between_ns: int, *, runs: bool) -> View:
        """What the policy is asked by; `runs`: an attempt does, on `used`."""
        away = self._away(at_ns)
        waits_ns = sorted(expected - at_ns for expected in away.values() if expected is not None)
        return View(
            wanted=self.wanted,
            least=self._least,
            there=self.wanted - len(away),
            waits_ns=tuple(waits_ns),
            training=len(self.used) if runs else 0,
            restart_ns=self._restart_ns,
            save_ns=self._save_ns,
            between_ns=between_ns,
        )

    def _away(self, at_ns: int) -> dict[int, int | None]:
        """The slices that are not whole, and when each is expected to be; None: nobody knows."""
        away: dict[int, int | None] = {}
        for place, expected_ns in self._hosts.expected(at_ns).items():
            number = place // self._size
            known = away.get(number, 0)
            both_known = known is not None and expected_ns is not None
            away[number] = max(known or 0, expected_ns or 0) if both_known else None
        return away


class ElasticRun(Protocol):
    """The run whose slices are watched."""

    @property
    def waits_to_launch(self) -> bool:
        """Whether an attempt is to be launched as soon as there are slices for it."""

    @property
    def may_be_stopped(self) -> bool:
        """Whether an attempt runs that would save and stop if it were asked to."""

    @property
    def between_failures_ns(self) -> int:
        """How long it takes on average until something ends an attempt anyway."""

    def launch_now(self, wait: str) -> None:
        """Launch on the slices that are whole, after a wait of that kind."""

    def stop_for_slices(self) -> None:
        """Have the attempt saved and stopped, so that the next one takes in what is whole."""


class SliceWatch:
    """Looks at the slices when a host goes or comes, or is overdue, and has the answer done."""

    def __init__(
        self,
        scenario: Scenario,
        hosts: Hosts,
        clock: VirtualClock,
        faults: FaultStream,
        run: ElasticRun,
    ) -> None:
        self.slices = Slices(scenario, hosts)
        self._hosts = hosts
        self._clock = clock
        self._faults = faults
        self._run = run
        self._next_ns = NEVER_NS  # when it looks next

    def look_at(self, at_ns: int) -> None:
        """Look then, after all else that is due by then."""
        if at_ns < self._next_ns:
            self._next_ns = at_ns
            self._clock.at(at_ns, self._look)

    def _look(self) -> None:
        now_ns = self._clock.now_ns
        if self._next_ns != now_ns:
            return  # it has looked before
        self._next_ns = NEVER_NS
        if self._faults.next_ns() == now_ns:
            return  # more happens at this moment; it is looked at after that
        _, wait = self._hosts.complete_at(now_ns)
        run, trains = self._run, self._run.may_be_stopped
        view = self.slices.view(now_ns, run.between_failures_ns, runs=trains)
        if run.waits_to_launch:
            decision, _ = before_launch(view)
            if isinstance(decision, LaunchNow):
                run.launch_now(wait)
            elif decision.for_ns is not None:
                self.look_at(now_ns + decision.for_ns)
        elif trains and isinstance(while_training(view)[0], TakeIn):
            run.stop_for_slices()
        if (next_ns := self._hosts.next_at(now_ns)) is not None:
            self.look_at(next_ns)
