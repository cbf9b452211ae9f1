"""One host's times on another's clock: of orders, and of reports. Pure.

A message says when it was sent, on its sender's clock. The receiver keeps the least difference that
it has seen (`Offset`): what was sent can only come later.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hang.events import RankLook
from holdfast.core.hosts.order import HostOrder, Want
from holdfast.core.hosts.report import HostReport


class Offset:
    """From another host's clock to this one's: the least difference at which a message was heard.

    It is late by what the fastest message took.
    """

    def __init__(self) -> None:
        self.ns: int | None = None

    def heard(self, at_ns: int, sent_ns: int) -> int:
        """A message that was sent then was heard now; the offset, as known by now."""
        offset_ns = at_ns - sent_ns
        self.ns = offset_ns if self.ns is None else min(self.ns, offset_ns)
        return self.ns


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
