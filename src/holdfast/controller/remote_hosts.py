"""The link of a controller to the agents of several hosts.

    hosts = RemoteHosts(wire, Membership(slots=8, spares=1), clock, say)
    controller = Controller(policy, link=hosts, …)
    hosts.attach(controller)
    hosts.take(incarnation, message)  # from the network
    hosts.look()  # now and then: who is silent?

Who belongs to the run, and which slot of its placement a host has, is decided by
`core.hosts.membership`. For whom an attempt waits: `controller.awaited_hosts`. What each host is
told: `controller.host_messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from holdfast.controller.awaited_hosts import AwaitedHosts
from holdfast.controller.heard_hosts import HeardHosts, RemoteHost
from holdfast.controller.host_messages import HostMessages, Wire
from holdfast.controller.inquiries import Inquiries
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.adoption import Gathering, LastOrdered, Verdict, waits_ns
from holdfast.core.hosts.alike import Alike, differences
from holdfast.core.hosts.clocks import report_on_clock
from holdfast.core.hosts.copies import in_memory
from holdfast.core.hosts.membership import (
    Assign,
    Lose,
    Membership,
    MemberState,
    Move,
    RefuseHost,
    Tell,
)
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import NOWHERE as NO_PLACEMENT
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import (
    Asking,
    Assignment,
    HeldSlot,
    HostAsks,
    HostSays,
    Over,
    decode_host,
)
from holdfast.core.hosts.silence import few
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunMachine
from holdfast.core.save.choose import SealedSet


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
        self.heard = HeardHosts(membership)
        self.awaited = AwaitedHosts(
            membership, self.heard, now_ns, self._carry_out, placement, elastic, chips
        )
        self.messages = HostMessages(wire, membership, self.heard, self.awaited, now_ns)
        self._wire = wire
        self._runs = runs
        self._now_ns = now_ns
        self._say = say
        self._controller: Told | None = None
        self._asked: dict[str, int] = {}  # by agent, how much of what it was asked is passed on
        self._unreadable: set[str] = set()
        self._assignments = 0
        self._inquiries = Inquiries()
        # Whether what is announced on a host is its own affair, and not the run's.
        self.leaves_alone: Callable[[HostSays, Notice], bool] = lambda _, __: False
        self.heard_of: Callable[[int, HostReport], None] = lambda _, __: None  # one that trains
        self.lost: Callable[[int, str], None] = lambda _, __: None  # who had a part, and why
        self.outvoted: Callable[[str], None] = lambda _: None  # the run is that of others, and why
        self.silent_ns: dict[int, int] = {}  # by slot, for the controller before this one
        self._gathering: Gathering | None = None  # what runs, and is not adopted yet
        self._judged: Callable[[LastOrdered | str], None] | None = None

    def attach(self, controller: Told) -> None:
        """Whom to tell."""
        self._controller = controller
        self.awaited.attach(controller)

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """Send it to every host that has a slot."""
        self.messages.obey(order)

    def reports(self) -> Iterable[tuple[int, HostReport]]:
        """None: what the hosts have said was handed over."""
        return ()

    def ask(self, do: Callable[[ev.HostsAnswered], None]) -> bool:
        """Those that have a part, and are not silent."""
        members = self.membership.members
        asked = {
            incarnation: host.sent + 1
            for incarnation, host in self.heard.items()
            if host.assignment is not None
            and incarnation in members
            and members[incarnation].state is MemberState.ASSIGNED
        }
        if asked:
            self._inquiries.ask(self._now_ns(), asked, do)
        for incarnation in asked:
            self.messages.send(incarnation)
        return bool(asked)

    def when_complete(self, do: Callable[[], None]) -> None:
        """Once every slot has a host, or an elastic run has enough; at once if that is so now."""
        self.awaited.when_complete(do)

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """By what the hosts that are there have said."""
        return self.awaited.sealed()

    def distrust(self, host: int, words: str) -> None:
        """Nothing: who looks after the hosts does (`controller.host_care`)."""

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """Ask the hosts; they look for their controller by the store, and dial."""
        members, now = self.membership, self._now_ns()
        limits = members.limits
        self.awaited.placement = action.placement
        slots = frozenset(action.placement.hosts)
        self._gathering = Gathering(
            action.attempt,
            slots,
            members.most,
            now + limits.lost_ns,
            {slot: now + waits_ns(limits, for_ns) for slot, for_ns in self.silent_ns.items()},
        )
        self._judged, self.messages.is_undecided = judged, True

    def go_on(self) -> None:
        """Each host has the slot that it had."""
        gathering = self._gathered()
        assert gathering is not None  # noqa: S101 - only what was gathered goes on
        for slot, one in gathering.holders.items():
            says = self.heard.newest_of(one.incarnation)
            of_slice = "" if says is None else says.slice
            self.membership.adopt(self._now_ns(), slot, one.index, one.incarnation, of_slice)
            self._assigned(one.incarnation, slot, 0, goes_on=True)
        self.awaited.go_on(gathering.holders)
        self.messages.send_all()

    def _gathered(self) -> Gathering | None:
        """It is known what becomes of what runs."""
        gathering, self._gathering = self._gathering, None
        self.messages.is_undecided = False
        return gathering

    def _judge(self) -> None:
        """Whether what runs goes on, as soon as that is certain."""
        gathering, judged = self._gathering, self._judged
        if gathering is None or judged is None:
            return
        verdict, reason = gathering.judge(self._now_ns())
        if verdict is Verdict.WAIT:
            return
        self._judged = None
        others = [(host, says) for host, says in self._known if host.differs]
        if verdict is Verdict.END and self._is_outvoted(others):
            return
        for host, says in others:
            self._refuse(host, says)
        holders = {slot: one.incarnation for slot, one in gathering.holders.items()}
        if verdict is Verdict.ADOPT:
            memory = in_memory(self.heard.said_copies, self.awaited.placement, holders)
            judged(gathering.found._replace(memory=memory))
            return
        self._gathered()
        returning = {slot: one.index for slot, one in gathering.holders.items()}
        self.membership.gather_until(self._now_ns(), gathering.until_ns, returning)
        self.heard.is_not_adopted = {*holders.values()}
        self.messages.send_all()
        judged(reason)

    # --- what is known ----------------------------------------------------------------------

    @property
    def next_look_ns(self) -> int | None:
        """When `look` is due, if nothing is heard until then; None: never."""
        gathered_ns = None if self._gathering is None else self._gathering.until_ns
        due_ns = (self._inquiries.due_ns, self.membership.next_look_ns(), gathered_ns)
        return min((one for one in due_ns if one is not None), default=None)

    @property
    def waits_for(self) -> str:
        """What is not known yet of an attempt that may run; "": nothing."""
        gathering = self._gathering
        return "" if gathering is None else gathering.judge(self._now_ns())[1]

    def end(self, over: Over) -> None:
        """The run is over for this controller: all hosts are to end with that."""
        self.awaited.give_up()
        self.messages.end(over)

    # --- what is heard ----------------------------------------------------------------------

    def take(self, incarnation: str, message: object) -> None:
        """An agent has sent this. `incarnation`: whose, by the connection."""
        try:
            says, report = decode_host(message, self.heard.facts_of(incarnation))
        except ValueError as error:
            if incarnation not in self._unreadable:  # it says so again and again
                self._unreadable.add(incarnation)
                self._say("error", f"What a host says cannot be read: {error}")
            return
        self.hear(incarnation, says, report)

    def hear(self, incarnation: str, says: HostSays, report: HostReport) -> None:
        """The same, of what was read already; the report is this end's own from then on."""
        at_ns, host = self._now_ns(), self.heard.get(incarnation)
        if host is None:
            host = self.heard[incarnation] = RemoteHost()
        if says.incarnation != incarnation or says.number <= host.heard:
            return
        host.heard, host.says = says.number, says
        if self._is_refused(host, says):
            self.messages.remind(says)
            return
        offset_ns = host.clock.heard(at_ns, says.sent_ns, says.difference_ns)
        report_on_clock(report, offset_ns)
        report.facts.change_each(self.awaited.told_with)
        if self._gathering is not None:
            self._gathering.heard(says.index, incarnation, _held_on_clock(says, offset_ns), report)
            self.messages.remind(says)
            self._judge()
        elif self._is_left_over(incarnation, says):
            self.messages.remind(says)
        else:
            self._take_in(host, says, report, at_ns)
        if self._inquiries:
            clock = self.heard.clock_of(incarnation)
            self._inquiries.answered(self._now_ns(), says, report, clock)
        self._pass_on(host, says, at_ns, offset_ns)

    def _is_left_over(self, incarnation: str, says: HostSays) -> bool:
        """Whether it runs what an earlier controller has launched, and is to end that first."""
        if says.held is not None and incarnation not in self.membership.members:
            self.heard.is_not_adopted.add(incarnation)
        return incarnation in self.heard.is_not_adopted

    def _take_in(self, host: RemoteHost, says: HostSays, report: HostReport, at_ns: int) -> None:
        incarnation, is_new = says.incarnation, host.sent == 0
        moves = self.membership.joined(at_ns, says.index, incarnation, says.slice)
        self._carry_out(moves)
        if (is_new and host.sent == 0) or self.heard.is_given_up(incarnation):
            self.messages.remind(says)
        self.messages.look_at_order()
        assignment = host.assignment
        if assignment is not None and says.assignment == assignment.number:
            self._told.hear(report, assignment.slot)
            if report.number > host.report:
                host.report, host.facts = report.number, report.facts.newest
            self.heard_of(says.index, report)

    def _is_refused(self, host: RemoteHost, says: HostSays) -> bool:
        """Whether it runs something else than this run is; it is told so whenever it is heard.

        Or that is not known yet: at first it speaks as to the controller before this one.
        """
        if says.runs:
            host.differs = ", ".join(differences(self._runs, says.runs))
        if host.differs is None and self._runs and self._gathering is not None:
            return True
        if not host.differs:
            return False
        if self._gathering is None:  # else it is known soon who does not fit
            self._refuse(host, says)
        return True

    def _refuse(self, host: RemoteHost, says: HostSays) -> None:
        if host.refused is None:
            host.refused = f"it has {host.differs}: start the same on all hosts"
            self._say("error", f"Host {says.index} is refused: {host.refused}")

    @property
    def _known(self) -> list[tuple[RemoteHost, HostSays]]:
        return [(host, host.says) for host in self.heard.values() if host.says is not None]

    def _is_outvoted(self, others: list[tuple[RemoteHost, HostSays]]) -> bool:
        """Whether it is this controller that does not fit, and not these, which differ from it.

        So it is where some of them train, and those that are like it are no more than they.
        """
        train = [host for host, says in others if says.held is not None]
        if not train or 2 * len(others) < len(self._known):
            return False
        which = few(says.index for _, says in others)
        self.outvoted(
            f"the run goes on without this host: the others ({which}) train, and they have "
            f"{train[0].differs}; start the same on all hosts"
        )
        return True

    def have_spoken(self, incarnations: Iterable[str]) -> None:
        """These have, and it is taken in after that: who was suspect is none any more."""
        members, now = self.membership.members, self._now_ns()
        there = (name for name in incarnations if name in members)
        heard_ns = {one: now for one in there if members[one].state is MemberState.SUSPECT}
        if heard_ns:
            self._carry_out(self.membership.heard_lately(now, heard_ns))

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
        self._inquiries.look(self._now_ns())
        now = self._now_ns()
        read_ns = now - self._wire.unread_ns()  # before it is asked who is silent
        if self.membership.is_silence_due(read_ns):
            self._hear_who_lives(now, read_ns)
        self._carry_out(self.membership.look(now, read_ns))
        if self._gathering is None:
            self.awaited.look()

    def _hear_who_lives(self, now_ns: int, read_ns: int) -> None:
        """Agents that have nothing new to say show life by their links."""
        there = [name for name, one in self.membership.members.items() if one.is_there]
        silent = ((name, self._wire.silent_ns(name)) for name in there)
        heard_ns = {name: now_ns - one for name, one in silent if one is not None}
        self._carry_out(self.membership.heard_lately(read_ns, heard_ns))

    @property
    def _told(self) -> Told:
        assert self._controller is not None  # noqa: S101 - it is attached before anything is heard
        return self._controller

    def _pass_on(self, host: RemoteHost, says: HostSays, at_ns: int, offset_ns: int) -> None:
        """What somebody on that host asks of the run, and what is announced there, each once."""
        for asked in says.asks:
            if asked.number > self._asked.get(says.agent, 0):
                self._asked[says.agent] = asked.number
                source = f"{asked.source} on host {says.index}"
                self._told.feed(_event_of(asked, source, at_ns, offset_ns))
        for notice in says.notices:
            if notice in host.notices:
                continue
            moved = _notice_on_clock(notice, offset_ns, f"host {says.index}")
            if not self.leaves_alone(says, moved):
                self._told.feed(ev.Noticed(at_ns, moved))
        host.notices = says.notices

    # --- what is decided of hosts -----------------------------------------------------------

    def _carry_out(self, moves: list[Move]) -> None:
        for move in moves:
            if isinstance(move, Assign):
                launches = self._told.replace(move.slot)
                begins_at = self.messages.begins_at(launches=launches)
                self._assigned(move.incarnation, move.slot, begins_at)
                self.messages.send(move.incarnation)
            elif isinstance(move, Lose):
                self.heard[move.incarnation].assignment = None
                if move.index not in self.membership.quarantine:
                    self.lost(move.index, move.words)
                self._told.lose(move.slot)
                self.messages.send(move.incarnation)
                self.heard.forget_the_gone()
            elif isinstance(move, RefuseHost):
                self.heard[move.incarnation].refused = move.words
                self.messages.send(move.incarnation)
            elif isinstance(move, Tell):
                self._say(move.level, move.words)
        if moves:
            self.awaited.look_whether_complete()

    def _assigned(
        self, incarnation: str, slot: int, begins_at: int, *, goes_on: bool = False
    ) -> None:
        self._assignments += 1
        host = self.heard[incarnation]
        host.assignment = Assignment(self._assignments, slot, begins_at, goes_on)
        host.report = host.facts = 0
        self.awaited.chips.have(slot, self.heard.chips_of(incarnation))


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
