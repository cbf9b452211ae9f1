"""Who is there, what each has said last, and who is gone: both ends of the talk. Pure.

Freshness: a follower's message counts when it is addressed to this very leader, the leader's when
it has welcomed this very follower. Incarnations are made anew by each process, so nothing that a
dead attempt left in a store that outlived it can be taken for new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.clocks import report_on_clock
from holdfast.core.hosts.messages import decode_order, decode_report
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.session.messages import FollowerSays, LeaderSays, Welcome

GONE_AFTER_NS = 30_000_000_000  # of silence while others wait; as long as a silent lease's holder


@dataclass(slots=True)
class Member:
    """One other rank, as the leader knows it. Times are the leader's own clock.

    `offset_ns`: from the rank's clock to the leader's, late by what the fastest message took.
    """

    says: FollowerSays
    report: HostReport
    heard_at_ns: int
    offset_ns: int
    exit: Exit | None = None  # it has ended, by its own word
    is_gone: bool = False  # nobody waits for it any more

    def take(self, at_ns: int, says: FollowerSays, report: HostReport) -> None:
        """What it says now. Its end is in `exit`, not in the report: the script says it once."""
        self.says, self.report, self.heard_at_ns = says, report, at_ns
        self.offset_ns = min(self.offset_ns, at_ns - says.sent_ns)
        for fact in report.facts.after(0):
            if isinstance(fact, ev.RankExited):
                self.exit = fact.exit
        report.facts.drop_kinds((ev.RankExited,))
        report_on_clock(report, self.offset_ns)


class Roster:
    """The leader's view of ranks 1 to world_size - 1."""

    def __init__(self, me: str, run: str, world_size: int) -> None:
        self._me = me
        self._run = run
        self._world_size = world_size
        self.members: dict[int, Member] = {}
        self.strangers: dict[int, str] = {}  # rank -> its incarnation, not yet addressed to us
        self.trouble: dict[int, str] = {}  # rank -> why it cannot be part of this run

    def hear(self, at_ns: int, rank: int, data: bytes) -> bool:
        """Take a rank's register; whether that was news."""
        try:
            says = FollowerSays.from_bytes(data)
            report = decode_report(says.report) if says.report else HostReport()
        except ValueError as error:
            self.trouble[rank] = f"what rank {rank} says cannot be read: {error}"
            return False
        if says.rank != rank:
            return False
        if says.to != self._me:
            known = self.strangers.get(rank) == says.me
            self.strangers[rank] = says.me
            return not known
        member = self.members.get(rank)
        if member is None:
            self._judge(says)
            member = self.members[rank] = Member(says, report, at_ns, at_ns - says.sent_ns)
        elif says.me != member.says.me or says.number <= member.says.number or member.is_gone:
            return False
        member.take(at_ns, says, report)
        return True

    def _judge(self, says: FollowerSays) -> None:
        if says.run != self._run:
            self.trouble[says.rank] = (
                f"rank {says.rank} is of run {says.run!r}, and rank 0 of run {self._run!r}: "
                "give all ranks the same name"
            )
        elif says.world_size != self._world_size:
            self.trouble[says.rank] = (
                f"rank {says.rank} is one of {says.world_size} ranks, and rank 0 one of "
                f"{self._world_size}: start them alike"
            )

    def welcomes(self) -> dict[int, Welcome]:
        """What to tell the ranks that were heard."""
        heard = self.strangers | {rank: member.says.me for rank, member in self.members.items()}
        return {rank: Welcome(self._me, follower) for rank, follower in sorted(heard.items())}

    def left(self) -> dict[int, Exit]:
        """Ranks that have ended their session, and how."""
        return {
            rank: member.exit
            for rank, member in sorted(self.members.items())
            if member.exit is not None
        }

    def still_here(self) -> tuple[int, ...]:
        """Ranks that spoke to us, have not left, and are not known to be gone."""
        return tuple(
            rank
            for rank, member in sorted(self.members.items())
            if not member.is_gone and member.exit is None
        )

    def newly_gone(
        self, at_ns: int, dead: frozenset[int], waited_since_ns: int | None
    ) -> tuple[int, ...]:
        """Ranks that nobody should wait for any more; each is told once.

        `dead`: known to be so by the process table. (One that has left has said so itself.) Silence
        counts only while somebody waits (`waited_since_ns`), and from then on: as long as all
        train, a rank that says nothing for a while does no harm, and may be busy.
        """
        found = []
        for rank in range(1, self._world_size):
            member = self.members.get(rank)
            if member is None or member.is_gone or member.exit is not None:
                continue
            silent = waited_since_ns is not None and (
                at_ns - max(member.heard_at_ns, waited_since_ns) > GONE_AFTER_NS
            )
            if rank in dead or silent:
                member.is_gone = True
                found.append(rank)
        return tuple(found)


class LeaderView:
    """A follower's view of rank 0."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.says: LeaderSays | None = None
        self.order: HostOrder | None = None
        self.is_welcome = False
        self.trouble = ""
        self.offset_ns: int | None = None  # from the leader's clock to ours, at the least
        self.heard_at_ns: int | None = None

    @property
    def address(self) -> str:
        """Whom to speak to."""
        return self.says.me if self.says is not None else ""

    def hear(self, at_ns: int, data: bytes) -> bool:
        """Take the leader's register; whether that was news."""
        try:
            says = LeaderSays.from_bytes(data)
            order = decode_order(says.order) if says.order else None
        except ValueError as error:
            self.trouble = f"what rank 0 says cannot be read: {error}"
            return False
        known = self.says
        if known is not None:
            if says.me == known.me and says.number <= known.number:
                return False
            if says.me != known.me and self.is_welcome:
                return False  # another leader has come: ours is gone, and this one is not for us
        self.says, self.order = says, order
        offset_ns = at_ns - says.sent_ns
        is_another = known is None or known.me != says.me
        if is_another or self.offset_ns is None or offset_ns < self.offset_ns:
            self.offset_ns = offset_ns
        if self.is_welcome:
            self.heard_at_ns = at_ns
        return True

    def hear_welcome(self, at_ns: int, data: bytes) -> bool:
        """Take the welcome register; whether this made us welcome."""
        try:
            welcome = Welcome.from_bytes(data)
        except ValueError:
            return False
        says = self.says
        if self.is_welcome or says is None:
            return False
        if welcome != replace(welcome, leader=says.me, follower=self._me):
            return False
        self.is_welcome, self.heard_at_ns = True, at_ns
        return True
