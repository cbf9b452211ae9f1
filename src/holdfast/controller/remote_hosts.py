"""The link of a controller to the agents of several hosts.

    hosts = RemoteHosts(wire, Membership(slots=8, spares=1), clock, say)
    controller = Controller(policy, link=hosts, …)
    hosts.attach(controller)
    hosts.take(incarnation, message)  # from the network
    hosts.look()  # now and then: who is silent?

Who belongs to the run, and which slot of its placement a host has, is decided by
`core.hosts.membership`. Each host is sent one message that holds all that it must know, whenever
something in it changes; the network may lose or overtake all but the newest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.controller.elastic_hosts import ElasticHosts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.adoption import Gathering, LastOrdered, Verdict
from holdfast.core.hosts.alike import Alike, differences
from holdfast.core.hosts.chips import SlotChips
from holdfast.core.hosts.clocks import ClockBound, ClockDifference, report_on_clock
from holdfast.core.hosts.copies import (
    NOWHERE,
    CopyPlaces,
    CopyServer,
    HeldPart,
    has_own,
    in_memory,
    restorable,
    source,
)
from holdfast.core.hosts.membership import (
    Assign,
    Lose,
    Membership,
    MemberState,
    Move,
    RefuseHost,
    Tell,
)
from holdfast.core.hosts.order import HostOrder, Want
from holdfast.core.hosts.placement import NOWHERE as NO_PLACEMENT
from holdfast.core.hosts.placement import Meeting, Placement
from holdfast.core.hosts.preflight import PreflightOrder
from holdfast.core.hosts.register import Register
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import (
    Asking,
    Assignment,
    ControllerSays,
    HeldSlot,
    HostAsks,
    HostSays,
    Over,
    decode_host,
    encode_controller,
    order_json,
)
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunMachine
from holdfast.core.save.choose import SealedSet

ANSWER_LIMIT_NS = 500_000_000  # to a question how a host stands
PORTS = 2  # that a meeting needs
PREFLIGHT_PORT = PORTS  # beside these: the next one
FORGOTTEN = 64  # hosts at a time that the membership has forgotten


class Wire(Protocol):
    """The way to the agents."""

    def put(self, incarnation: str, message: bytes) -> None:
        """Send that agent this JSON, in place of what it was not sent yet; returns at once."""

    def silent_ns(self, incarnation: str) -> int | None:
        """How long nothing has come from that agent, not even a sign of life; None: no link."""


@dataclass(slots=True)
class Inquiry:
    """The hosts are asked how they stand. `of`: by agent, the message that it is to have heard.

    `furthest`: of the ranks that were heard since, the greatest step, negative, and when the first
    was done with it; None: nobody has said so.
    """

    of: dict[str, int]
    asked_ns: int
    do: Callable[[ev.HostsAnswered], None]
    furthest: tuple[int, int] | None = None

    def heard(self, report: HostReport, offset_ns: int) -> None:
        """`offset_ns`: what brings the report's times to this clock."""
        for rank in report.ranks:
            of_rank = -rank.answers.step, rank.pace.at_ns + offset_ns
            if rank.pace.at_ns and (self.furthest is None or of_rank < self.furthest):
                self.furthest = of_rank

    def over(self, now_ns: int) -> ev.HostsAnswered:
        """What came of it."""
        since_ns = 0 if self.furthest is None else max(0, now_ns - self.furthest[1])
        return ev.HostsAnswered(now_ns, now_ns - self.asked_ns, since_ns)


@dataclass(slots=True)
class RemoteHost:
    """One agent, as far as it was heard. `heard`: how many of its messages, by their number."""

    heard: int = 0
    sent: int = 0
    clock: ClockDifference = field(default_factory=ClockDifference)
    assignment: Assignment | None = None
    refused: str | None = None
    is_told_given_up: bool = False  # by the newest message
    preflight: PreflightOrder | None = None  # what it is to do
    says: HostSays | None = None
    notices: tuple[Notice, ...] = ()  # that are passed on


