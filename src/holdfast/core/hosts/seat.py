"""An agent's side of the link to the controller of several hosts. Pure.

    seat = Seat(index=3, incarnation="…", begin=lambda slot: HostAgent(…, slot))
    seat.take(at_ns, message)  # the controller's newest
    message = seat.says(at_ns, report)

The agent has a host (`core.hosts.order.Host`) while it has a slot of the run's placement. One that
loses its slot ends what it runs, and is a new incarnation from then on: what the controller takes
for lost stays lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.hosts.clocks import ClockDifference, order_on_clock
from holdfast.core.hosts.copies import HeldPart
from holdfast.core.hosts.order import Host, HostOrder
from holdfast.core.hosts.preflight import PreflightAnswer, PreflightOrder
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import (
    Asking,
    Assignment,
    ControllerSays,
    HeldSlot,
    HostAsks,
    HostSays,
    Over,
    decode_controller,
    encode_host,
)
from holdfast.core.notices.board import Notice

NOTHING = HostReport()


class Seat:
    """For one thread. `over`: how the run has ended; `refused`: why this is no host of it."""

    def __init__(self, index: int, incarnation: str, begin: Callable[[int], Host]) -> None:
        """`begin(slot)`: an empty host of that number."""
        self.index = index
        self.incarnation = self._agent = incarnation
        self.host: Host | None = None
        self.assignment: Assignment | None = None
        self.over: Over | None = None
        self.refused: str | None = None
        self.runs: tuple[tuple[str, str], ...] = ()
        self.address = ""
        self.ports: tuple[int, ...] = ()
        self.copies: tuple[HeldPart, ...] = ()
        self.copy_port = 0
        self.preflight: PreflightAnswer | None = None
        self.boot = self.slice = ""
        self.wall_ns = self.chips = 0
        self._begin = begin
        self._heard = self._said = 0
        self._ran_told: int | None = None  # what it had heard when this one was first told `runs`
        self._is_from_before = False  # the slot is one of an earlier controller's
        self._clock = ClockDifference()
        self._newest: tuple[ControllerSays, HostOrder | None] | None = None
        self._asks: tuple[HostAsks, ...] = ()
        self._notices: dict[tuple[str, str, str], Notice] = {}

    # --- what the controller says -----------------------------------------------------------

    def meet_controller(self) -> None:
        """Another one has taken over: its messages are numbered from the beginning.

        What runs here goes on until that one has decided about it.
        """
        self._heard, self._clock, self._newest = 0, ClockDifference(), None
        self._ran_told = None
        self.preflight = None
        self._is_from_before = self.host is not None
        if self.host is not None:
            self.host.meet_controller()

    def take(self, at_ns: int, message: object) -> None:
        """The newest message; one that was overtaken changes nothing. Raises ValueError."""
        self.hear(at_ns, *decode_controller(message))

    def hear(self, at_ns: int, says: ControllerSays, order: HostOrder | None) -> None:
        """The same, of what was read already; the order is this end's own from then on."""
        if says.number <= self._heard:
            return
        self._heard = says.number
        offset_ns = self._clock.heard(at_ns, says.sent_ns, says.difference_ns)
        if order is not None:
            order_on_clock(order, offset_ns)
        self.over, self.refused = says.over, says.refused
        self._newest = says, order
        self.go_on()

    @property
    def heard(self) -> int:
        """The number of the controller's newest message."""
        return self._heard

    @property
    def preflight_order(self) -> PreflightOrder | None:
        """What this is to do now to find out who is fit to train; None: nothing."""
        newest = self._newest
        return None if newest is None else newest[0].preflight

    @property
    def is_spare(self) -> bool:
        """Whether it belongs to the run, and the controller has no slot for it now."""
        newest = self._newest
        if newest is None or newest[0].is_given_up or newest[0].is_undecided:
            return False
        is_out = self.refused is not None or self.over is not None
        return self.host is None and newest[0].assignment is None and not is_out

    @property
    def must_leave(self) -> bool:
        """Whether this is to end what it runs, and to join as another one.

        It was taken for lost, or has lost its slot.
        """
        newest = self._newest
        if newest is None or newest[0].is_given_up:
            return newest is not None
        if self.host is None or newest[0].is_undecided:
            return False
        wanted, has = newest[0].assignment, self.assignment
        if wanted is None or has is None:
            return True
        return not wanted.goes_on if self._is_from_before else wanted.number != has.number

    def has_left(self, incarnation: str) -> None:
        """Nothing of it is left: this agent is another one from now on."""
        self.incarnation = incarnation
        self.host = self.assignment = self._newest = self.preflight = None
        self._is_from_before = False
        self._heard = self._said = 0
        self._ran_told = None
        self._clock = ClockDifference()

    def go_on(self) -> None:
        """Do what the newest message says, as far as that is possible now."""
        newest = self._newest
        if newest is None or newest[0].is_undecided or self.must_leave:
            return
        says, order = newest
        if self._is_from_before:
            self._is_from_before, self.assignment = False, says.assignment
        if says.assignment is not None and self.host is None:
            self.assignment = says.assignment
            self.host = self._begin(says.assignment.slot)
            self.host.join(says.assignment.begins_at)
        if self.host is not None and order is not None:
            self.host.places = says.places
            self.host.obey(order)

    # --- what it says -----------------------------------------------------------------------

    @property
    def _held(self) -> HeldSlot | None:
        host, assignment = self.host, self.assignment
        if host is None or assignment is None:
            return None
        return HeldSlot(assignment.slot, host.order_word, host.verdict_word, host.attention)

    def ask(self, what: Asking, source: str, deadline_ns: int | None = None) -> None:
        """Somebody on this host asks that of the whole run."""
        asked = HostAsks(len(self._asks) + 1, what, source, deadline_ns)
        self._asks = (*self._asks, asked)

    def announce(self, notice: Notice) -> None:
        """A source of notices on this host has said that; the newest of each event counts."""
        self._notices[notice.key] = notice

    def says(self, at_ns: int, report: HostReport | None) -> dict[str, Any]:
        """The message for the controller. `report`: the host's; None: it has none."""
        return encode_host(self.newest(at_ns), report or NOTHING)

    def newest(self, at_ns: int) -> HostSays:
        """What goes with the report."""
        self._said += 1
        if self._ran_told is None:
            self._ran_told = self._heard
        return HostSays(
            self.index,
            self.incarnation,
            self._agent,
            self._said,
            at_ns,
            self._clock.measured_ns,
            0 if self.assignment is None else self.assignment.number,
            () if self._heard > self._ran_told else self.runs,
            self.address,
            self.ports,
            self._asks,
            tuple(self._notices.values()),
            self._held,
            self._heard,
            self.copies,
            self.copy_port,
            self.preflight,
            self.boot,
            self.slice,
            self.wall_ns,
            self.chips,
        )
