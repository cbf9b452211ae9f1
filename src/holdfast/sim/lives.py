"""How long hosts, racks and slices live, and which ends of hosts are announced.

The first lives, which all begin at time 0, are drawn as one cohort, in the order in which they end.
Each later one is drawn by itself, from the seed, the place and its number alone:
policies that are compared with the same seed meet the same faults, but for when lost hosts are
replaced.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from holdfast.sim.cohort import Cohort
from holdfast.sim.faults import FaultCause
from holdfast.sim.laws import Law
from holdfast.sim.model import Failures, Notices
from holdfast.sim.split_mix import SplitMix

NS_PER_S = 1_000_000_000
FAR_NS = 2**63  # 292 years: what lies beyond does not happen
LEAST_MEAN_S = 1e-3
RAREST_LEAD = 1e-6  # this share of the leads, the longest, are cut to the length of the others


class HostLife(NamedTuple):
    """The number of a life in its place, from 0, and when it began; FAR_NS: it has not yet."""

    number: int
    born_ns: int


FIRST = HostLife(0, 0)


class DueFault(NamedTuple):
    """What will happen in a place, unless the life that it belongs to is over by then."""

    at_ns: int
    cause: FaultCause
    place: int  # the number of the host, rack or slice
    life: int
    lost_ns: int | None = None  # of a warning: when the host will be lost
    comes_true: bool = True
    early: bool = False  # of a machine's life, which ends of processes do not begin anew


class Lives:
    """Those of `members` hosts, racks or slices, by `law`."""

    def __init__(
        self,
        cause: FaultCause,
        law: Law,
        members: int,
        failures: Failures,
        seed: int,
        *,
        early: bool = False,
    ) -> None:
        """`early`: those that are cut short by infant mortality, and no others.

        Raises ValueError for a law by which failures never end.
        """
        if law.mean_s < LEAST_MEAN_S:
            raise ValueError(
                f"a {cause} that fails each {law.mean_s} s does nothing else: the mean between its "
                f"failures must be {LEAST_MEAN_S} s or more"
            )
        self._cause = cause
        self._law = law
        self._early = early
        is_host = cause is FaultCause.HOST
        # The others are of a process; what is lost early is lost.
        self._host_share = failures.host_share if is_host and not early else 1.0
        self._hang_share = failures.hang_share
        # Racks and slices fail without a warning.
        self._notices = failures.notices if is_host else Notices()
        recall, precision = self._notices.recall, self._notices.precision
        # So many false alarms for each failure that `precision` of all announcements come true.
        self._alarms = self._host_share * recall * (1 / precision - 1)
        self._ahead_ns = _ns(self._notices.lead.age_at_s(RAREST_LEAD)) if recall else 0
        name = f"{seed} early" if early else f"{seed} {cause}"
        self._random = SplitMix(f"{name} later")
        self._cohort = Cohort(law, members, self._alarms)
        self._cohort_random = Random(name)  # noqa: S311 - chance, no secret
        self.known_ns = -self._ahead_ns  # all that first lives bring until then was given

    def first(self) -> list[DueFault]:
        """What first lives bring next, and `known_ns` later."""
        due = self._next(self._cohort, self._cohort_random, FIRST, 0)
        self.known_ns = due[-1].at_ns - self._ahead_ns if due else FAR_NS
        return due

    def later(self, place: int, life: HostLife) -> list[DueFault]:
        """All that another life brings."""
        self._random.sow(place, life.number)
        cohort = Cohort(self._law, 1, self._alarms)
        found = due = self._next(cohort, self._random, life, place)
        while due and due[-1].lost_ns is not None:
            due = self._next(cohort, self._random, life, place)
            found += due
        return found

    def _next(self, cohort: Cohort, rng: Random, life: HostLife, place: int) -> list[DueFault]:
        """A failure, after its warning where there is one; or a false alarm; or nothing more.

        `place` is that of the cohort's first member.
        """
        drawn = cohort.draw(rng)
        if drawn is None:
            return []
        age_s, member, fails = drawn
        at_ns = life.born_ns + max(1, _ns(age_s))  # no life is empty: they would never end
        place += member
        if at_ns >= FAR_NS:
            return []
        if not fails:
            lost_ns = at_ns + self._lead_ns(rng)
            return [
                DueFault(at_ns, FaultCause.HOST, place, life.number, lost_ns, False, self._early)
            ]
        cause = self._what_failed(rng)
        failure = DueFault(at_ns, cause, place, life.number, early=self._early)
        recall = self._notices.recall
        if cause is not FaultCause.HOST or not recall or rng.random() >= recall:
            return [failure]
        told_ns = max(life.born_ns, at_ns - self._lead_ns(rng))
        return [failure._replace(at_ns=told_ns, lost_ns=at_ns), failure]

    def _what_failed(self, rng: Random) -> FaultCause:
        share = self._host_share
        if share >= 1 or rng.random() < share:
            return self._cause
        return FaultCause.HANG if rng.random() < self._hang_share else FaultCause.PROCESS

    def _lead_ns(self, rng: Random) -> int:
        return min(self._ahead_ns, _ns(self._notices.lead.sample_s(rng)))


def _ns(seconds: float) -> int:
    return round(min(seconds * NS_PER_S, float(FAR_NS)))
