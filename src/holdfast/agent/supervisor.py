"""The controller of a run in its process: a loop over one selector, with the hosts behind a port.

It hands what happens to the controller, which decides, and to the hosts, which act. With one host
they are the agent in the same process (`agent.host_agent`), with several the link to the agents of
all (`agent.linked_hosts`). Whatever touches the run store happens in threads of its own
(`controller.storekeeper`, `upkeep`), whatever touches a terminal too (`output`). The loop waits for
events and nothing else.
"""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.agent.attempt import NO_STANDBY
from holdfast.agent.inbox import Inbox, watch_signals
from holdfast.agent.job import Job
from holdfast.agent.tree import become_subreaper
from holdfast.controller.controller import Controller
from holdfast.controller.journal import ControllerJournal
from holdfast.controller.ports import Link
from holdfast.controller.restart_log import RestartNotes
from holdfast.controller.storekeeper import AttemptFacts, Storekeeper
from holdfast.controller.timers import BootTimers
from holdfast.controller.upkeep import Upkeep
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.placement import Placement
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunMachine
from holdfast.distribution import VERSION
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, EXIT_UNAVAILABLE
from holdfast.journal.clocks import now_ns
from holdfast.journal.lease import Lease
from holdfast.journal.store import RunFolder

if TYPE_CHECKING:
    from holdfast.notices.listener import Listener

LONGEST_WAIT_NS = 250_000_000
CLOSE_LIMIT_S = 20.0
LISTENER_LIMIT_S = 2.0


class Screen:
    """What people see; the command line gives one that draws. Never raises, never blocks long."""

    def say(self, level: str, words: str) -> None:
        """One sentence of the supervisor's."""

    def line(self, rank: int, text: str) -> None:
        """One line of a rank's output; called from another thread."""

    def unfinished(self, rank: int, text: str) -> None:
        """How a rank's line without an end stands, "" when it has one; from another thread."""

    def show(self, supervisor: Supervisor) -> None:
        """Called several times a second: time to redraw."""

    def close(self) -> None:
        """Nothing more will come."""


class RunHosts(Link, Protocol):
    """The hosts of a run, as the loop sees them."""

    def attach(self, controller: Controller) -> None:
        """Whom to tell of them."""

    @property
    def next_look_ns(self) -> int | None:
        """When `look` is due; None: an event will tell."""

    @property
    def standby_words(self) -> str:
        """How what waits for the next attempt stands; "": there is nothing to say."""

    @property
    def hosts_words(self) -> str:
        """How the hosts of a run of several stand, in a line; "": it has one."""

    def chips_of(self, placement: Placement) -> int:
        """How many an attempt has that is placed so."""

    def look_whether_we_slept(self) -> bool:
        """Tell if nothing ran for a while since this was last asked: then every clock is new."""

    def turn(self) -> None:
        """Hand on what has happened since the last turn."""

    def look(self, now: int) -> None:
        """Look at what tells nothing of itself, if that is due."""

    def go_on_without_us(self) -> bool:
        """Somebody else has the run: whether its hosts go on with that one, and are left alone."""

    def close(self, finish: act.Finish | None) -> None:
        """The run is over for this controller. None: by an error."""


