"""The daemon's loop: notices in, signals out, and somebody who waits.

It feeds `core.daemon.autocheckpoint` and carries out what that answers. While nothing is announced
it sleeps until a source tells something: processes are looked at in a round alone.
"""

from __future__ import annotations

import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.agent.daemon.holders import Scan
from holdfast.agent.daemon.pidfds import Pidfds
from holdfast.agent.daemon.release import ReleaseStep
from holdfast.agent.daemon.state_folder import StateFolder
from holdfast.agent.daemon.status import AgentCounts, status
from holdfast.agent.inbox import Inbox, watch_signals
from holdfast.core.daemon import events as ev
from holdfast.core.daemon.autocheckpoint import Autocheckpoint
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.notices.board import Notice
from holdfast.journal.clocks import now_ns

if TYPE_CHECKING:
    from holdfast.notices.listener import Listener

LISTENER_LIMIT_S = 2.0
RELEASE_POLL_NS = 50_000_000
Say = Callable[[str, str], None]


class AutocheckpointAgent:
    """One host's. `say(level, words)` is called from the loop's thread alone."""

    def __init__(
        self,
        machine: Autocheckpoint,
        scan: Scan,
        folder: StateFolder,
        release: ReleaseStep,
        say: Say,
    ) -> None:
        self.listener: Listener | None = None
        # Tells the cloud that these events may happen at once; None: it is not to be told.
        self.settle: Callable[[Sequence[Notice]], None] | None = None
        self.snapshot: dict[str, Any] = {}  # replaced as a whole: other threads read it
        self._machine, self._scan, self._folder = machine, scan, folder
        self._release, self._say = release, say
        self._tally = AgentCounts()
        self._last: ev.RoundReport | None = None
        self._pidfds = Pidfds()
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self._selector = selectors.DefaultSelector()
        self._unreadable_is_said = False
        self._is_over = False
        self._written_fails = False

    def run(self) -> None:
        """Until it is asked to leave by a signal."""
        also = self.listener.signals if self.listener is not None else ()
        ignore_signals = watch_signals(
            lambda number: self._inbox.put(partial(self._arrived, number)), also
        )
        self._selector.register(self._inbox, selectors.EVENT_READ)
        if self.listener is not None:
            self.listener.start()
        self._write()
        try:
            while not self._is_over:
                self._selector.select(self._wait_s())
                self._turn()
        finally:
            ignore_signals()
            if self.listener is not None:
                self.listener.close(LISTENER_LIMIT_S)
            self._let_go()
            self._release.close()
            self._selector.close()
            self._write()

    def noticed(self, notice: Notice) -> None:
        """A source of notices has told something; called from its thread."""
        self._inbox.put(lambda: self._feed(ev.NoticeHeard(now_ns(), notice)))

    def say_later(self, level: str, words: str) -> None:
        """Say something; called from any thread."""
        self._inbox.put(lambda: self._say(level, words))

    def write_later(self) -> None:
        """How a source gets on has changed, and `status` shows it; called from any thread."""
        self._inbox.put(self._write)

    # --- the loop -------------------------------------------------------------------------------

    def _wait_s(self) -> float | None:
        now = now_ns()
        moments = [self._machine.next_ns()]
        if self._release.deadline_ns is not None:
            moments.append(now + RELEASE_POLL_NS)
        known = [at_ns for at_ns in moments if at_ns is not None]
        return max(0, min(known) - now) / SECOND_NS if known else None

    def _turn(self) -> None:
        for item in self._inbox.take():
            item()
        for process in self._pidfds.ended():
            self._drop(process)
            self._feed(ev.Ended(now_ns(), process))
        if (done := self._release.poll(now_ns())) is not None:
            self._released(*done)
        next_ns = self._machine.next_ns()
        if next_ns is not None and next_ns <= now_ns():
            self._feed(ev.TimeCame(now_ns()))

    def _arrived(self, number: int) -> None:
        if self.listener is not None and self.listener.signal(number):
            return
        name = signal.Signals(number).name
        if number == signal.SIGUSR1:
            self._say(
                "info", f"{name} has no meaning here; give it one with --notice signal:USR1=SECONDS"
            )
            return
        self._say("info", f"{name}: the agent stops")
        self._is_over = True

    def _feed(self, event: ev.Event) -> None:
        """Decide, write down, act; and the same with what comes of it."""
        events: deque[ev.Event] = deque([event])
        while events:
            actions = self._machine.handle(events.popleft())
            if any(isinstance(one, ev.Signal) for one in actions):
                self._write()  # BEFORE they are sent
            for action in actions:
                events.extend(self._do(action))
        self._write()

    def _do(self, action: ev.Action) -> Iterable[ev.Event]:
        if isinstance(action, ev.LookAtProcesses):
            return [self._look(action.is_thorough)]
        if isinstance(action, ev.Signal):
            return self._signal(action.holder)
        if isinstance(action, ev.Report):
            self._report(action.round)
        elif isinstance(action, ev.ReleaseHost):
            self._say("info", f"Releasing the host: {self._release.words}")
            if (done := self._release.start(now_ns())) is not None:
                self._released(*done)
            self._settle(action.settled)
        else:
            self._say(action.level, action.words)
        return ()

    # --- what is done ---------------------------------------------------------------------------

    def _look(self, is_thorough: bool) -> ev.Looked:
        began_ns = now_ns()
        sight = self._scan.look(is_thorough=is_thorough)
        holders = tuple(one for one in sight.holders if self._hold(one))
        self._tally.looks += 1
        self._tally.look_ns = now_ns() - began_ns
        self._tally.sight = sight
        if sight.unreadable and not self._unreadable_is_said:
            self._unreadable_is_said = True
            self._say(
                "warning",
                f"Permission denied: {sight.unreadable} of {sight.processes} processes may not be "
                "looked at; what they hold is not known (root sees all)",
            )
        return ev.Looked(now_ns(), began_ns, holders, is_thorough, sight.unreadable)

    def _hold(self, holder: ev.DeviceHolder) -> bool:
        """Have its descriptor watched; False when it is not there any more."""
        process = holder.process
        if process in self._pidfds:
            return True
        if not self._pidfds.take(process, partial(self._scan.is_holder, process)):
            return False
        self._selector.register(self._pidfds.descriptor(process), selectors.EVENT_READ)
        return True

    def _signal(self, holder: ev.DeviceHolder) -> Iterable[ev.Event]:
        pid, devices = holder.process.pid, ", ".join(holder.devices)
        refused = self._pidfds.terminate(holder.process)
        if refused:
            self._tally.refused += 1
            return [ev.Refused(now_ns(), holder.process, refused)]
        self._tally.signalled += 1
        self._say("info", f"SIGTERM to process {pid} ({holder.command}), which holds {devices}")
        return ()

    def _report(self, report: ev.RoundReport) -> None:
        self._last = report
        self._tally.rounds[report.outcome] += 1
        left = report.left_behind
        counts = f"{len(report.entries) - len(left)} of {len(report.entries)}"
        took = in_words(report.over_ns - report.began_ns)
        words = f"{report.outcome} after {took}: {counts} processes have ended"
        if report.outcome is ev.RoundOutcome.WITHDRAWN:
            words = f"the notice is withdrawn after {took}: nothing is released"
        else:
            self._tally.left_behind += len(left)
        self._say("warning" if left else "info", words)
        for one in left:
            process = one.holder.process
            self._say("warning", f"process {process.pid} ({one.holder.command}) {one.fate}")
        self._let_go()

    def _released(self, is_done: bool, words: str) -> None:
        if is_done:
            self._tally.releases += 1
        else:
            self._tally.failed_releases += 1
        self._write()  # who reads the words may ask at once
        if is_done:
            self._say("info", f"Released: {words}")
        else:
            self._say("error", f"The release step failed: {words}")

    def _settle(self, notices: Sequence[Notice]) -> None:
        if self.settle is None:
            return
        if notices:
            self.settle(notices)
        else:
            self._say(
                "info", "The cloud is not told to go on: it is not certain that all have left"
            )

    def _drop(self, process: ev.ProcessId) -> None:
        self._selector.unregister(self._pidfds.descriptor(process))
        self._pidfds.drop(process)

    def _let_go(self) -> None:
        for process in self._pidfds.processes:
            self._drop(process)

    def _write(self) -> None:
        """What is so now, for the next agent and for people. Without it the work goes on."""
        standings = self.listener.standings if self.listener is not None else ()
        self.snapshot = status(
            self._machine, self._tally, self._last, standings, self._release.words
        )
        try:
            self._folder.write(self._machine.signalled, self.snapshot)
            self._written_fails = False
        except OSError as error:
            if not self._written_fails:
                self._written_fails = True
                self._say("warning", f"The agent's state cannot be written: {error}")
