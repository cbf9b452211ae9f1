"""`holdfast run` on one of several hosts: the agent of this one, linked to the run's controller.

A loop over one selector carries out what the controller orders (`core.hosts.seat`,
`agent.host_agent`) and tells it how this host stands. It decides nothing about the run. Where no
controller is, it has one started (`agent.controller_watch`); what runs here goes on meanwhile.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agent.attempt import NO_STANDBY
from holdfast.agent.controller_watch import ControllerWatch, Sighting
from holdfast.agent.copying import Copying, CopyTrust
from holdfast.agent.host_agent import HostAgent
from holdfast.agent.inbox import Inbox, watch_signals
from holdfast.agent.job import Job, LocalRanks
from holdfast.agent.launch import free_ports
from holdfast.agent.memory import NO_MEMORY, held_parts
from holdfast.agent.preflight_runner import HostFacts, PreflightRunner
from holdfast.agent.standbys import Standbys
from holdfast.agent.supervisor import Screen
from holdfast.agent.tree import become_subreaper
from holdfast.controller.host_messages import PORTS, PREFLIGHT_PORT
from holdfast.controller.upkeep import Upkeep
from holdfast.core import actions as act
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.cadence import again_ns, progress_ns
from holdfast.core.hosts.order import Host
from holdfast.core.hosts.preflight import PreflightAnswer
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import Asking, Over
from holdfast.core.hosts.seat import Seat
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.notices.board import Notice
from holdfast.errors import EXIT_CONFIGURATION, EXIT_SAVED_START_ME_AGAIN
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.lease import WatchedHolder
from holdfast.journal.store import RunFolder
from holdfast.link.dialer import LinkDialer
from holdfast.link.values import Claim, LinkChange, LinkState, Peer, Trust

if TYPE_CHECKING:
    from holdfast.notices.listener import Listener

LONGEST_WAIT_NS = 250_000_000
CLOSE_LIMIT_S = 20.0
LISTENER_LIMIT_S = 2.0
LATE_NS = 5 * SECOND_NS  # after a stop's deadline: then this host leaves without a word
SAID_AFTER_NS = 2 * SECOND_NS
UNMET_NS = 45 * SECOND_NS  # the same before there ever was a link: the last controller may be dead
UNHEARD_NS = 15 * SECOND_NS  # the same where somebody wants to stop at once
SERVED_NS = 5 * SECOND_NS  # until others get what lies in this host's memory: usually half a second


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """One host among those of the run. `hosts`: how many there are, with spares.

    `address`: by which others reach it; "": by the way to the controller. `secret`: the run's.
    `copies_at`: the address at which they get parts of sets in its memory. `slice`: which one of
    several it belongs to. `chips`: how many it has; 0: nobody says.
    `runs`: what it runs, and with what, which is the same on all hosts.
    """

    index: int
    hosts: int
    address: str = ""
    runs: tuple[tuple[str, str], ...] = ()
    secret: bytes = field(default=b"", repr=False)
    copies_at: str = "127.0.0.1"
    slice: str = ""
    chips: int = 0


class LinkedAgent:
    """One host's agent, until the run is over."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        place: AgentPlace,
        screen: Screen,
        start_controller: Callable[[WatchedHolder], subprocess.Popen[bytes]],
    ) -> None:
        self.folder = folder
        self.listener: Listener | None = None
        self.agent: HostAgent | None = None
        self._job = job
        self._place = place
        self._screen = screen
        self.line, self.unfinished, self.say = screen.line, screen.unfinished, screen.say
        self.selector = selectors.DefaultSelector()
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self.upkeep = Upkeep(None, partial(self.say_later, "warning"), lambda _: None)
        self._watch = ControllerWatch(
            folder,
            place.index,
            start_controller,
            lambda seen: self.later(partial(self._sighted, seen)),
            self.say_later,
            place.hosts,
        )
        self._seat = Seat(place.index, uuid.uuid4().hex, self._begin)
        self._seat.runs = place.runs
        self._seat.boot = boot_id()
        self._seat.slice, self._seat.chips = place.slice, place.chips
        self._claim: Claim | None = None
        self._dialer: LinkDialer | None = None
        self._term = 0  # of the controller that this host works for
        self._is_news = True
        self._is_ending = False
        self._again_ns = 0  # then it speaks though nothing is new
        self._leave_by_ns: int | None = None
        self._over: Over | None = None
        self._ports_before = -1  # the newest attempt that is not to have the present ports
        self._unreadable = ""
        # Since when the link is, why, and whether the controller has ended it.
        self._down: tuple[int, str, bool] | None = None
        self._is_down_said = False
        self._standbys: Standbys | None = None  # of a spare
        self._is_waiting_said = False
        memory = job.memory
        self._copying = (
            None
            if memory is None
            else Copying(
                self.selector,
                job.command.environment,
                memory.folder.path,
                CopyTrust(folder.identity.run_id, place.secret, place.index, place.copies_at),
            )
        )
        self._seat.copies = () if job.memory is None else held_parts(job.memory.folder.path)
        # The controller counts on what it is told of. So this host joins once others get it here.
        self._joins_by_ns: int | None = None
        if self._copying is not None and self._seat.copies:
            self._copying.serve()
            self._joins_by_ns = now_ns() + SERVED_NS
        command = job.command
        facts = HostFacts(
            str(job.scratch), str(folder.path), command.argv, command.working_directory
        )
        self._preflight = PreflightRunner(facts, place.secret, self._tried_out)

    def run(self) -> Over:
        """Until the run is over, or this host is no part of it."""
        become_subreaper()
        also = self.listener.signals if self.listener is not None else ()
        ignore_signals = watch_signals(
            lambda number: self.later(partial(self._on_signal, number)), also
        )
        self.selector.register(self._inbox, selectors.EVENT_READ)
        self.upkeep.start()
        if self.listener is not None:
            self.listener.start()
        self._dial()
        self._watch.start()
        try:
            while self._over is None:
                self.selector.select(self._wait_s())
                self._turn()
        finally:
            self._close()
            ignore_signals()
            self.selector.close()
        return self._over

    def _close(self) -> None:
        self._let_go_of_memory()
        if self._standbys is not None:
            self._standbys.close()
        if self.listener is not None:
            self.listener.close(LISTENER_LIMIT_S)
        if self._dialer is not None:
            self._dialer.close()
        if self._copying is not None:
            self._copying.close()
        self._preflight.close()
        self.upkeep.close(CLOSE_LIMIT_S)
        self._watch.close()

    def _let_go_of_memory(self) -> None:
        """It is freed, unless the run goes on and may want what is there."""
        over, memory = self._over, self._job.memory
        leaves_sets = over is None or over.leaves_memory
        if self.agent is not None:
            self.agent.close(act.Finish(0, "", leaves_memory=leaves_sets))
        elif memory is not None and not leaves_sets:
            memory.folder.remove()

    # --- what happens -----------------------------------------------------------------------

    def later(self, do: Callable[[], None]) -> None:
        """Have the loop do this; from any thread, or a signal handler."""
        self._inbox.put(do)

    def say_later(self, level: str, words: str) -> None:
        """Say something; called from any thread."""
        self.later(partial(self.say, level, words))

    def reported(self, _: HostReport) -> None:
        """Something is new on this host."""
        self._is_news = True

    def started(self, rank: int, cold: str) -> None:
        """A rank began, as a standby or cold."""
        if self._job.standby.argv is not None and cold and cold != NO_STANDBY:
            self.say("info", f"Rank {rank} starts without a standby: {cold}")

    def prepared(self, _: int) -> None:
        """Nothing: the controller of several hosts does not ask."""

    def noticed(self, notice: Notice) -> None:
        """A source of notices has told something; called from its thread."""

        def announce() -> None:
            self._seat.announce(notice)
            self._is_news = True

        self.later(announce)

    def _tried_out(self, answer: PreflightAnswer) -> None:
        """What came of a preflight; called from its thread."""

        def tell() -> None:
            self._seat.preflight = answer
            self._is_news = True

        self.later(tell)

    def _on_signal(self, number: int) -> None:
        if self.listener is not None and self.listener.signal(number):
            return
        name, now = signal.Signals(number).name, now_ns()
        self._is_news = True
        if number == signal.SIGQUIT:
            self._seat.ask(Asking.STOP_NOW, name)
            self._leave_by_ns = now + UNHEARD_NS
        elif number == signal.SIGINT:
            self._seat.ask(Asking.INTERRUPT, "Ctrl-C")
        else:
            by_ns = now + self._job.grace_ns
            self._seat.ask(Asking.STOP, name, by_ns)
            self._leave_by_ns = min(self._leave_by_ns or by_ns + LATE_NS, by_ns + LATE_NS)
        if self._term == 0:
            words = "stopped before it had found its controller"
            self._over = Over(EXIT_SAVED_START_ME_AGAIN, words)

    def _sighted(self, seen: Sighting) -> None:
        if seen.over is not None and self._over is None:
            self._over = seen.over
        if seen.claim is not None:
            self._claim = seen.claim
            if not (self._term or self._is_down_said):
                self._down = None  # that was another one
            if self._dialer is not None and self._term <= seen.claim.term:
                self._aim(self._dialer, seen.claim)
        if seen.newest_attempt is not None and self.agent is not None:
            attempt = self.agent.attempt
            if attempt is not None and seen.newest_attempt > attempt.attempt:
                self.agent.kill()  # the run goes on elsewhere

    # --- the link ---------------------------------------------------------------------------

    def _dial(self) -> None:
        place = self._place
        dialer = self._dialer = LinkDialer(
            self.folder.identity.run_id,
            Peer(place.index, self._seat.incarnation),
            Trust(place.secret),
            place.hosts,
        )
        self.selector.register(dialer, selectors.EVENT_READ)
        self._term, self._is_news = 0, True
        self._seat.address = place.address  # else it is known once there is a link
        self._seat.ports = tuple(free_ports(PORTS + 1))
        if self._claim is not None:
            self._aim(dialer, self._claim)

    def _aim(self, dialer: LinkDialer, claim: Claim) -> None:
        if self._joins_by_ns is not None:
            return
        dialer.aim(claim)

    def _hear(self, dialer: LinkDialer) -> None:
        news = dialer.take()
        if news.change is not None:
            self._watch.is_linked = news.change.state in (LinkState.UP, LinkState.SILENT)
            self._link_changed(news.change, dialer.own_address)
        if news.message is None:
            return
        if news.term != self._term:
            if self._term:
                self._seat.meet_controller()
            self._term = news.term
        try:
            self._seat.take(now_ns(), news.message)
        except ValueError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                self.say("error", f"What the controller says cannot be read: {error}")
        self._is_news = True
        if self._seat.over is not None:
            self._over = self._seat.over
        elif self._seat.refused is not None:
            self._over = Over(EXIT_CONFIGURATION, f"this host is refused: {self._seat.refused}")

    def _link_changed(self, change: LinkChange, own_address: str) -> None:
        """A link that is down for a moment is nothing to people."""
        if change.state is LinkState.UP:
            self._seat.address, self._is_news = self._place.address or own_address, True
            if self.agent is not None:
                self.agent.look_at_parts()
            if self._is_down_said:
                self.say("info", "The link to the controller is up again; nothing was lost")
            self._down, self._is_down_said = None, False
        elif change.state is LinkState.REFUSED and (self._down is None or not self._down[-1]):
            self._down = now_ns(), f"the controller turns this host away: {change.words}", True
        elif change.state is LinkState.DOWN and self._down is None:
            self._down = now_ns(), change.words, False

    def _say_what_is_down(self) -> None:
        if self._down is None or self._is_down_said:
            return
        since_ns, words, is_refused = self._down
        is_unmet = not (self._term or is_refused)
        if now_ns() - since_ns <= (UNMET_NS if is_unmet else SAID_AFTER_NS):
            return
        self._is_down_said = True
        if is_unmet:
            reach = "let all hosts of the run reach each other, on any port"
            self.say("warning", f"The controller cannot be reached at {words}; {reach}")
            return
        runs = self.agent is not None and self.agent.attempt is not None
        goes_on = "; training goes on" if runs else ""
        self.say("warning", f"The link to the controller is down: {words}{goes_on}")

    def _begin(self, slot: int) -> Host:
        standbys, self._standbys = self._standbys, None
        self._is_waiting_said = False
        agent = self.agent = HostAgent(
            self.folder,
            self._job,
            self.selector,
            self.upkeep,
            self,
            slot,
            standbys,
            self._copying,
            progress_ns(self._place.hosts),
        )
        agent.spared = self._other_pids
        spare = "" if slot == self._place.index else f" in the place of host {slot}"
        self.say("info", f"This is host {self._place.index} of {self._place.hosts}{spare}")
        return agent

    def _other_pids(self) -> list[int]:
        """Children that are no attempt's."""
        copying = () if self._copying is None else self._copying.pids
        return [*self._watch.pids, *copying, *filter(None, [self._preflight.pid])]

    def _say_that_it_waits(self) -> None:
        """As a spare or in quarantine, once until it has a part again."""
        if self._seat.is_spare and not self._is_waiting_said:
            self._is_waiting_said = True
            host = f"host {self._place.index} of {self._place.hosts}"
            self.say("info", f"This is {host}, without a part: it waits until it gets one")

    def _stand_by(self) -> None:
        """A spare has interpreters at hand that have imported what the script will."""
        job = self._job
        if self._standbys is None and self._seat.is_spare and job.standby.argv is not None:
            ranks = LocalRanks(tuple(range(job.ranks_of_a_host)), job.policy.ranks)
            job.guess_imports(ranks.ranks)
            commands = partial(job.rank_commands, self.folder, local=ranks, memory=NO_MEMORY)
            say = partial(self.say, "warning")
            self._standbys = Standbys(
                job.standby, ranks.ranks, job.scratch, self.selector, commands, say
            )
            self._standbys.stand_by(act.StandBy(0, StandbyOrder.READY))
        if self._standbys is not None:
            self._standbys.turn(())

    def _leave_if_due(self) -> None:
        """What was taken for lost, or cannot go on, is ended before this joins anew."""
        if not self._seat.must_leave:
            return
        agent = self.agent
        if agent is not None and agent.attempt is not None:
            if not self._is_ending:
                self._is_ending = True
                agent.kill()
            return
        self._is_ending = False
        if agent is not None:
            agent.leave()
            self.agent = None
        if (dialer := self._dialer) is not None:
            self.selector.unregister(dialer)
            threading.Thread(target=dialer.close, daemon=True).start()
        self._seat.has_left(uuid.uuid4().hex)
        self._dial()

    # --- the loop ---------------------------------------------------------------------------

    def _wait_s(self) -> float:
        now = now_ns()
        due_ns = [now + LONGEST_WAIT_NS, self._again_ns]
        if self.agent is not None and self.agent.next_look_ns is not None:
            due_ns.append(self.agent.next_look_ns)
        return max(0, min(due_ns) - now) / SECOND_NS

    def _turn(self) -> None:
        if self.agent is not None:
            self.agent.look_whether_we_slept()
        for do in self._inbox.take():
            do()
        if self._dialer is not None:
            self._hear(self._dialer)
        self._turn_copying()
        agent = self.agent
        if agent is not None:
            agent.turn()
            agent.look_whether_we_slept()
            agent.look(now_ns())
        self._leave_if_due()
        self._preflight.obey(
            self._seat.preflight_order, self._seat.address, self._seat.ports[PREFLIGHT_PORT]
        )
        self._say_that_it_waits()
        self._stand_by()
        self._draw_ports()
        self._speak()
        self._say_what_is_down()
        if self._leave_by_ns is not None and now_ns() > self._leave_by_ns and self._over is None:
            words = "no controller has ended the run by the deadline of the stop"
            self._over = Over(EXIT_SAVED_START_ME_AGAIN, words)

    def _turn_copying(self) -> None:
        copying = self._copying
        if copying is None:
            return
        copying.turn()
        if copying.port != self._seat.copy_port:
            self._seat.copy_port, self._is_news = copying.port, True
        is_known = bool(copying.port or copying.why_not)
        if self._joins_by_ns is not None and (is_known or now_ns() > self._joins_by_ns):
            self._joins_by_ns = None
            if self._dialer is not None and self._claim is not None:
                self._aim(self._dialer, self._claim)

    def _draw_ports(self) -> None:
        """Fresh ones for each attempt: no rank may meet a store or coordinator of the last one."""
        attempt = None if self.agent is None else self.agent.attempt
        if attempt is not None and attempt.attempt != self._ports_before:
            self._ports_before = attempt.attempt
            self._seat.ports = tuple(free_ports(PORTS + 1))

    def _speak(self) -> None:
        """At once when something is new; that this lives, the link tells."""
        now = now_ns()
        is_due = self._is_news or now >= self._again_ns
        if self._dialer is None or not self._seat.address or not is_due:
            return
        self._is_news, self._again_ns = False, now + again_ns(self._place.hosts)
        agent = self.agent
        report = agent.reports()[0][1] if agent is not None else None
        if agent is not None:
            self._seat.copies = agent.parts
        self._seat.wall_ns = time.time_ns() - now
        self._dialer.put(self._seat.says(now, report))