class Supervisor:
    """One run under supervision, from the lease to the exit code."""

    def __init__(
        self,
        folder: RunFolder,
        lease: Lease,
        job: Job,
        journal: ControllerJournal,
        screen: Screen,
        hosts: Callable[[Supervisor], RunHosts],
    ) -> None:
        """`hosts(self)` is called last but for the controller itself."""
        self.folder = folder
        self.job = job
        self.at_close: list[Callable[[act.Finish | None], None]] = []
        self.listener: Listener | None = None  # to sources of notices
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self._journal = journal
        self._screen = screen
        self._timers = BootTimers()
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()
        self.line, self.unfinished, self.say = screen.line, screen.unfinished, screen.say
        self.upkeep = Upkeep(lease, partial(self.say_later, "warning"), self.lost)
        self.hosts = hosts(self)
        self._storekeeper = Storekeeper(
            folder,
            lease,
            job.keep,
            AttemptFacts(job.chips, job.incarnation, tuple(job.command.argv)),
            memory=job.memory.folder.path if job.memory is not None else None,
            later=self.later,
            feed=self.tell,
            say=partial(self.say_later, "warning"),
            lost=self.lost,
            chips_of=self.hosts.chips_of,
        )
        self._restarts = RestartNotes(journal, self._storekeeper.note_restart)
        self.controller = Controller(
            job.policy,
            link=self.hosts,
            store=self._storekeeper,
            clock=self._timers,
            journal=self._restarts,
            say=screen.say,
            grace_ns=job.grace_ns,
        )
        self.hosts.attach(self.controller)
        self.reported = self.controller.hear

    @property
    def machine(self) -> RunMachine:
        """What decides."""
        return self.controller.machine

    def run(self, opened: ev.Opened) -> act.Finish:
        """Until the run is over for this supervisor."""
        become_subreaper()
        also = self.listener.signals if self.listener is not None else ()
        ignore_signals = watch_signals(
            lambda number: self.later(partial(self._on_signal, number)), also
        )
        self.selector.register(self._inbox, selectors.EVENT_READ)
        if opened.running is not None:
            self._storekeeper.inherit(opened.running.attempt)
        self._journal.opened(self.folder, self.job.chips, self.job.declared, self.job.policy.hang)
        self._journal.policy(self.job.policy, VERSION)
        self.upkeep.start()
        if self.listener is not None:
            self.listener.start()
        finish: act.Finish | None = None
        try:
            self.tell(opened)
            while (finish := self.controller.finish) is None:
                self.selector.select(self._wait_s())
                self._turn()
        finally:
            self._close(finish)
            ignore_signals()
            self.selector.close()
        self._turn_inbox()
        return finish

    def _close(self, finish: act.Finish | None) -> None:
        """End all that was begun, whatever became of the run."""
        if self.listener is not None:
            self.listener.close(LISTENER_LIMIT_S)
        self.hosts.close(finish)
        is_done = finish is not None and finish.exit_code == EXIT_DONE
        self._storekeeper.close(CLOSE_LIMIT_S, is_done=is_done)
        self._journal.close()
        self.upkeep.close(CLOSE_LIMIT_S)
        for close in self.at_close:
            close(finish)

    # --- what happens -----------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Something has happened; for the loop's thread."""
        self.controller.feed(event)

    def started(self, rank: int, cold: str) -> None:
        """A rank began, as a standby or cold: of interest for the story of a restart."""
        if self.job.standby.argv is None:
            return
        self._restarts.log.started(rank, cold)
        if cold and cold != NO_STANDBY:
            self.say("info", f"Rank {rank} starts without a standby: {cold}")

    def prepared(self, ready_ns: int) -> None:
        """Of interest for the story of a restart, and for plans."""
        self._restarts.log.prepared(ready_ns)

    def later(self, do: Callable[[], None]) -> None:
        """Have the loop do this; from any thread, or a signal handler."""
        self._inbox.put(do)

    def post(self, event: Callable[[int], ev.Event]) -> None:
        """Feed an event from another thread; `event` gets the time at which it is fed."""
        self.later(lambda: self.tell(event(now_ns())))

    def noticed(self, notice: Notice) -> None:
        """A source of notices has told something; called from its thread."""
        self.post(lambda at_ns: ev.Noticed(at_ns, notice))

    def say_later(self, level: str, words: str) -> None:
        """Say something; called from any thread."""
        self.later(partial(self._screen.say, level, words))

    def lost(self, words: str) -> None:
        """Somebody else has the run, or is to have it; called from any thread."""

        def leave() -> None:
            if self.hosts.go_on_without_us():
                self.controller.finish = act.Finish(EXIT_SAVED_START_ME_AGAIN, words)
            else:
                self.tell(ev.StopNowAsked(now_ns(), words, EXIT_UNAVAILABLE))

        self.later(leave)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self.listener is not None and self.listener.signal(number):
            return
        at_ns = now_ns()
        if number == signal.SIGQUIT:
            self.tell(ev.StopNowAsked(at_ns, name))
        elif number == signal.SIGINT:
            self.tell(ev.Interrupted(at_ns, "Ctrl-C"))
        else:
            self.tell(ev.StopAsked(at_ns, name, at_ns + self.job.grace_ns, notice=True))

    def record(self, fact: Mapping[str, Any]) -> None:
        """Put a fact into the controller's journal."""
        self._journal.fact(fact)

    # --- the loop ---------------------------------------------------------------------------

    def _wait_s(self) -> float:
        now = now_ns()
        due_ns = [now + LONGEST_WAIT_NS]
        for at_ns in (self.hosts.next_look_ns, self._timers.next_ns()):
            if at_ns is not None:
                due_ns.append(at_ns)
        return max(0, min(due_ns) - now) / SECOND_NS

    def _turn(self) -> None:
        hosts = self.hosts
        hosts.look_whether_we_slept()  # asked before anything that it made late
        self._turn_inbox()
        hosts.turn()
        now = now_ns()
        hosts.look_whether_we_slept()  # also in this turn: then it is not as late as it seems now
        for timer in self._timers.due(now):
            self.tell(ev.TimerFired(now, timer))
        hosts.look(now)
        self._journal.seen(now, is_held=self.machine.is_held)
        self._screen.show(self)

    def _turn_inbox(self) -> None:
        for item in self._inbox.take():
            item()
