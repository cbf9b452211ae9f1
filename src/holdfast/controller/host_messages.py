"""What the controller tells each host: one message with all that it must know, if that is news.

The network may lose or overtake all but the newest. What is ordered is the same for all that have a
slot, and is written once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from holdfast.controller.awaited_hosts import AwaitedHosts
from holdfast.controller.heard_hosts import HeardHosts
from holdfast.core import actions as act
from holdfast.core.hosts.copies import NOWHERE, CopyPlaces, CopyServer, sources
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import NOWHERE as NO_PLACEMENT
from holdfast.core.hosts.placement import Meeting, Placement
from holdfast.core.hosts.preflight import PreflightOrder
from holdfast.core.hosts.says import ControllerSays, HostSays, Over
from holdfast.core.save.choose import SealedSet

PORTS = 2  # that a meeting needs
PREFLIGHT_PORT = PORTS  # beside these: the next one


class Wire(Protocol):
    """The way to the agents."""

    def written(self, order: HostOrder) -> Any:
        """The order as it goes to every host; it does not change any more."""

    def put(self, incarnation: str, says: ControllerSays, order: Any) -> None:
        """Send that agent this, in place of what it was not sent yet; returns at once.

        `order`: as it was written; None: the agent is sent none.
        """

    def silent_ns(self, incarnation: str) -> int | None:
        """How long nothing has come from that agent, not even a sign of life; None: no link."""

    def unread_ns(self) -> int:
        """For how long what has come may lie unread; 0: all was read."""


class HostMessages:
    """For the controller's thread alone. `is_undecided`: whether what runs goes on is not known."""

    def __init__(
        self,
        wire: Wire,
        membership: Membership,
        heard: HeardHosts,
        awaited: AwaitedHosts,
        now_ns: Callable[[], int],
    ) -> None:
        """`awaited`: it knows where the ranks of the newest attempt are."""
        self.is_undecided = False
        self._wire, self._members, self._heard = wire, membership, heard
        self._awaited, self._now_ns = awaited, now_ns
        self._over: Over | None = None
        self._order: HostOrder | None = None
        self._written: Any = None  # the order, once it can be sent
        self._meeting: tuple[int, Meeting] | None = None  # of that attempt
        self._found_for = -1  # the attempt
        self._ring: tuple[Placement, list[int]] = NO_PLACEMENT, []  # its hosts, by number
        self._own_places: dict[int, CopyServer] = {}  # by slot, where its part of the set is

    # --- what is said -----------------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """Send it to every host that has a slot."""
        self._order = order
        self._send_order()

    def begins_at(self, *, launches: bool) -> int:
        """The wants after that are a new host's own. `launches`: it is to start its ranks."""
        return 0 if self._order is None else self._order.begins_at(launches=launches)

    def order_preflight(self, orders: Mapping[str, PreflightOrder]) -> None:
        """Have these agents do that, and no others anything."""
        for incarnation, host in self._heard.items():
            order = orders.get(incarnation)
            if order != host.preflight:
                host.preflight = order
                self.send(incarnation)

    def end(self, over: Over) -> None:
        """The run is over for this controller: all hosts are to end with that."""
        self._over = over
        self.send_all()

    def remind(self, says: HostSays) -> None:
        """Tell it how it stands, until it has heard that: agents answer whatever they hear."""
        host = self._heard[says.incarnation]
        is_news = self._heard.is_given_up(says.incarnation) and not host.is_told_given_up
        if is_news or says.heard < host.sent or not host.sent:
            self.send(says.incarnation)

    def send_all(self) -> None:
        """To all that were heard."""
        for incarnation in self._heard:
            self.send(incarnation)

    def send(self, incarnation: str) -> None:
        """All that this agent must know."""
        host, member = self._heard[incarnation], self._members.members.get(incarnation)
        slot = None if member is None else member.slot
        host.sent += 1
        host.is_told_given_up = self._heard.is_given_up(incarnation)
        says = ControllerSays(
            host.sent,
            self._now_ns(),
            host.clock.measured_ns,
            None if slot is None else host.assignment,
            host.is_told_given_up,
            host.refused,
            self._over,
            self.is_undecided,
            NOWHERE if slot is None else self._places_of(slot),
            host.preflight,
        )
        self._wire.put(incarnation, says, None if slot is None else self._written)

    # --- the order --------------------------------------------------------------------------

    def look_at_order(self) -> None:
        """Somebody may have said where the ranks meet, for which the order has waited."""
        if self._written is None and self._order is not None:
            self._send_order()

    def _send_order(self) -> None:
        order = self._order
        self._written = None if order is None else self._write(order)
        if self._written is None:
            return  # a launch: who is to meet where is not known yet
        for slot in range(self._members.slots):
            member = self._members.host_of(slot)
            if member is not None:
                self.send(member.incarnation)

    def _write(self, order: HostOrder) -> Any:
        """With the place where the ranks meet; None: that is not known yet."""
        wants = order.wants.copy()
        launch = next((want for _, want in wants.numbered() if isinstance(want, act.Launch)), None)
        if launch is not None:
            meeting = self._meeting_of(launch)
            if meeting is None:
                return None
            launch = replace(launch, meeting=meeting)
            self._find_parts(launch)
            wants.change_each(lambda want: launch if isinstance(want, act.Launch) else want)
        return self._wire.written(HostOrder(order.number, order.attention, wants))

    def _meeting_of(self, launch: act.Launch) -> Meeting | None:
        """On the host of rank 0; the same for all hosts, for as long as the attempt lives."""
        known = self._meeting
        if known is not None and known[0] == launch.attempt:
            return known[1]
        slots = launch.placement.hosts
        member = self._members.host_of(slots[0])
        if member is None and self._awaited.is_elastic:  # it was lost: they are only to end
            there = (self._members.host_of(slot) for slot in slots)
            member = next((one for one in there if one is not None), None)
        says = None if member is None else self._heard.newest_of(member.incarnation)
        if says is None or not says.address or len(says.ports) < PORTS:
            return None
        meeting = Meeting(says.address, *says.ports[:PORTS])
        self._meeting = launch.attempt, meeting
        return meeting

    # --- where parts of sets are ------------------------------------------------------------

    def _find_parts(self, launch: act.Launch) -> None:
        """Where each host gets its part of the set that it is to start from, once an attempt."""
        if self._found_for == launch.attempt:
            return
        self._found_for, self._own_places = launch.attempt, {}
        resume = launch.resume
        if resume.buffer is None or resume.parent is None:
            return
        copies = self._heard.copies_for(launch.placement)
        wanted = SealedSet(resume.parent, resume.step, resume.buffer)
        found = sources(copies, wanted, launch.placement, self._members.holders) or {}
        for slot, host in found.items():
            if (place := self._heard.server_of(host)) is not None:
                self._own_places[slot] = place

    def _places_of(self, slot: int) -> CopyPlaces:
        """The neighbours make a ring: each host copies the parts of the one before it."""
        of, ring = self._ring
        if of is not self._awaited.placement:
            of = self._awaited.placement
            self._ring = of, (ring := sorted(of.by_host))
        before = self._members.host_of(ring[bisect_left(ring, slot) - 1] if ring else slot)
        neighbour = None if before is None else self._heard.server_of(before.incarnation)
        return CopyPlaces(self._own_places.get(slot), neighbour)
