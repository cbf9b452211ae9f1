"""Which hosts a run has, and which of them runs which part of an attempt. Pure.

    members = Membership(slots=2)
    moves = members.joined(at_ns, index=0, incarnation="a")
    moves = members.heard(at_ns, 0, "a")
    moves = members.look(at_ns)

An attempt is placed on *slots*, numbered from 0; whoever joins as host 0 … N - 1 gets the slot of
that number, and those above are spares. A host that is lost leaves its slot to the first spare, or
to the next host that joins; spares also take the slots of hosts that have not come in time. An
index belongs to its first holder: another process of that index waits until that one is gone, and
is refused if it is not.

Hosts of one *slice* share an interconnect, and train together or not at all. Within a slice a spare
takes any slot; a broken slice without such a spare is replaced by a whole one, and its hosts that
live become spares. Hosts that name no slice are of one.

An elastic run begins an attempt on the hosts that are there (`close`). The other slots are closed
from then on: who joins meanwhile is a spare, until the next attempt is prepared (`open`).

Silence is measured on the controller's clock, while the controller itself runs (`slept`), and as of
the time up to which it has read all that came: words that lie unread are no silence. Those that are
overdue at a look are judged together. The end of a connection is no verdict, for the host may dial
again: unless another process of its index is there already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from holdfast.core.durations import in_words
from holdfast.core.hosts.members import REMEMBERED, ReturningHosts
from holdfast.core.hosts.members import Assign as Assign
from holdfast.core.hosts.members import HostLimits as HostLimits
from holdfast.core.hosts.members import JoinedHost as JoinedHost
from holdfast.core.hosts.members import Lose as Lose
from holdfast.core.hosts.members import MemberState as MemberState
from holdfast.core.hosts.members import Move as Move
from holdfast.core.hosts.members import RefuseHost as RefuseHost
from holdfast.core.hosts.members import Tell as Tell
from holdfast.core.hosts.silence import again_words, lost_words, suspect_words

NEVER_NS = 2**63


class Membership:
    """Each method gives what must be done now, in order."""

    def __init__(self, slots: int, spares: int = 0, limits: HostLimits | None = None) -> None:
        self.limits = limits or HostLimits()
        self.members: dict[str, JoinedHost] = {}  # by incarnation, in the order of joining
        self._spares = spares
        self._slots: list[JoinedHost | None] = [None] * slots
        self._free = set(range(slots))  # those that have none, and are to have one
        self._closed: set[int] = set()  # without a part of the attempt that runs
        self._slice_of: dict[int, str] = {}  # by slot: that of the host which had it last
        self._of_index: dict[int, list[JoinedHost]] = {}  # the same members
        self._gather_by_ns: int | None = None  # until then spares wait
        self._returning = ReturningHosts()
        self._looked_ns = -1  # when it was last judged who is silent, and whom spares replace
        self._unread_ns = 0  # how long then what had come lay unread
        self._silent_ns: int | None = None  # nobody's silence means anything before; None: see
        self.quarantine: dict[int, str] = {}  # why, by index

    # --- what is known ----------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many hosts train."""
        return len(self._slots)

    @property
    def most(self) -> int:
        """How many hosts there are at most, with spares."""
        return len(self._slots) + self._spares

    @property
    def is_complete(self) -> bool:
        """Whether every slot has a host that is to have one."""
        return not self._free

    @property
    def missing(self) -> tuple[int, ...]:
        """Slots that have no host, and are to have one."""
        return tuple(sorted(self._free))

    @property
    def closed_slots(self) -> tuple[int, ...]:
        """Slots without a part of the attempt that runs."""
        return tuple(sorted(self._closed))

    @property
    def gather_by_ns(self) -> int | None:
        """Until then hosts that never came are waited for; None: nobody has come yet."""
        return self._gather_by_ns

    @property
    def spares(self) -> int:
        """How many hosts wait for a slot."""
        return sum(one.state is MemberState.SPARE for one in self.members.values())

    @property
    def heard_indices(self) -> frozenset[int]:
        """Of the hosts that are there."""
        return frozenset(one.index for one in self._there())

    def host_of(self, slot: int) -> JoinedHost | None:
        """Who has that slot."""
        return self._slots[slot]

    @property
    def holders(self) -> dict[int, str]:
        """By slot, the incarnation that has it."""
        return {slot: one.incarnation for slot, one in enumerate(self._slots) if one is not None}

    def next_look_ns(self) -> int | None:
        """When silence may mean something new, or before; None: never.

        Who is heard makes it later, which is found then: hosts are many.
        """
        soonest_ns = self._soonest_ns()
        due_ns = soonest_ns if soonest_ns == NEVER_NS else soonest_ns + self._unread_ns
        if self._gather_by_ns is not None and self._waits_for_spares:
            returning = self._returning
            until_ns = returning.by_ns if returning.of_slot else self._gather_by_ns
            if until_ns > self._looked_ns:  # else no spare fits, and who comes is placed at once
                due_ns = min(due_ns, until_ns)
        return None if due_ns == NEVER_NS else due_ns

    def is_silence_due(self, read_ns: int) -> bool:
        """Whether somebody's silence may mean something new, if all that came by then was read."""
        return self._soonest_ns() <= read_ns

    def _soonest_ns(self) -> int:
        if self._silent_ns is None:
            self._silent_ns = min(map(self._due_ns, self._there()), default=NEVER_NS)
        return self._silent_ns

    # --- what happens -----------------------------------------------------------------------

    def joined(self, at_ns: int, index: int, incarnation: str, of_slice: str = "") -> list[Move]:
        """An agent has said who it is; one that is known is heard."""
        if incarnation in self.members:
            return self.heard(at_ns, incarnation)
        member = JoinedHost(index, incarnation, at_ns, at_ns + self.limits.lost_ns, of_slice)
        highest = self.most - 1
        if not 0 <= index <= highest:
            member.state = MemberState.REFUSED
            words = f"there is no host {index}: the run has hosts 0 to {highest}"
            return [
                RefuseHost(incarnation, words),
                Tell("error", f"Host {index} is refused: {words}"),
            ]
        self._forget(index)
        self.members[incarnation] = member
        self._silent_ns = None
        self._of_index.setdefault(index, []).append(member)
        if self._gather_by_ns is None:
            self._gather_by_ns = at_ns + self.limits.gather_ns
        holder = self._holder(member)
        if holder is None:
            return self._place(at_ns, member)
        member.state = MemberState.WAITING
        if not holder.is_linked:
            return self._lose(at_ns, holder, "its process has ended")
        words = f"Host {index} has come twice; the second waits until the first is gone"
        return [Tell("warning", words)]

    def gather_until(self, at_ns: int, by_ns: int, returning: Mapping[int, int]) -> None:
        """Spares wait until `by_ns` for those that are not there.

        `returning`: by slot, the host that had it, and is to end first what it runs.
        """
        self._gather_by_ns = by_ns
        kept = {slot: one for slot, one in returning.items() if one not in self.quarantine}
        self._returning = ReturningHosts(kept, at_ns + self.limits.lost_ns)

    def adopt(
        self, at_ns: int, slot: int, index: int, incarnation: str, of_slice: str = ""
    ) -> None:
        """That host has that slot already, by an earlier controller."""
        member = JoinedHost(index, incarnation, at_ns, at_ns + self.limits.lost_ns, of_slice)
        self.members[incarnation] = member
        self._of_index.setdefault(index, []).append(member)
        self._gather_by_ns = at_ns
        self._assign(member, slot)

    def close(self) -> tuple[int, ...]:
        """An attempt begins on the hosts that have a slot, which are given; no other gets one."""
        self._closed |= self._free
        self._free.clear()
        return tuple(slot for slot, one in enumerate(self._slots) if one is not None)

    def open(self, at_ns: int) -> list[Move]:
        """No attempt runs: whoever has come since may have the slots that were closed."""
        if not self._closed:
            return []
        self._free |= self._closed
        self._closed.clear()
        spares = [one for one in self.members.values() if one.state is MemberState.SPARE]
        moves: list[Move] = []
        for spare in sorted(spares, key=lambda one: one.index):
            moves += self._place(at_ns, spare)
        return moves

    @property
    def whole(self) -> int:
        """How many hosts have a slot, and are of slices that have a host in each of theirs."""
        broken = self._broken
        return sum(one is not None and one.slice not in broken for one in self._slots)

    @property
    def _broken(self) -> set[str]:
        """Slices that lack a host."""
        return {self._slice_of.get(slot, "") for slot in self._free} - {""}

    def break_slices(self, at_ns: int) -> list[Move]:
        """Who is of a slice that lacks a host gives up its part, and is a spare afterwards."""
        broken, moves = self._broken, list[Move]()
        for member in [one for one in self._slots if one is not None and one.slice in broken]:
            words = f"slice {member.slice} is not whole"
            moves += self._lose(at_ns, member, words, "gives up its part", fills=False)
        return moves

    def takers(self, index: int) -> int:
        """How many spares could take the part of that host, or with it that of its whole slice."""
        mine = next((one.slice for one in self._slots if one and one.index == index), "")
        if not mine:
            return self.spares
        by_slice = Counter(
            one.slice for one in self.members.values() if one.state is MemberState.SPARE
        )
        wanted = sum(name == mine for name in self._slice_of.values())
        others = (count for name, count in by_slice.items() if name and count >= wanted)
        return by_slice[mine] or max(others, default=0)

    def fillable(self, spares: Collection[JoinedHost]) -> int:
        """How many closed slots these would take at the next attempt: of a slice all or none."""
        closed, own = self.closed_slots, [one.index for one in spares]
        count = sum(slot not in self._slice_of and slot in own for slot in closed)
        lacking = Counter(self._slice_of[slot] for slot in closed if slot in self._slice_of)
        for name, wanted in lacking.items():
            have = sum(one.slice == name for one in spares)
            count += min(have, wanted) if not name else wanted * (have >= wanted)
        return count

    def set_quarantine(self, at_ns: int, reasons: dict[int, str]) -> list[Move]:
        """These hosts are to have no slot, and all others may; `reasons`: by index."""
        released, self.quarantine = self.quarantine.keys() - reasons, dict(reasons)
        moves: list[Move] = []
        for member in list(self._there()):
            if member.index in reasons and member.state is MemberState.SPARE:
                moves += self._place(at_ns, member)
            elif member.index in reasons and member.slot is not None:
                words = f"it is in quarantine ({reasons[member.index]})"
                moves += self._lose(at_ns, member, words, "gives up its part")
            elif member.index in released and member.state is MemberState.QUARANTINED:
                moves.append(Tell("info", f"Host {member.index} is in quarantine no more"))
                moves += self._place(at_ns, member)
        return moves

    def heard(self, at_ns: int, incarnation: str) -> list[Move]:
        """It lives."""
        member = self.members.get(incarnation)
        if member is None or not self._is_heard_again(member, at_ns, at_ns):
            return []
        return [Tell("info", again_words([member.index]))]

    def heard_lately(self, read_ns: int, heard_ns: Mapping[str, int]) -> list[Move]:
        """These show life by their links. `heard_ns`: when each did so last, as of `read_ns`."""
        known = ((self.members.get(name), at_ns) for name, at_ns in heard_ns.items())
        again = [
            one.index for one, at_ns in known if one and self._is_heard_again(one, at_ns, read_ns)
        ]
        return [Tell("info", again_words(again))] if again else []

    def _is_heard_again(self, member: JoinedHost, heard_ns: int, read_ns: int) -> bool:
        if not member.is_there:
            return False
        member.heard_ns, member.is_linked = max(member.heard_ns, heard_ns), True
        is_silent = read_ns - member.heard_ns >= self.limits.suspect_ns
        if member.state is not MemberState.SUSPECT or is_silent:
            return False
        member.state, self._silent_ns = MemberState.ASSIGNED, None
        return True

    def closed(self, at_ns: int, incarnation: str) -> list[Move]:
        """Its connection has ended."""
        member = self.members.get(incarnation)
        if member is None or not member.is_there:
            return []
        member.is_linked = False
        if member.state is MemberState.WAITING or self._waiter(at_ns, member.index) is None:
            return []
        return self._lose(at_ns, member, "its process has ended")

    def gone(self, at_ns: int, incarnation: str, words: str) -> list[Move]:
        """It is known that this agent, or its host, is no more."""
        member = self.members.get(incarnation)
        return [] if member is None or not member.is_there else self._lose(at_ns, member, words)

    def slept(self, gap_ns: int) -> None:
        """The controller did not run for a while: nobody's silence is known."""
        for member in self.members.values():
            member.heard_ns += gap_ns
            member.judged_ns += gap_ns
        if self._gather_by_ns is not None:
            self._gather_by_ns += gap_ns
        self._returning.by_ns += gap_ns

    def look(self, at_ns: int, read_ns: int | None = None) -> list[Move]:
        """Judge silence. `read_ns`: all that had come by then was read; None: by now."""
        read_ns = at_ns if read_ns is None else min(read_ns, at_ns)
        moves = self._judge_all(read_ns)
        for slot in self.missing if self._waits_for_spares else ():
            if slot in self._free and self._is_in_want(at_ns, slot):
                moves += self._fill(at_ns, slot)
        moves += self._judge_all(read_ns)  # a spare that is silent may have a slot by now
        self._looked_ns, self._unread_ns = at_ns, at_ns - read_ns
        return moves

    def _judge_all(self, read_ns: int) -> list[Move]:
        moves: list[Move] = []
        while due := self._due(read_ns):  # what is decided of these may be news of others
            moves += self._judge(read_ns, due)
        return moves

    def _judge(self, at_ns: int, due: list[JoinedHost]) -> list[Move]:
        """All that are overdue: first who is lost, so that none of them takes another's place."""
        lost, suspect, moves = list[JoinedHost](), list[JoinedHost](), list[Move]()
        for member in due:
            if at_ns - member.heard_ns >= self.limits.lost_ns:
                lost.append(member)
            elif member.state is MemberState.WAITING:
                moves += self._refuse(at_ns, member)
            else:
                member.state = MemberState.SUSPECT
                suspect.append(member)
        if suspect:
            moves.append(Tell("warning", suspect_words(at_ns, suspect)))
        return moves + self._lose_all(at_ns, lost)

    def _lose_all(self, at_ns: int, lost: list[JoinedHost]) -> list[Move]:
        """Whoever has no slot any more; `look` fills these."""
        told = [one for one in lost if one.state is not MemberState.WAITING]
        moves, is_alone = list[Move](), len(told) == 1
        for one in lost:
            words = f"nothing was heard of it for {in_words(at_ns - one.heard_ns)}"
            moves += self._lose(at_ns, one, words, fills=False, says=is_alone)
        if len(told) > 1:
            moves.append(Tell("warning", lost_words(at_ns, told)))
        return moves

    # --- what follows -----------------------------------------------------------------------

    def _there(self) -> Iterator[JoinedHost]:
        return (one for one in self.members.values() if one.is_there)

    def _due(self, at_ns: int) -> list[JoinedHost]:
        if self._silent_ns is not None and self._silent_ns > at_ns:
            return []
        self._silent_ns = None
        return [one for one in self._there() if self._due_ns(one) <= at_ns]

    def _due_ns(self, member: JoinedHost) -> int:
        """When its silence will mean something new."""
        if member.state is MemberState.ASSIGNED:
            return member.heard_ns + self.limits.suspect_ns
        due_ns = member.heard_ns + self.limits.lost_ns
        return min(due_ns, member.judged_ns) if member.state is MemberState.WAITING else due_ns

    def _holder(self, other: JoinedHost) -> JoinedHost | None:
        """Who has that one's index."""
        for member in self._of_index.get(other.index, ()):
            has_it = member.is_there and member.state is not MemberState.WAITING
            if member is not other and has_it:
                return member
        return None

    @property
    def _waits_for_spares(self) -> bool:
        """Whether a slot is empty though a spare is there."""
        return not self.is_complete and self.spares > 0

    def _forget(self, index: int) -> None:
        """Who is gone is remembered for a while: a late message of it is no new host."""
        ours = self._of_index.get(index, [])
        gone = [one for one in ours if not one.is_there]
        for one in gone[:-REMEMBERED]:
            ours.remove(one)
            del self.members[one.incarnation]

    def _place(self, at_ns: int, member: JoinedHost) -> list[Move]:
        """The slot that it had, or that of its number; else the first one; else it is a spare."""
        if member.index in self.quarantine:
            member.state = MemberState.QUARANTINED
            reason = self.quarantine[member.index]
            return [Tell("warning", f"Host {member.index} is in quarantine ({reason})")]
        member.state = MemberState.SPARE
        had, own = self._returning.take(member.index), member.index
        for slot in [own if had is None else had, own]:
            is_free = slot in self._free and not self._returning.keeps(at_ns, slot)
            if is_free and self._fits(member, slot):
                return [self._assign(member, slot)]
        wanted = [slot for slot in self.missing if self._is_in_want(at_ns, slot)]
        for slot in wanted:
            if self._fits(member, slot):
                return [self._assign(member, slot)]
        return self._swap_slice(at_ns, wanted[0]) if wanted else []

    def _fits(self, member: JoinedHost, slot: int) -> bool:
        """Whether it is of the slice that has this slot; or, if nobody had it, it is its own."""
        known, is_own = self._slice_of.get(slot), slot == member.index
        if known is None:
            return is_own or not member.slice
        if member.slice == known:
            return True
        return is_own and not any(
            one is not None and one.slice == known for one in self._slots
        )  # all of the slice comes anew, by another name

    def _is_in_want(self, at_ns: int, slot: int) -> bool:
        """Whether another host takes that slot: its own was lost, or is late."""
        if self._returning.keeps(at_ns, slot):
            return False
        if self._gather_by_ns is not None and at_ns >= self._gather_by_ns:
            return True
        if slot in self.quarantine:
            return True
        own = self._of_index.get(slot, [])
        return bool(own) and all(one.state is not MemberState.WAITING for one in own)

    def _assign(self, member: JoinedHost, slot: int) -> Assign:
        member.state, member.slot = MemberState.ASSIGNED, slot
        self._silent_ns = None
        self._slots[slot] = member
        self._free.remove(slot)
        self._slice_of[slot] = member.slice
        return Assign(slot, member.incarnation)

    def _lose(
        self,
        at_ns: int,
        member: JoinedHost,
        words: str,
        what: str = "is lost",
        *,
        fills: bool = True,
        says: bool = True,
    ) -> list[Move]:
        was_waiting, slot = member.state is MemberState.WAITING, member.slot
        member.state, member.slot = MemberState.LOST, None
        moves: list[Move] = []
        if slot is not None:
            self._slots[slot] = None
            self._free.add(slot)
            moves.append(Lose(slot, member.index, member.incarnation, words))
            if says:
                moves.append(Tell("warning", f"Host {member.index} {what}: {words}"))
            moves += self._fill(at_ns, slot) if fills else []
        elif says and not was_waiting:
            moves.append(Tell("warning", f"Host {member.index}, a spare, is lost: {words}"))
        waiter = None if was_waiting else self._waiter(at_ns, member.index)
        return moves if waiter is None else moves + self._place(at_ns, waiter)

    def _waiter(self, at_ns: int, index: int) -> JoinedHost | None:
        """Who waits for that index, and lives: of several the one that was heard last."""
        waiting = [
            one
            for one in self._of_index.get(index, ())
            if one.state is MemberState.WAITING and at_ns - one.heard_ns < self.limits.lost_ns
        ]
        return max(waiting, key=lambda one: one.heard_ns, default=None)

    def _fill(self, at_ns: int, slot: int) -> list[Move]:
        """The first spare of the slice takes the slot, or another slice that of the whole."""
        spares = [
            one
            for one in self.members.values()
            if one.state is MemberState.SPARE and self._fits(one, slot)
        ]
        if not spares:
            return self._swap_slice(at_ns, slot)
        spare = min(spares, key=lambda one: one.index)
        said = Tell("info", f"Host {spare.index}, a spare, takes the place of host {slot}")
        return [self._assign(spare, slot), said]

    def _swap_slice(self, at_ns: int, slot: int) -> list[Move]:
        """A slice of spares takes all the slots of the broken one, if one is large enough."""
        broken = self._slice_of.get(slot)
        slots = [one for one, name in sorted(self._slice_of.items()) if name == broken]
        spares: dict[str, list[JoinedHost]] = {}
        for spare in sorted(self.members.values(), key=lambda one: one.index):
            if spare.state is MemberState.SPARE and spare.slice not in ("", broken):
                spares.setdefault(spare.slice, []).append(spare)
        whole = next((name for name, ones in spares.items() if len(ones) >= len(slots)), None)
        if not broken or whole is None:
            return []
        moves: list[Move] = []
        words = f"slice {broken} is not whole, and slice {whole} takes its place"
        for number in slots:
            self._free |= {number} & self._closed
            self._closed.discard(number)
            if (member := self._slots[number]) is not None:
                moves += self._lose(at_ns, member, words, "gives up its part", fills=False)
        moves += [self._assign(*pair) for pair in zip(spares[whole], slots, strict=False)]
        return [*moves, Tell("info", f"Slice {whole} takes the place of slice {broken}")]

    def _refuse(self, at_ns: int, member: JoinedHost) -> list[Move]:
        """It has waited for as long as a host is given up after, and the other one lives."""
        holder = self._holder(member)
        if holder is None or at_ns - holder.heard_ns >= self.limits.suspect_ns:
            member.judged_ns = at_ns + self.limits.suspect_ns
            return []
        member.state = MemberState.REFUSED
        words = (
            f"another process runs as host {member.index}, and is alive; give each host an index "
            "of its own, or this run another name"
        )
        return [
            RefuseHost(member.incarnation, words),
            Tell("error", f"A second host {member.index} is refused: the first one is alive"),
        ]
