"""The slices of a simulated fleet: which are whole, which the run trains on, what is expected.

What is done about it is decided by `core.elastic`; here its question is put together. A place
belongs to one slice for good: an idle host of a slice that is not whole helps no other one.
"""

from __future__ import annotations

from holdfast.core.elastic import View
from holdfast.sim.clock import to_ns
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
        self._restart_ns = to_ns(scenario.recovery.restart.mean_s)
        copy_s = saves.copy_s if saves.memory else saves.stall_s
        self._save_ns = to_ns(copy_s + saves.write_s)

    def uses(self, *places: int) -> bool:
        """Whether the attempt has one of these."""
        return any(place // self._size in self.used for place in places)

    def use(self, at_ns: int) -> int:
        """An attempt begins on all slices that are whole; how many chips they have."""
        self.used = frozenset(range(self.wanted)) - self._away(at_ns).keys()
        return len(self.used) * self._chips

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
