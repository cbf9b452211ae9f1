"""The agents of a run as far as the controller has heard them, by their incarnations."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.hosts.clocks import ClockBound, ClockDifference
from holdfast.core.hosts.copies import CopyServer, HeldPart
from holdfast.core.hosts.membership import Membership, MemberState
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.preflight import PreflightOrder
from holdfast.core.hosts.says import Assignment, HostSays
from holdfast.core.notices.board import Notice

FORGOTTEN = 64  # hosts at a time that the membership has forgotten


@dataclass(slots=True)
class RemoteHost:
    """One agent, as far as it was heard. `heard`: how many of its messages, by their number.

    `report`: the number of the newest report that was read for the part that it has, with its facts
    up to number `facts`.
    """

    heard: int = 0
    report: int = 0
    facts: int = 0
    sent: int = 0
    clock: ClockDifference = field(default_factory=ClockDifference)
    assignment: Assignment | None = None
    refused: str | None = None
    differs: str | None = None  # in what it runs something else than this run; None: not known yet
    is_told_given_up: bool = False  # by the newest message
    preflight: PreflightOrder | None = None  # what it is to do
    says: HostSays | None = None
    notices: tuple[Notice, ...] = ()  # that are passed on


class HeardHosts(dict[str, RemoteHost]):
    """For one thread. `is_not_adopted`: what those run that an earlier controller has launched."""

    def __init__(self, membership: Membership) -> None:
        super().__init__()
        self._members = membership
        self.is_not_adopted: set[str] = set()  # and is to end

    def newest_of(self, incarnation: str) -> HostSays | None:
        """What that agent has said last; None: nothing."""
        return self[incarnation].says if incarnation in self else None

    def clock_of(self, incarnation: str) -> ClockBound | None:
        """What brings that host's times to this one's clock; None: it is not known yet."""
        host = self.get(incarnation)
        if host is None or host.says is None:
            return None
        return host.clock.bound(host.says.difference_ns)

    def server_of(self, incarnation: str) -> CopyServer | None:
        """Where others get parts of sets in its memory; None: nowhere."""
        says = self.newest_of(incarnation)
        if says is None or not says.address or not says.copy_port:
            return None
        return CopyServer(says.address, says.copy_port)

    def facts_of(self, incarnation: str) -> int:
        """Up to which number the facts of its report are known."""
        return self[incarnation].facts if incarnation in self else 0

    def chips_of(self, incarnation: str) -> int:
        """As it says; 0: it does not."""
        says = self.newest_of(incarnation)
        return 0 if says is None else says.chips

    @property
    def said_copies(self) -> dict[str, tuple[HeldPart, ...]]:
        """Which parts of sets are in memory, as all agents have said last."""
        return {name: host.says.copies for name, host in self.items() if host.says is not None}

    def copies_for(self, placement: Placement) -> dict[str, tuple[HeldPart, ...]]:
        """The same, as far as the hosts of an attempt can have it.

        Of a host that is there, and where others get it: of one whose memory nobody is served from
        its own part alone.
        """
        members, found = self._members.members, {}
        for incarnation, parts in self.said_copies.items():
            member = members.get(incarnation)
            if not parts or member is None or not member.is_there:
                continue
            if self.server_of(incarnation) is None:
                own = () if member.slot is None else placement.on(member.slot)
                parts = tuple(one for one in parts if one.ranks == own)
            if parts:
                found[incarnation] = parts
        return found

    def is_given_up(self, incarnation: str) -> bool:
        """Whether it was taken for lost, or what it runs is of no use."""
        if incarnation in self.is_not_adopted:
            return True
        member = self._members.members.get(incarnation)
        return member is not None and member.state is MemberState.LOST

    def forget_the_gone(self) -> None:
        """Those that the membership has forgotten, now and then."""
        known = self._members.members
        if len(self) < len(known) + FORGOTTEN:
            return
        for incarnation in [one for one in self if one not in known]:
            if self[incarnation].refused is None:
                del self[incarnation]
                self.is_not_adopted.discard(incarnation)
