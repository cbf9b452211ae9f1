"""Which hosts an elastic run trains on: what is expected of those that are away. Pure.

    regrouping = Regrouping(members, ElasticLimits(least=2))
    regrouping.look(at_ns)  # now and then: who went, who is back
    goes_on, reason = regrouping.before_launch(at_ns, costs)
    takes_in, reason = regrouping.while_training(at_ns, costs)

`core.hosts.elastic` compares the ways by what they cost. Here is what it is asked with: how long a
lost host takes to come back, by those of this run that have, and whether one that is back stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.elastic import LaunchNow, TakeIn, View, before_launch, while_training
from holdfast.core.hosts.membership import JoinedHost, Membership, MemberState

MOST_DOUBLED = 6  # times, for how long a host must have stayed
CUT_OFF_NS = 30 * SECOND_NS  # by then hosts without a link have said so in the store


@dataclass(frozen=True, slots=True)
class ElasticLimits:
    """`least`: so many hosts must train. `back_ns`: after how long a lost one is back, as a rule.

    What the run itself has seen counts more, the more often it has. `stays_ns`: for so long one has
    been there before the run restarts for it, and twice as long for each time that it was lost.
    """

    least: int = 1
    back_ns: int = 60 * SECOND_NS
    stays_ns: int = 5 * SECOND_NS


@dataclass(frozen=True, slots=True)
class RegroupCosts:
    """As of `elastic.View`, nanoseconds."""

    restart_ns: int
    save_ns: int
    between_ns: int
    redo_ns: int = 0


class Regrouping:
    """For the controller of several hosts."""

    def __init__(self, members: Membership, limits: ElasticLimits) -> None:
        self._members = members
        self._limits = limits
        self._away_since_ns: dict[int, int] = {}  # by index, of those that were there before
        self._there_since_ns: dict[str, int] = {}  # by incarnation
        self._backs = self._took_ns = 0  # how many came back, and how long that took them all

    def look(self, at_ns: int) -> None:
        """Note who went, and who is back."""
        known, there = self._members.members, self._members.heard_indices
        away_since_ns: dict[int, int] = {}
        for one in known.values():
            if one.is_there:
                self._there_since_ns.setdefault(one.incarnation, at_ns)
            elif one.index not in there:
                away_since_ns[one.index] = max(away_since_ns.get(one.index, 0), one.heard_ns)
        for index in self._away_since_ns.keys() - away_since_ns.keys():
            took_ns = at_ns - self._away_since_ns[index]
            if took_ns > self._members.limits.suspect_ns:  # else it only gave up its part
                self._backs, self._took_ns = self._backs + 1, self._took_ns + took_ns
        self._away_since_ns = away_since_ns
        for incarnation in self._there_since_ns.keys() - known.keys():
            del self._there_since_ns[incarnation]

    # --- the two questions ------------------------------------------------------------------

    def before_launch(self, at_ns: int, costs: RegroupCosts) -> tuple[bool, str]:
        """Whether an attempt begins now on the hosts that have a slot; and why."""
        members = self._members
        there = members.whole
        if there < self._limits.least:
            return False, f"{self._limits.least} are needed, of which {there} {_are(there)} there"
        if self._may_be_cut_off(at_ns, there):
            return False, "more hosts are away than are there: they may say that they are cut off"
        if late := self._not_come_yet(at_ns):
            numbers = ", ".join(map(str, late[:8])) + (" …" if len(late) > 8 else "")
            return False, f"host {numbers} may still come for the first time"
        decision, reason = before_launch(self._view(at_ns, costs, there))
        return isinstance(decision, LaunchNow), reason

    def while_training(self, at_ns: int, costs: RegroupCosts) -> tuple[bool, str]:
        """Whether to save and to restart with the hosts that are back; and why."""
        members = self._members
        if members.missing:
            return False, "a host was lost just now"
        training = members.slots - len(members.closed_slots)
        back = [one for one in self._spares if self._stays(at_ns, one)]
        there = training + members.fillable(back)
        decision, reason = while_training(self._view(at_ns, costs, there, training))
        return isinstance(decision, TakeIn), reason

    def _view(self, at_ns: int, costs: RegroupCosts, there: int, training: int = 0) -> View:
        wanted = self._members.slots
        waits_ns = sorted(self._wait_ns(at_ns, index) for index in self._expected)
        return View(
            wanted=wanted,
            least=min(self._limits.least, wanted),
            there=there,
            waits_ns=tuple(waits_ns[: wanted - there]),
            training=training,
            restart_ns=costs.restart_ns,
            save_ns=costs.save_ns,
            between_ns=costs.between_ns,
            redo_ns=costs.redo_ns,
            unit="host",
        )

    # --- what is expected -------------------------------------------------------------------

    @property
    def back_ns(self) -> int:
        """After how long a lost host is back: what was said counts as one that has come."""
        return (self._limits.back_ns + self._took_ns) // (1 + self._backs)

    def _wait_ns(self, at_ns: int, index: int) -> int:
        """From now on; one that is overdue takes as long again."""
        away_ns = max(0, at_ns - self._away_since_ns[index])
        return max(self.back_ns - away_ns, away_ns)

    @property
    def _expected(self) -> list[int]:
        """Hosts that were lost, and are wanted. Who never came is not counted on."""
        return [index for index in self._away_since_ns if index not in self._members.quarantine]

    def _may_be_cut_off(self, at_ns: int, there: int) -> bool:
        """The others may have one another, and the store: then they go on, and not this one."""
        away_ns = [at_ns - since_ns for since_ns in self._away_since_ns.values()]
        return len(away_ns) > there and min(away_ns) < CUT_OFF_NS

    def _not_come_yet(self, at_ns: int) -> list[int]:
        """Those of the start, as long as they are waited for."""
        by_ns = self._members.gather_by_ns
        if by_ns is None or at_ns >= by_ns:
            return []
        known = self._members.heard_indices | self._away_since_ns.keys()
        return [
            index
            for index in range(self._members.most)
            if index not in known and index not in self._members.quarantine
        ]

    @property
    def _spares(self) -> list[JoinedHost]:
        return [one for one in self._members.members.values() if one.state is MemberState.SPARE]

    def _stays(self, at_ns: int, host: JoinedHost) -> bool:
        """Whether it has been there for long enough: for longer, the more often it was lost."""
        known = self._members.members.values()
        lost = sum(one.index == host.index and not one.is_there for one in known)
        least_ns = self._limits.stays_ns << min(lost, MOST_DOUBLED)
        return at_ns - self._there_since_ns.get(host.incarnation, at_ns) >= least_ns


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
