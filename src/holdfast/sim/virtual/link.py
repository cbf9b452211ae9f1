"""The link between a virtual controller and its virtual hosts: a call, or messages that go astray.

A message is the order or the report as it stood when it was sent, as text or copied. It may come
late, twice, be overtaken or get lost; the newest is sent again now and then, as long as there is
somebody to hear. A host may be cut off for a while: then nothing comes through.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

from holdfast.controller.ports import OwnHosts
from holdfast.core.hosts.messages import decode_order, decode_report, encode_order, encode_report
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.sim.clock import MS
from holdfast.sim.virtual.host import VirtualHost
from holdfast.sim.virtual.loop import Source
from holdfast.sim.virtual.shared import Shared

AGAIN_NS = 500 * MS
LOST, TWICE = -1, -2
ECHO_NS = 300 * MS


def sent_order(order: HostOrder, *, as_text: bool = True) -> HostOrder:
    """The order as the host reads it from the wire."""
    if as_text:
        return decode_order(json.loads(json.dumps(encode_order(order))))
    return HostOrder(order.number, order.attention, order.wants.copy())


def sent_report(report: HostReport, read: int = 0, *, as_text: bool = True) -> HostReport:
    """The report as the controller reads it from the wire, without the facts up to `read`."""
    if as_text:
        return decode_report(json.loads(json.dumps(encode_report(report))), read)
    facts = report.facts.copy(read)
    return HostReport(report.number, report.attempt, report.ranks, facts, report.ended)


class VirtualLink(OwnHosts):
    """A `controller.ports.Link` to several hosts.

    `link_ns`: what each message takes, or LOST, or TWICE: it comes at once, and again later.
    """

    def __init__(
        self,
        world: Shared,
        hosts: Sequence[VirtualHost],
        link_ns: tuple[int, ...],
        renew: Callable[[int, bool], VirtualHost],
    ) -> None:
        """`renew(number, is_same)`: an empty host has that number, perhaps on the same machine."""
        self._world = world
        self._hosts = list(hosts)
        self._renew = renew
        self._is_a_call = not any(link_ns)
        ways: tuple[type[HostOrder | HostReport], ...] = (HostOrder, HostReport)
        self._takes = [{way: cycle(link_ns or (0,)) for way in ways} for _ in hosts]
        self._order = HostOrder()
        self._heard_of: set[int] = set()  # hosts that have sent a report
        self._cut_until_ns = [0] * len(hosts)
        for host in hosts:
            self._listen(host)

    def obey(self, order: HostOrder) -> None:
        """Have the hosts carry the order out."""
        is_first, self._order = not self._order.number, order
        for host in self._hosts:
            self._send_order(host)
        if is_first and not self._is_a_call:
            self._world.clock.later(AGAIN_NS, self._again)

    def reports(self) -> list[tuple[int, HostReport]]:
        """How the hosts stand; over a wire: no more than has come."""
        if not self._is_a_call:
            return []
        return [
            (host.number, host.report_now(with_progress=True))
            for host in self._hosts
            if not self._is_cut(host)
        ]

    def lost(self, host: VirtualHost) -> None:
        """It is known that this host is gone; else the one that replaced it has said so already."""
        if host is self._hosts[host.number]:
            self._world.lose(host.number)

    def join(self, gone: VirtualHost) -> None:
        """An empty host takes the place of one that is gone, whether that was noticed or not."""
        number = gone.number
        self._world.lose(number)
        host = self._renew(number, False)
        host.join(self._order.begins_at(launches=self._world.replace(host.number)))
        self._hosts[host.number] = host
        self._listen(host)
        self._send_order(host)

    def cut(self, number: int, ns: int) -> None:
        """Nothing goes between the controller and that host for so long."""
        until_ns = self._cut_until_ns[number] = self._world.now_ns + ns

        def mended() -> None:
            if self._cut_until_ns[number] == until_ns and not self._world.is_over:
                self._send_order(self._hosts[number])
                self._reported(self._hosts[number])

        self._world.clock.later(ns, mended)

    def slept(self, gap_ns: int) -> None:
        """The controller could hear nothing for so long: nobody's silence counts here."""

    def _is_cut(self, host: VirtualHost) -> bool:
        return self._world.now_ns < self._cut_until_ns[host.number]

    def _listen(self, host: VirtualHost) -> None:
        host.reported = partial(self._reported, host)

    def _reported(self, host: VirtualHost) -> None:
        """Something is new on that host."""
        if self._is_cut(host):
            return
        if not self._is_a_call:
            self._heard_of.add(host.number)
            self._send_report(host)
        elif host.number == 0:  # where the controller is
            self._hear(host, host.report_now())
        else:
            hear = lambda: self._hear(host, host.report_now())  # noqa: E731
            self._world.heard.give(Source.WORDS, hear)

    def _hear(self, host: VirtualHost, report: HostReport) -> None:
        if host is self._hosts[host.number]:
            self._world.hear(report, host.number)

    def _again(self) -> None:
        if self._world.is_over:
            return
        for host in self._hosts:
            self._send_order(host)
            if host.number in self._heard_of:
                self._send_report(host)
        self._world.clock.later(AGAIN_NS, self._again)

    def _send_order(self, host: VirtualHost) -> None:
        if self._is_cut(host):
            return
        if self._is_a_call:
            host.obey(self._order)
        elif self._order.number and (takes_ns := self._takes_ns(host, HostOrder)) != LOST:
            order = sent_order(self._order, as_text=self._world.as_text)
            deliver(self._world, takes_ns, lambda: host.obey(order))

    def _send_report(self, host: VirtualHost) -> None:
        if host.is_lost or self._is_cut(host):
            return
        takes_ns = self._takes_ns(host, HostReport)
        if takes_ns == LOST:
            return
        report = sent_report(host.report_now(), as_text=self._world.as_text)
        hear = lambda: self._hear(host, report)  # noqa: E731
        deliver(self._world, takes_ns, lambda: self._world.heard.give(Source.WORDS, hear))

    def _takes_ns(self, host: VirtualHost, way: type[HostOrder | HostReport]) -> int:
        return next(self._takes[host.number][way])


def deliver(world: Shared, takes_ns: int, message: Callable[[], None]) -> None:
    """One that is not lost."""
    if takes_ns in (0, TWICE):
        message()
    if takes_ns:
        ns = ECHO_NS if takes_ns == TWICE else takes_ns
        world.clock.later(ns, lambda: None if world.is_over else message())
