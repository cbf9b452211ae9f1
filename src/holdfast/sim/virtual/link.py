"""The link between a virtual controller and a virtual host: a call, or messages that go astray.

A message is the order or the report as it stood when it was sent, as text. It may come late, be
overtaken or get lost; the newest is sent again now and then, as long as there is somebody to hear.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle

from holdfast.controller.ports import Evidence
from holdfast.core import actions as act
from holdfast.core.hosts.messages import decode_order, decode_report, encode_order, encode_report
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.sim.clock import MS
from holdfast.sim.virtual.host import VirtualHost
from holdfast.sim.virtual.loop import Source
from holdfast.sim.virtual.shared import Shared

AGAIN_NS = 500 * MS
LOST = -1


def sent_order(order: HostOrder) -> HostOrder:
    """As it comes out of a wire."""
    return decode_order(json.loads(json.dumps(encode_order(order))))


def sent_report(report: HostReport) -> HostReport:
    """As it comes out of a wire."""
    return decode_report(json.loads(json.dumps(encode_report(report))))


class VirtualLink:
    """A `controller.ports.Link`. `link_ns`: how long each message takes, in turn, or LOST."""

    def __init__(self, world: Shared, host: VirtualHost, link_ns: tuple[int, ...]) -> None:
        self._world = world
        self._host = host
        self._is_a_call = not any(link_ns)
        ways: tuple[type[HostOrder | HostReport], ...] = (HostOrder, HostReport)
        self._takes = {way: cycle(link_ns or (0,)) for way in ways}
        self._order: HostOrder | None = None
        self._is_told = False
        host.reported = self.reported

    def order(self, order: HostOrder) -> None:
        """Have the host carry it out."""
        if self._is_a_call:
            self._host.obey(order)
            return
        is_first, self._order = self._order is None, order
        self._send_order()
        if is_first:
            self._world.clock.later(AGAIN_NS, self._again)

    def reported(self) -> None:
        """Something is new on the host."""
        if self._is_a_call:
            self._world.hear(self._host.report_now())
        else:
            self._is_told = True
            self._send_report()

    def report(self) -> HostReport:
        """How the host stands; over a wire: no more than has come."""
        if self._is_a_call:
            return self._host.report_now(with_progress=True)
        return HostReport()

    def evidence(self, _: act.EndAttempt) -> Evidence:
        """Nothing that anybody reads."""
        return Evidence()

    def _again(self) -> None:
        if self._world.is_over:
            return
        self._send_order()
        if self._is_told:
            self._send_report()
        self._world.clock.later(AGAIN_NS, self._again)

    def _send_order(self) -> None:
        if self._order is not None:
            order = sent_order(self._order)
            self._deliver(HostOrder, lambda: self._host.obey(order))

    def _send_report(self) -> None:
        report = sent_report(self._host.report_now())
        hear = lambda: self._world.hear(report)  # noqa: E731
        self._deliver(HostReport, lambda: self._world.heard.give(Source.WORDS, hear))

    def _deliver(self, way: type[HostOrder | HostReport], message: Callable[[], None]) -> None:
        takes_ns = next(self._takes[way])
        if takes_ns == LOST:
            return
        if takes_ns:
            self._world.clock.later(takes_ns, lambda: None if self._world.is_over else message())
        else:
            message()
