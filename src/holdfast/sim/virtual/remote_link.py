"""The agents of several hosts on a virtual network, and the controller's end of it.

The controller's end is `controller.remote_hosts`, an agent's is `core.hosts.seat`: they are real.
The hosts are virtual, and so is the network: messages go astray as on `VirtualLink`, and who is
silent for too long is lost, though it may live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from typing import Any

from holdfast.controller.inquiries import ANSWER_LIMIT_NS
from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.adoption import LastOrdered
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.order import Host, HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import ControllerSays, encode_controller, order_json
from holdfast.core.hosts.seat import NOTHING, Seat
from holdfast.core.save.choose import SealedSet
from holdfast.sim.clock import MS
from holdfast.sim.virtual.host import VirtualHost
from holdfast.sim.virtual.link import LOST, deliver, sent_order, sent_report
from holdfast.sim.virtual.loop import Source
from holdfast.sim.virtual.shared import Shared

BEAT_NS = 500 * MS
EMPTY_LOOK_NS = 5 * MS  # between two looks whether anything is left of what was ended
PORTS = (20001, 20002)
UP, DOWN = "up", "down"

Message = bytes | tuple[ControllerSays, HostOrder | None]  # to an agent, as text or as it is


class VirtualAgent:
    """The agent of the host of that index. `host`: what it has while it has a slot."""

    def __init__(
        self, world: Shared, index: int, renew: Callable[[int], VirtualHost], lives: Iterator[int]
    ) -> None:
        """`renew(slot)`: an empty host of that number. `lives`: numbers them, over all agents."""
        self.index = index
        self.host: VirtualHost | None = None
        self.reported: Callable[[], None] = lambda: None
        self.answered: Callable[[], None] = lambda: None  # the same, with the ranks' progress
        self.takes_ns: dict[str, Iterator[int]] = {}  # a message, by its way
        self._world = world
        self._renew = renew
        self._lives = lives
        self._is_ending = False
        self.seat = Seat(index, self._incarnation(), self._begin)
        self.seat.address, self.seat.ports = f"10.0.0.{index + 1}", PORTS
        self.seat.chips = (*world.shape.chips[index : index + 1], 0)[0]

    def _incarnation(self) -> str:
        return f"host {self.index}, life {next(self._lives)}"

    @property
    def is_lost(self) -> bool:
        """Whether its host is gone."""
        return self.host is not None and self.host.is_lost

    def _begin(self, slot: int) -> Host:
        host = self.host = self._renew(slot)
        host.reported = self.reported
        return host

    def take(self, incarnation: str, message: Message) -> None:
        """The controller has said that to whoever this was then."""
        if self.is_lost or incarnation != self.seat.incarnation:
            return
        before = self.seat.heard
        if isinstance(message, bytes):
            self.seat.take(self._world.now_ns, json.loads(message))
        else:
            says, order = message
            order = None if order is None else sent_order(order, as_text=False)
            self.seat.hear(self._world.now_ns, says, order)
        if self.seat.heard != before:
            self.answered()
        if self.seat.must_leave and not self._is_ending:
            self._is_ending = True
            if self.host is not None:
                self.host.kill()
            self._look_whether_empty()

    def _look_whether_empty(self) -> None:
        """What lost its slot is to be gone before this is another host."""
        if self.is_lost or self._world.is_over:
            return
        if self.host is not None and not self.host.is_empty:
            self._world.clock.later(EMPTY_LOOK_NS, self._look_whether_empty)
            return
        self._is_ending = False
        self.host = None
        self.seat.has_left(self._incarnation())
        self.reported()

    def report(self, *, with_progress: bool) -> HostReport:
        """How its host stands now."""
        host = self.host
        return NOTHING if host is None else host.report_now(with_progress=with_progress)


class RemoteLink:
    """A `controller.ports.Link` like `VirtualLink`, whose hosts join, fall silent and come back."""

    def __init__(
        self,
        world: Shared,
        link_ns: tuple[int, ...],
        renew: Callable[[int, bool], VirtualHost],
        say: Callable[[str], None],
    ) -> None:
        """`renew(number, is_same)`: an empty host has that number, perhaps on the same machine."""
        self._world = world
        self._link_ns = link_ns or (0,)
        self._renew = renew
        shape = world.shape
        self._remote = RemoteHosts(
            self,
            Membership(shape.hosts, shape.spares),
            lambda: world.now_ns,
            lambda _, words: say(words),
            elastic=shape.elastic,
            chips=shape.ranks,
        )
        self._remote.attach(world)
        self._lives = count()
        self._in_slot: dict[int, VirtualAgent] = {}
        self._cut_until_ns: dict[int, int] = {}  # by index
        self._last: dict[str, Message] = {}  # by incarnation, what it was sent last
        self._is_begun = False
        self._agents = [self._agent(index) for index in range(shape.hosts + shape.spares)]

    def _agent(self, index: int) -> VirtualAgent:
        agent = VirtualAgent(
            self._world, index, lambda slot: self._host_for(agent, slot), self._lives
        )
        agent.takes_ns = {way: cycle(self._link_ns) for way in (UP, DOWN)}
        agent.reported = lambda: self._send_up(agent)
        agent.answered = lambda: self._send_up(agent, with_progress=True)
        return agent

    def _host_for(self, agent: VirtualAgent, slot: int) -> VirtualHost:
        """What lies in the memory of the host that had the slot is of use if that is this one."""
        before = self._in_slot.get(slot)
        self._in_slot[slot] = agent
        is_same = agent.index == slot if before is None else agent is before
        return self._renew(slot, is_same)

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """Have the hosts carry the order out."""
        self._remote.obey(order)

    def reports(self) -> list[tuple[int, HostReport]]:
        """No more than has come."""
        return []

    def ask(self, do: Callable[[ev.HostsAnswered], None]) -> bool:
        """Have the hosts say how they stand now."""
        world = self._world

        def look() -> None:
            if not world.is_over:
                world.heard.give(Source.TIMER, self._remote.look)

        is_asked = self._remote.ask(lambda told: None if world.is_over else do(told))
        if is_asked:
            world.clock.later(ANSWER_LIMIT_NS, look)
        return is_asked

    def when_complete(self, do: Callable[[], None]) -> None:
        """Once all hosts have joined."""
        self._remote.when_complete(do)
        if not self._is_begun:
            self._is_begun = True
            self._beat()

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """The store looks: it has the memory of the whole world."""
        return None

    def distrust(self, host: int, words: str) -> None:
        """No virtual host remembers wrongly."""

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """Ask the hosts of an attempt that runs."""
        self._remote.gather(action, judged)

    def go_on(self) -> None:
        """They have the slots that they had."""
        self._remote.go_on()

    # --- what befalls the hosts -------------------------------------------------------------

    def lost(self, host: VirtualHost) -> None:
        """It is known that this host is gone."""
        for agent in self._agents:
            if agent.host is host:
                self._remote.gone(agent.seat.incarnation, "it is gone")

    def join(self, gone: VirtualHost) -> None:
        """A new one of its index has come, whether that it is gone is known or not."""
        had = (one.index for one in self._agents if one.host is gone)
        agent = self._agent(next(had, gone.number))
        self._agents.append(agent)
        self._send_up(agent)

    def cut(self, number: int, ns: int) -> None:
        """Nothing goes between the controller and who has that slot for so long."""
        agent = self._in_slot.get(number)
        if agent is not None:
            self._cut_until_ns[agent.index] = self._world.now_ns + ns

    def slept(self, gap_ns: int) -> None:
        """The controller could hear nothing for so long."""
        self._remote.membership.slept(gap_ns)

    # --- the network ------------------------------------------------------------------------

    def written(self, order: HostOrder) -> bytes | HostOrder:
        """As text, or as it is."""
        return order_json(order) if self._world.as_text else order

    def put(self, incarnation: str, says: ControllerSays, order: Any) -> None:
        """To an agent."""
        message = encode_controller(says, order) if self._world.as_text else (says, order)
        self._last[incarnation] = message
        self._send_down(incarnation, message)

    def _send_down(self, incarnation: str, message: Message) -> None:
        for agent in self._agents:
            if agent.seat.incarnation == incarnation:
                self._deliver(agent, DOWN, partial(agent.take, incarnation, message))

    def silent_ns(self, _: str) -> int | None:
        """Agents show life by what they say alone."""
        return None

    def unread_ns(self) -> int:
        """All that has come was handed on."""
        return 0

    def _send_up(self, agent: VirtualAgent, *, with_progress: bool = False) -> None:
        if agent.is_lost:
            return
        take = self._said(agent, agent.report(with_progress=with_progress))
        self._deliver(agent, UP, lambda: self._world.heard.give(Source.WORDS, take))

    def _said(self, agent: VirtualAgent, report: HostReport) -> Callable[[], None]:
        """The controller takes what the agent says now."""
        remote, incarnation, now_ns = self._remote, agent.seat.incarnation, self._world.now_ns
        if self._world.as_text:
            text = json.dumps(agent.seat.says(now_ns, report))
            return lambda: remote.take(incarnation, json.loads(text))
        says, sent = agent.seat.newest(now_ns), sent_report(report, as_text=False)

        def take() -> None:  # which may come again
            facts = remote.heard.facts_of(incarnation)
            remote.hear(incarnation, says, sent_report(sent, facts, as_text=False))

        return take

    def _deliver(self, agent: VirtualAgent, way: str, message: Callable[[], None]) -> None:
        if self._world.is_over or self._world.now_ns < self._cut_until_ns.get(agent.index, 0):
            return
        takes_ns = next(agent.takes_ns[way])
        if takes_ns != LOST:
            deliver(self._world, takes_ns, message)

    def _beat(self) -> None:
        """Both ends say what holds now and then, and the controller looks who is silent."""
        if self._world.is_over:
            return
        for agent in self._agents:
            self._send_up(agent)
            last = self._last.get(agent.seat.incarnation)
            if last is not None:
                self._send_down(agent.seat.incarnation, last)
        self._world.heard.give(Source.TIMER, self._remote.look)
        self._world.clock.later(BEAT_NS, self._beat)
