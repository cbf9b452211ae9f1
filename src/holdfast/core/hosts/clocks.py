"""One host's times on another's clock: of orders, and of reports. Pure.

A message says when it was sent, on its sender's clock. Each end keeps the least difference at which
it heard the other (`ClockDifference`), and tells it. What was sent is heard later, so the true
difference lies between what this end has measured and what the other has, and the two are as far
apart as the fastest way there and back. Of the two the earlier one counts: a deadline is never
taken for later than it is, and nothing begins later than what follows from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hang.events import RankLook
from holdfast.core.hosts.order import HostOrder, Want
from holdfast.core.hosts.report import HostReport

WINDOW_NS = 60 * 1_000_000_000  # clocks drift apart by some microseconds in that


class ClockBound(NamedTuple):
    """What brings another host's times to this clock, to within `error_ns` in either direction."""

    offset_ns: int
    error_ns: int

    def contradicts(self, other: ClockBound) -> bool:
        """Whether no difference lies within both: the clocks have drifted apart."""
        return abs(self.offset_ns - other.offset_ns) > self.error_ns + other.error_ns


class ClockDifference:
    """Of this host's clock to another's. `measured_ns`: by what was heard; None: nothing was."""

    def __init__(self) -> None:
        self.measured_ns: int | None = None
        self._window_ns: int | None = None  # the least since then
        self._since_ns = 0

    def heard(self, at_ns: int, sent_ns: int, other_ns: int | None) -> int:
        """A message that was sent then was heard now; what to add to the times in it.

        `other_ns`: what the other end has measured; None: it has heard nothing yet.
        """
        late_ns, before_ns = at_ns - sent_ns, self.measured_ns
        if self._window_ns is None or at_ns - self._since_ns > WINDOW_NS:
            before_ns, self._since_ns = self._window_ns, at_ns  # the window that is over counts on
            self._window_ns = late_ns
        self._window_ns = min(self._window_ns, late_ns)
        self.measured_ns = late_ns = late_ns if before_ns is None else min(late_ns, before_ns)
        return late_ns if other_ns is None else min(late_ns, -other_ns)

    def bound(self, other_ns: int | None) -> ClockBound | None:
        """The middle of what both ends have measured; None: not both have."""
        if self.measured_ns is None or other_ns is None:
            return None
        low_ns, high_ns = sorted((-other_ns, self.measured_ns))
        return ClockBound((low_ns + high_ns) // 2, (high_ns - low_ns + 1) // 2)


def order_on_clock(order: HostOrder, offset_ns: int) -> None:
    """Bring an order's times to the clock of whoever reads it."""
    deadline_ns = order.attention.deadline_ns
    if deadline_ns is not None:
        order.attention = order.attention._replace(deadline_ns=deadline_ns + offset_ns)

    def moved(want: Want) -> Want:
        if isinstance(want, act.CarryOut) and want.deadline_ns is not None:
            return replace(want, deadline_ns=want.deadline_ns + offset_ns)
        return want

    order.wants.change_each(moved)


def report_on_clock(report: HostReport, offset_ns: int) -> None:
    """The same of a report's."""
    report.facts.change_each(lambda fact: _fact_on_clock(fact, offset_ns))


def _fact_on_clock(fact: ev.Event, offset_ns: int) -> ev.Event:
    fact = replace(fact, at_ns=fact.at_ns + offset_ns)
    if isinstance(fact, ev.RankExited):
        return replace(fact, died_at_ns=fact.died_at_ns + offset_ns)
    if isinstance(fact, ev.StopAsked) and fact.deadline_ns is not None:
        return replace(fact, deadline_ns=fact.deadline_ns + offset_ns)
    if isinstance(fact, ev.Examined):
        return replace(fact, ranks=tuple(_look_on_clock(one, offset_ns) for one in fact.ranks))
    return fact


def _look_on_clock(look: RankLook, offset_ns: int) -> RankLook:
    def moved(at_ns: int) -> int:
        return at_ns + offset_ns if at_ns else 0  # 0: never

    return replace(
        look,
        step_ns=moved(look.step_ns),
        complete_ns=moved(look.complete_ns),
        awaited_ns=moved(look.awaited_ns),
        span_ns=moved(look.span_ns),
        span_ended_ns=moved(look.span_ended_ns),
    )
