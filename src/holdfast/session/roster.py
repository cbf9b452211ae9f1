"""Who is there, what each has said last, and who is gone: both ends of the talk. Pure.

Freshness: a follower's message counts when it is addressed to this very leader, the leader's when
it has welcomed this very follower. Incarnations are made anew by each process, so nothing that a
dead attempt left in a store that outlived it can be taken for new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.session.messages import FollowerSays, LeaderSays, Welcome

GONE_AFTER_NS = 30_000_000_000  # of silence while others wait; as long as a silent lease's holder


@dataclass(slots=True)
class Member:
    """One other rank, as the leader knows it. Times are the leader's own clock."""

    says: FollowerSays
    heard_at_ns: int
    sigterm_at_ns: int | None = None
    is_gone: bool = False


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
            self.members[rank] = member = Member(says, at_ns)
        elif says.me != member.says.me or says.number <= member.says.number:
            return False
        member.says, member.heard_at_ns = says, at_ns
        if says.sigterm_age_ns is not None:
            came_ns = at_ns - says.sigterm_age_ns  # late by the message's way: the least is best
            earlier = member.sigterm_at_ns
            member.sigterm_at_ns = came_ns if earlier is None else min(earlier, came_ns)
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

    def missing(self) -> tuple[int, ...]:
        """Ranks that have not yet spoken to us."""
        return tuple(rank for rank in range(1, self._world_size) if rank not in self.members)

    def waiting_for(self, choice: int) -> tuple[int, ...]:
        """Ranks that have not yet dealt with this choice of a checkpoint."""
        return tuple(
            rank
            for rank in range(1, self._world_size)
            if rank not in self.members or self.members[rank].says.choice < choice
        )

    def refused(self, choice: int) -> str | None:
        """The words of a rank that could not read this choice."""
        for rank, member in sorted(self.members.items()):
            if member.says.choice == choice and member.says.refused is not None:
                return f"rank {rank}: {member.says.refused}"
        return None

    def left(self) -> dict[int, str]:
        """Ranks that have ended their session, and why ('': in good order)."""
        told = {rank: member.says.left for rank, member in sorted(self.members.items())}
        return {rank: words for rank, words in told.items() if words is not None}

    def still_here(self) -> tuple[int, ...]:
        """Ranks that spoke to us, have not left, and are not known to be gone."""
        return tuple(
            rank
            for rank, member in sorted(self.members.items())
            if not member.is_gone and member.says.left is None
        )

    def first_sigterm(self) -> tuple[int, int] | None:
        """(when it came, rank) of the first SIGTERM that any of them reported."""
        found = [
            (member.sigterm_at_ns, rank)
            for rank, member in self.members.items()
            if member.sigterm_at_ns is not None
        ]
        return min(found, default=None)

    def interrupted(self) -> int | None:
        """The first rank that reported a Ctrl-C."""
        ranks = [rank for rank, member in self.members.items() if member.says.interrupted]
        return min(ranks, default=None)

    def newly_gone(
        self, at_ns: int, dead: frozenset[int], waited_since_ns: int | None
    ) -> tuple[int, ...]:
        """Ranks that nobody should wait for any more; each is told once.

        `dead`: known to be so by the process table. A rank that left before its end is gone too.
        Silence counts only while somebody waits (`waited_since_ns`), and from then on: as long as
        all train, a rank that says nothing for a while does no harm, and may be busy.
        """
        found = []
        for rank in range(1, self._world_size):
            member = self.members.get(rank)
            if member is None or member.is_gone:
                continue
            silent = waited_since_ns is not None and (
                at_ns - max(member.heard_at_ns, waited_since_ns) > GONE_AFTER_NS
            )
            if rank in dead or member.says.left is not None or silent:
                member.is_gone = True
                found.append(rank)
        return tuple(found)


class LeaderView:
    """A follower's view of rank 0."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.says: LeaderSays | None = None
        self.is_welcome = False
        self.trouble = ""
        self.deadline_at_ns: int | None = None
        self.heard_at_ns: int | None = None

    @property
    def address(self) -> str:
        """Whom to speak to."""
        return self.says.me if self.says is not None else ""

    def hear(self, at_ns: int, data: bytes) -> bool:
        """Take the leader's register; whether that was news."""
        try:
            says = LeaderSays.from_bytes(data)
        except ValueError as error:
            self.trouble = f"what rank 0 says cannot be read: {error}"
            return False
        known = self.says
        if known is not None:
            if says.me == known.me and says.number <= known.number:
                return False
            if says.me != known.me and self.is_welcome:
                return False  # another leader has come: ours is gone, and this one is not for us
        self.says = says
        if self.is_welcome:
            self._heard(at_ns, says)
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
        self.is_welcome = True
        self._heard(at_ns, says)
        return True

    def _heard(self, at_ns: int, says: LeaderSays) -> None:
        self.heard_at_ns = at_ns
        if says.deadline_in_ns is not None:
            deadline_ns = at_ns + says.deadline_in_ns
            known = self.deadline_at_ns
            self.deadline_at_ns = deadline_ns if known is None else min(known, deadline_ns)