class Told(Protocol):
    """Who is told of the hosts: `controller.Controller`."""

    def hear(self, report: HostReport, host: int) -> None:
        """The state of the host of that number may have changed."""

    def feed(self, event: ev.Event) -> None:
        """Something has happened."""

    def lose(self, host: int) -> None:
        """That host is gone, with all that was on it."""

    def replace(self, host: int) -> bool:
        """An empty one takes its place; whether it is to start its ranks."""

    @property
    def machine(self) -> RunMachine:
        """What decides; an elastic run asks it."""


class RemoteHosts:
    """A `controller.ports.Link`, for the controller's thread alone."""

    def __init__(
        self,
        wire: Wire,
        membership: Membership,
        now_ns: Callable[[], int],
        say: Callable[[str, str], None],
        runs: Alike = (),
        placement: Placement = NO_PLACEMENT,
        elastic: ElasticLimits | None = None,
        chips: int = 0,
    ) -> None:
        """`say(level, words)`: tell the people watching. `placement`: of the run's ranks.

        `runs`: what each host is to run; one that would run anything else is refused. `elastic`:
        with how few hosts it goes on; None: all are waited for. `chips`: of all hosts together,
        where they do not say how many they have.
        """
        self.membership = membership
        self._chips = SlotChips(membership.slots, chips)
        self._wire = wire
        self._runs = runs
        self._all = self._placement = placement  # of an attempt on all hosts; of the newest one
        self._now_ns = now_ns
        self._say = say
        self._controller: Told | None = None
        self._hosts: dict[str, RemoteHost] = {}
        self._asked: dict[str, int] = {}  # by agent, how much of what it was asked is passed on
        self._unreadable: set[str] = set()
        self._assignments = 0
        self._order: HostOrder | None = None
        self._encoded: bytes | None = None  # the order, once it can be sent
        self._meeting: tuple[int, Meeting] | None = None  # of that attempt
        self._over: Over | None = None
        self._inquiries: list[Inquiry] = []
        # Whether what is announced on a host is its own affair, and not the run's.
        self.leaves_alone: Callable[[HostSays, Notice], bool] = lambda _, __: False
        self.heard_of: Callable[[int, HostReport], None] = lambda _, __: None  # one that trains
        self.lost: Callable[[int, str], None] = lambda _, __: None  # who had a part, and why
        self._limits = elastic
        self._elastic: ElasticHosts | None = None  # None: all hosts are waited for
        self._awaiting: Callable[[], None] | None = None
        self._awaited_ns = 0  # since then
        self._waited: ev.Waited | None = None  # for the hosts of the newest attempt
        self._gathering: Gathering | None = None  # what runs, and is not adopted yet
        self._judged: Callable[[LastOrdered | str], None] | None = None
        self._is_not_adopted: set[str] = set()  # what those run is to end
        self._found_for = -1  # the attempt
        self._ring: tuple[Placement, list[int]] = NO_PLACEMENT, []  # its hosts, by number
        self._own_places: dict[int, CopyServer] = {}  # by slot, where its part of the set is

    def attach(self, controller: Told) -> None:
        """Whom to tell."""
        self._controller = controller
        if self._limits is not None:
            self._elastic = ElasticHosts(self.membership, self._limits, controller)

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """Send it to every host that has a slot."""
        self._order = order
        self._send_order()

    def reports(self) -> Iterable[tuple[int, HostReport]]:
        """None: what the hosts have said was handed over."""
        return ()

    def ask(self, do: Callable[[ev.HostsAnswered], None]) -> bool:
        """An agent answers each message at once; who does not is not waited for any longer."""
        members, now = self.membership.members, self._now_ns()
        asked = {
            incarnation: host.sent + 1
            for incarnation, host in self._hosts.items()
            if host.assignment is not None
            and incarnation in members
            and members[incarnation].state is MemberState.ASSIGNED
        }
        if not asked:
            return False
        self._inquiries.append(Inquiry(dict(asked), now, do))
        for incarnation in asked:
            self._send(incarnation)
        return True

    @property
    def next_look_ns(self) -> int | None:
        """When `look` is due, if nothing is heard until then; None: never."""
        due_ns = [one.asked_ns + ANSWER_LIMIT_NS for one in self._inquiries[:1]]
        if (silent_ns := self.membership.next_look_ns()) is not None:
            due_ns.append(silent_ns)
        return min(due_ns, default=None)

    def _answered(self, says: HostSays, report: HostReport) -> None:
        clock = self.clock_of(says.incarnation) if self._inquiries else None
        for one in self._inquiries:
            if clock is not None:
                one.heard(report, clock.offset_ns)
            if one.of.get(says.incarnation, says.heard + 1) <= says.heard:
                del one.of[says.incarnation]
        self._look_who_has_answered()

    def _look_who_has_answered(self) -> None:
        """In the order in which they were asked."""
        while self._inquiries:
            first, now = self._inquiries[0], self._now_ns()
            if first.of and now < first.asked_ns + ANSWER_LIMIT_NS:
                return
            self._inquiries.pop(0)
            first.do(first.over(now))

    def when_complete(self, do: Callable[[], None]) -> None:
        """Once every slot has a host, or an elastic run has enough; at once if that is so now."""
        self._awaiting, self._awaited_ns = do, self._now_ns()
        if self._elastic is not None and self._elastic.opens(self._in_memory(self._placement)):
            self._carry_out(self.membership.open(self._now_ns()))
        self._look_whether_complete()

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """By what the hosts that are there have said."""
        return restorable(self._copies, self._placement)

    @property
    def _copies(self) -> dict[str, tuple[HeldPart, ...]]:
        members = self.membership.members
        return {
            incarnation: host.says.copies
            for incarnation, host in self._hosts.items()
            if host.says is not None
            and host.says.copies
            and incarnation in members
            and members[incarnation].is_there
        }

    def distrust(self, host: int, words: str) -> None:
        """Nothing: who looks after the hosts does (`controller.host_care`)."""

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """Ask the hosts; they look for their controller by the store, and dial."""
        members, now = self.membership, self._now_ns()
        until_ns = now + members.limits.lost_ns
        self._placement = action.placement
        slots = frozenset(action.placement.hosts)
        self._gathering = Gathering(action.attempt, slots, members.most, until_ns)
        self._judged = judged

    def go_on(self) -> None:
        """Each host has the slot that it had."""
        gathering, self._gathering = self._gathering, None
        assert gathering is not None  # noqa: S101 - only what was gathered goes on
        for slot, one in gathering.holders.items():
            says = self.newest_of(one.incarnation)
            of_slice = "" if says is None else says.slice
            self.membership.adopt(self._now_ns(), slot, one.index, one.incarnation, of_slice)
            self._assignments += 1
            assignment = Assignment(self._assignments, slot, 0, goes_on=True)
            self._hosts[one.incarnation].assignment = assignment
            self._chips.have(slot, 0 if says is None else says.chips)
        self.membership.close()
        self._chips.train(gathering.holders)
        for incarnation in self._hosts:
            self._send(incarnation)

    def _judge(self) -> None:
        """Whether what runs goes on, as soon as that is certain."""
        gathering, judged = self._gathering, self._judged
        if gathering is None or judged is None:
            return
        verdict, reason = gathering.judge(self._now_ns())
        if verdict is Verdict.WAIT:
            return
        self._judged = None
        if verdict is Verdict.ADOPT:
            holders = {slot: one.incarnation for slot, one in gathering.holders.items()}
            copies = {
                incarnation: host.says.copies
                for incarnation, host in self._hosts.items()
                if host.says is not None
            }
            memory = in_memory(copies, self._placement, holders)
            judged(gathering.found._replace(memory=memory))
            return
        self._gathering = None
        returning = {slot: one.index for slot, one in gathering.holders.items()}
        self.membership.gather_until(self._now_ns(), gathering.until_ns, returning)
        self._is_not_adopted = {one.incarnation for one in gathering.holders.values()}
        for incarnation in self._hosts:
            self._send(incarnation)
        judged(reason)

    @property
    def waits_for(self) -> str:
        """What is not known yet of an attempt that may run; "": nothing."""
        gathering = self._gathering
        return "" if gathering is None else gathering.judge(self._now_ns())[1]

    def newest_of(self, incarnation: str) -> HostSays | None:
        """What that agent has said last; None: nothing."""
        return self._hosts[incarnation].says if incarnation in self._hosts else None

    def clock_of(self, incarnation: str) -> ClockBound | None:
        """What brings that host's times to this one's clock; None: it is not known yet."""
        host = self._hosts.get(incarnation)
        if host is None or host.says is None:
            return None
        return host.clock.bound(host.says.difference_ns)

    def address_of(self, incarnation: str) -> str:
        """Where the ranks of that host can be met, as it has said; "" if it has not."""
        says = self.newest_of(incarnation)
        return "" if says is None else says.address

    def order_preflight(self, orders: Mapping[str, PreflightOrder]) -> None:
        """Have these agents do that, and no others anything."""
        for incarnation, host in self._hosts.items():
            order = orders.get(incarnation)
            if order != host.preflight:
                host.preflight = order
                self._send(incarnation)

    @property
    def why_waiting(self) -> str:
        """Why an elastic run waits for its hosts; "": it does not, or it waits for all anyway."""
        return "" if self._elastic is None else self._elastic.why

    @property
    def can_do_without(self) -> int:
        """How many of the hosts that train an elastic run could lose, and go on."""
        if self._limits is None:
            return 0
        train = sum(one.slot is not None for one in self.membership.members.values())
        return max(0, train - self._limits.least)

    @property
    def is_waiting(self) -> bool:
        """Whether an attempt waits for its hosts."""
        return self._awaiting is not None

    def end(self, over: Over) -> None:
        """The run is over for this controller: all hosts are to end with that."""
        self._over, self._awaiting = over, None
        for incarnation in self._hosts:
            self._send(incarnation)

    # --- what is heard ----------------------------------------------------------------------

    def take(self, incarnation: str, message: object) -> None:
        """An agent has sent this. `incarnation`: whose, by the connection."""
        at_ns = self._now_ns()
        try:
            says, report = decode_host(message)
        except ValueError as error:
            if incarnation not in self._unreadable:  # it says so again and again
                self._unreadable.add(incarnation)
                self._say("error", f"What a host says cannot be read: {error}")
            return
        host = self._hosts.setdefault(incarnation, RemoteHost())
        if says.incarnation != incarnation or says.number <= host.heard:
            return
        host.heard, host.says = says.number, says
        if self._is_refused(host, says):
            self._remind(host, says)
            return
        offset_ns = host.clock.heard(at_ns, says.sent_ns, says.difference_ns)
        report_on_clock(report, offset_ns)
        report.facts.change_each(self._with_hosts)
        if self._gathering is not None:
            self._gathering.heard(says.index, incarnation, _held_on_clock(says, offset_ns), report)
            self._remind(host, says)
            self._judge()
        elif self._is_left_over(incarnation, says):
            self._remind(host, says)
        else:
            self._take_in(host, says, report, at_ns)
        self._answered(says, report)
        self._pass_on(host, says, at_ns, offset_ns)

    def _is_left_over(self, incarnation: str, says: HostSays) -> bool:
        """Whether it runs what an earlier controller has launched, and is to end that first."""
        if says.held is not None and incarnation not in self.membership.members:
            self._is_not_adopted.add(incarnation)
        return incarnation in self._is_not_adopted

    def _remind(self, host: RemoteHost, says: HostSays) -> None:
        """Tell it how it stands, until it has heard that: agents answer whatever they hear."""
        is_news = self._is_given_up(says.incarnation) and not host.is_told_given_up
        if is_news or says.heard < host.sent or not host.sent:
            self._send(says.incarnation)

    def _take_in(self, host: RemoteHost, says: HostSays, report: HostReport, at_ns: int) -> None:
        incarnation, is_new = says.incarnation, host.sent == 0
        moves = self.membership.joined(at_ns, says.index, incarnation, says.slice)
        self._carry_out(moves)
        if (is_new and host.sent == 0) or self._is_given_up(incarnation):
            self._remind(host, says)
        if self._encoded is None and self._order is not None:
            self._send_order()  # it may say now where the ranks meet
        assignment = host.assignment
        if assignment is not None and says.assignment == assignment.number:
            self._told.hear(report, assignment.slot)
            self.heard_of(says.index, report)

    def _is_refused(self, host: RemoteHost, says: HostSays) -> bool:
        """Whether it runs something else than this run is; it is told so whenever it is heard."""
        differ = differences(self._runs, says.runs)
        if not differ:
            return False
        if host.refused is None:
            host.refused = f"it has {', '.join(differ)}: start the same on all hosts"
            self._say("error", f"Host {says.index} is refused: {host.refused}")
        return True

    def closed(self, incarnation: str) -> None:
        """The connection to that agent has ended; it may dial again."""
        self._carry_out(self.membership.closed(self._now_ns(), incarnation))

    def gone(self, incarnation: str, words: str) -> None:
        """It is known that this agent is no more."""
        self._carry_out(self.membership.gone(self._now_ns(), incarnation, words))

    def set_quarantine(self, reasons: dict[int, str]) -> None:
        """These hosts are to have no slot; by index, why."""
        self._carry_out(self.membership.set_quarantine(self._now_ns(), reasons))

    def look(self) -> None:
        """Judge who is silent; due at `next_look_ns`."""
        self._judge()
        self._look_who_has_answered()
        due_ns = self.membership.next_look_ns()
        if due_ns is not None and due_ns <= self._now_ns():
            self._hear_who_lives()
        self._carry_out(self.membership.look(self._now_ns()))
        if self._elastic is not None and self._gathering is None:
            self._look_whether_complete()
            self._elastic.look(self._now_ns())

    def _hear_who_lives(self) -> None:
        """Agents that have nothing new to say show life by their links."""
        members, now = self.membership, self._now_ns()
        for one in [one for one in members.members.values() if one.is_there]:
            silent_ns = self._wire.silent_ns(one.incarnation)
            if silent_ns is not None:
                self._carry_out(members.heard(now - silent_ns, one.incarnation))

    @property
    def _told(self) -> Told:
        assert self._controller is not None  # noqa: S101 - it is attached before anything is heard
        return self._controller

    def _with_hosts(self, fact: ev.Event) -> ev.Event:
        """A launch came after the wait for its hosts, and they have so many chips."""
        if not isinstance(fact, ev.Launched):
            return fact
        chips = self._chips.counted if self._chips.are_said or self._elastic else None
        return replace(fact, waited=self._waited, chips=chips) if chips or self._waited else fact

    def chips_of(self, placement: Placement) -> int:
        """How many the hosts have that have a part of it."""
        return self._chips.of(placement.hosts).here

    def _pass_on(self, host: RemoteHost, says: HostSays, at_ns: int, offset_ns: int) -> None:
        """What somebody on that host asks of the run, and what is announced there, each once."""
        for asked in says.asks:
            if asked.number > self._asked.get(says.agent, 0):
                self._asked[says.agent] = asked.number
                source = f"{asked.source} on host {says.index}"
                self._told.feed(_event_of(asked, source, at_ns, offset_ns))
        for notice in says.notices:
            if notice not in host.notices and not self.leaves_alone(says, notice):
                moved = _notice_on_clock(notice, offset_ns, f"host {says.index}")
                self._told.feed(ev.Noticed(at_ns, moved))
        host.notices = says.notices

    # --- what is decided of hosts -----------------------------------------------------------

    def _carry_out(self, moves: list[Move]) -> None:
        for move in moves:
            if isinstance(move, Assign):
                self._assign(move)
            elif isinstance(move, Lose):
                self._hosts[move.incarnation].assignment = None
                if move.index not in self.membership.quarantine:
                    self.lost(move.index, move.words)
                self._told.lose(move.slot)
                self._send(move.incarnation)
                self._forget_the_gone()
            elif isinstance(move, RefuseHost):
                self._hosts[move.incarnation].refused = move.words
                self._send(move.incarnation)
            elif isinstance(move, Tell):
                self._say(move.level, move.words)
        if moves:
            self._look_whether_complete()

    def _look_whether_complete(self) -> None:
        if self._awaiting is None or not self._has_enough:
            return
        do, self._awaiting = self._awaiting, None
        at_ns = self._now_ns()
        has_waited = at_ns > self._awaited_ns
        self._waited = ev.Waited("hosts", at_ns, self._awaited_ns) if has_waited else None
        if self._elastic is not None:
            self._carry_out(self.membership.break_slices(at_ns))
            slots = self.membership.close()
            self._chips.train(slots)
            self._placement = self._all.on_hosts(slots)
            self._elastic.begins(at_ns, slots)
        do()

    @property
    def _has_enough(self) -> bool:
        """Whether the hosts are there that the next attempt is to have."""
        if self.membership.is_complete:
            return True
        if self._elastic is None:
            return False
        return self._elastic.goes_on(self._now_ns(), self._in_memory(self._all))

    def _in_memory(self, placement: Placement) -> int:
        """The step of the newest set that such an attempt restores from the hosts' memory."""
        found = restorable(self._copies, placement)
        return found[-1].step if found else 0

    def _assign(self, move: Assign) -> None:
        launches = self._told.replace(move.slot)
        begins_at = 0 if self._order is None else self._order.begins_at(launches=launches)
        self._assignments += 1
        host = self._hosts[move.incarnation]
        host.assignment = Assignment(self._assignments, move.slot, begins_at)
        self._chips.have(move.slot, 0 if host.says is None else host.says.chips)
        self._send(move.incarnation)

    def _forget_the_gone(self) -> None:
        known = self.membership.members
        if len(self._hosts) < len(known) + FORGOTTEN:
            return
        for incarnation in [one for one in self._hosts if one not in known]:
            if self._hosts[incarnation].refused is None:
                del self._hosts[incarnation]
                self._is_not_adopted.discard(incarnation)

    # --- what is sent -----------------------------------------------------------------------

    def _send_order(self) -> None:
        order = self._order
        self._encoded = None if order is None else self._encode(order)
        if self._encoded is None:
            return  # a launch: who is to meet where is not known yet
        for slot in range(self.membership.slots):
            member = self.membership.host_of(slot)
            if member is not None:
                self._send(member.incarnation)

    def _encode(self, order: HostOrder) -> bytes | None:
        """With the place where the ranks meet; None: that is not known yet."""
        wants: Register[Want] = Register()
        for number, want in order.wants.numbered():
            if isinstance(want, act.Launch):
                meeting = self._meeting_of(want)
                if meeting is None:
                    return None
                want = replace(want, meeting=meeting)
                self._find_parts(want)
            wants.newest = number - 1
            wants.put(number, want)
        wants.newest = order.wants.newest
        return order_json(HostOrder(order.number, order.attention, wants))

    def _meeting_of(self, launch: act.Launch) -> Meeting | None:
        """On the host of rank 0; the same for all hosts, for as long as the attempt lives."""
        known = self._meeting
        if known is not None and known[0] == launch.attempt:
            return known[1]
        slots = launch.placement.hosts
        member = self.membership.host_of(slots[0])
        if member is None and self._elastic is not None:  # it was lost: they are only to end
            there = (self.membership.host_of(slot) for slot in slots)
            member = next((one for one in there if one is not None), None)
        says = None if member is None else self._hosts[member.incarnation].says
        if says is None or not says.address or len(says.ports) < PORTS:
            return None
        meeting = Meeting(says.address, *says.ports[:PORTS])
        self._meeting = launch.attempt, meeting
        return meeting

    def _find_parts(self, launch: act.Launch) -> None:
        """Where each host gets its part of the set that it is to start from, once an attempt."""
        if self._found_for == launch.attempt:
            return
        self._found_for, self._own_places = launch.attempt, {}
        resume = launch.resume
        if resume.buffer is None or resume.parent is None:
            return
        copies = self._copies
        wanted = SealedSet(resume.parent, resume.step, resume.buffer)
        ranks_of = launch.placement.by_host
        for slot in range(self.membership.slots):
            member, ranks = self.membership.host_of(slot), ranks_of.get(slot, ())
            if member is None or has_own(copies.get(member.incarnation, ()), wanted, ranks):
                continue
            holder = source(copies, wanted, ranks)
            if holder is not None and (place := self._server_of(holder)) is not None:
                self._own_places[slot] = place

    def _server_of(self, incarnation: str) -> CopyServer | None:
        says = self.newest_of(incarnation)
        if says is None or not says.address or not says.copy_port:
            return None
        return CopyServer(says.address, says.copy_port)

    def _places_of(self, slot: int) -> CopyPlaces:
        """The neighbours make a ring: each host copies the parts of the one before it."""
        of, ring = self._ring
        if of is not self._placement:
            of, ring = self._ring = self._placement, sorted(self._placement.by_host)
        before = self.membership.host_of(ring[bisect_left(ring, slot) - 1] if ring else slot)
        neighbour = None if before is None else self._server_of(before.incarnation)
        return CopyPlaces(self._own_places.get(slot), neighbour)

    def _is_given_up(self, incarnation: str) -> bool:
        """Whether it was taken for lost: should it live, it is told so whenever it is heard."""
        if incarnation in self._is_not_adopted:
            return True
        member = self.membership.members.get(incarnation)
        return member is not None and member.state is MemberState.LOST

    def _send(self, incarnation: str) -> None:
        host, member = self._hosts[incarnation], self.membership.members.get(incarnation)
        has_slot = member is not None and member.slot is not None
        host.sent += 1
        host.is_told_given_up = self._is_given_up(incarnation)
        says = ControllerSays(
            host.sent,
            self._now_ns(),
            host.clock.measured_ns,
            host.assignment if has_slot else None,
            host.is_told_given_up,
            host.refused,
            self._over,
            self._gathering is not None,
            NOWHERE if member is None or member.slot is None else self._places_of(member.slot),
            host.preflight,
        )
        self._wire.put(incarnation, encode_controller(says, self._encoded if has_slot else None))


def _event_of(asked: HostAsks, source: str, at_ns: int, offset_ns: int) -> ev.Event:
    if asked.what is Asking.STOP_NOW:
        return ev.StopNowAsked(at_ns, source)
    if asked.what is Asking.INTERRUPT:
        return ev.Interrupted(at_ns, source)
    deadline_ns = asked.deadline_ns
    by_ns = None if deadline_ns is None else deadline_ns + offset_ns
    return ev.StopAsked(at_ns, source, by_ns, notice=True)


def _held_on_clock(says: HostSays, offset_ns: int) -> HeldSlot | None:
    held = says.held
    if held is None or held.attention.deadline_ns is None:
        return held
    deadline_ns = held.attention.deadline_ns + offset_ns
    return replace(held, attention=held.attention._replace(deadline_ns=deadline_ns))


def _notice_on_clock(notice: Notice, offset_ns: int, host: str) -> Notice:
    deadline_ns = notice.deadline_ns
    return replace(
        notice,
        host=notice.host or host,
        received_ns=notice.received_ns + offset_ns,
        deadline_ns=None if deadline_ns is None else deadline_ns + offset_ns,
    )
