"""The controller of a run that nobody supervises: a thread in the process of its rank 0.

It is the controller of `holdfast run`, with ports of its own: the host is this very process
(`own_host`), those of other ranks are reached through their framework's key-value store
(`hosts_link`), and an attempt is put on record once all ranks have read what it starts from
(`proposals`). What it cannot do is bring a dead process back. The training never waits for it,
except where it waits for a save.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from holdfast.config import start_of_job
from holdfast.controller.asked import event_of, who_asks
from holdfast.controller.controller import Controller
from holdfast.controller.journal import ControllerJournal
from holdfast.controller.storekeeper import AttemptFacts, Storekeeper
from holdfast.controller.timers import BootTimers
from holdfast.controller.upkeep import LiveFiles, Upkeep
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.exits import Exit
from holdfast.core.hosts.report import HostReport
from holdfast.core.ledger.program import Declared
from holdfast.core.run.machine import RunPolicy, State
from holdfast.core.save.policy import SavePolicy
from holdfast.core.save.saving import REQUEST_REACTION_NS
from holdfast.distribution import VERSION
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    HoldfastError,
    NoGoodCheckpoint,
    NoSuchCheckpoint,
    StoreUnavailable,
)
from holdfast.journal.clocks import now_ns
from holdfast.journal.control import ControlInbox
from holdfast.journal.folders import controller_journal
from holdfast.journal.lease import LastWords, Lease
from holdfast.journal.replicate import Replicator
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.session.own_link import OwnLink
from holdfast.session.proposals import Proposals
from holdfast.session.say import say
from holdfast.snapshot.keep import Keep

CLOSE_LIMIT_S = 20.0
POST_CLOSE_S = 3.0
END_LIMIT_S = 5.0  # where the deadline has come, and the store does not answer
LAST_S = 1.0  # rank 0 outlives a deadline by this, so that the others do not lose the store first


# The others look for orders ten times a second, and tell their progress four times.
REACTION_NS = 150_000_000


def bare_policy(save: SavePolicy, ranks: int, hold_s: float, chips: int) -> RunPolicy:
    """What the run's machine decides by. Each rank is a host of its own.

    A stop's deadline is the moment at which the scripts are ended, and so has no margin.
    """
    return RunPolicy(
        ranks=ranks,
        hosts=ranks,
        save=save,
        is_supervised=False,
        margin_ns=0,
        store_patience_ns=0,
        hold_finished_ns=round(hold_s * SECOND_NS),
        chips=chips,
        request_reaction_ns=REQUEST_REACTION_NS if ranks == 1 else REACTION_NS,
    )


@dataclass(frozen=True, slots=True)
class BareRun:
    """What is known of the run, of its attempt, and what it goes by. `live`: the rank's journal."""

    folder: RunFolder
    lease: Lease
    policy: RunPolicy
    keep: Keep
    facts: AttemptFacts
    live: Path
    attempt: int
    flush: Callable[[], None]  # what the rank has written is in its journal
    declared: Declared


BEFORE = (State.NEW, State.CHOOSING, State.WAITING, State.LAUNCHING)  # the first step


class BareKeeper(Storekeeper):
    """Its attempts are on record once all ranks have read what they start from."""

    proposals: Proposals

    def create_attempt(self, action: act.Launch, created: Callable[[], None]) -> None:
        """Have the ranks read it first."""
        create = partial(super().create_attempt, action, created)
        self.proposals.propose(action.resume, create)


class Controlling:
    """The thread. `tell` may be called from any thread, and from signal handlers."""

    def __init__(self, run: BareRun, link: OwnLink) -> None:
        self.refusal: HoldfastError | None = None  # why no attempt can begin
        self.has_turned = threading.Event()  # the loop has done what there was to do
        self.proposals = Proposals(run.policy.ranks, self._refuse)
        self._run_of = run
        self._link = link
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers = BootTimers()
        self._trouble: ev.ChoiceFailed | ev.LaunchFailed | None = None
        self._is_closing = False
        self._lease_words = ""
        self._save_asked = ""  # by whom, before there was anything to save
        self._control = ControlInbox(run.folder, run.lease.epoch)
        self._upkeep = Upkeep(run.lease, say, self._lease_lost)
        self._upkeep.tasks.append(self._obey)
        self._live = run.live.with_name(controller_journal(run.lease.epoch))
        self._files = LiveFiles(run.live.parent)
        self._keeper = BareKeeper(
            run.folder,
            run.lease,
            run.keep,
            run.facts,
            later=self.do,
            feed=self._feed,
            say=say,
        )
        self._keeper.proposals = link.proposals = self.proposals
        self._journal: ControllerJournal
        self._controller: Controller
        self._began = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-controller", daemon=True)

    # --- for other threads ------------------------------------------------------------------

    def start(self) -> None:
        """Begin; a long restore must not let the lease grow old. Raises StoreUnavailable."""
        self._thread.start()
        self._began.wait()
        if self._failed is not None:
            raise self._failed
        self._upkeep.add(self._files)
        self._upkeep.start()

    def do(self, what: Callable[[], None]) -> None:
        """Have the loop do this."""
        self._inbox.put(what)

    def tell(self, event: Callable[[int], ev.Event]) -> None:
        """Feed an event; `event` gets the time at which it is fed."""
        self.do(lambda: self._feed(event(now_ns())))

    def hurry(self) -> None:
        """Look at once."""
        self.do(lambda: None)

    def answer(self, number: int, refused: str | None) -> None:
        """Rank 0 has read what was proposed, or cannot."""
        self.do(lambda: self.proposals.answer(0, number, refused))

    @property
    def is_stopping(self) -> bool:
        """Whether somebody wants the run to stop."""
        return self._controller.machine.stop is not None

    def close(self, how: Exit) -> None:
        """The script ends so: put that on record, and end the thread."""
        self.do(partial(self._script_ends, how))
        self._thread.join()

    # --- the loop ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._begin()
        except BaseException as error:
            self._failed = error
            return
        finally:
            self._began.set()
        while not self._is_closing:
            try:
                self._turn()
            except Exception as error:
                # The training must not notice; the next turn tries again.
                say(f"The controller failed with an internal error: {error!r}; training goes on")
            self.has_turned.set()
        self._close(CLOSE_LIMIT_S)

    def _begin(self) -> None:
        run = self._run_of
        identity = ControllerJournal.identity(run.folder, run.lease.epoch, run.facts.incarnation)
        self._journal = ControllerJournal(JournalWriter.create(self._live, identity))
        self._journal.opened(run.folder, run.facts.chips, run.declared)
        self._journal.begun_by(start_of_job())
        self._journal.policy(run.policy, VERSION)
        self._controller = Controller(
            run.policy,
            link=self._link,
            store=self._keeper,
            clock=self._timers,
            journal=self._journal,
            say=lambda _, words: say(words),
        )

    def _turn(self) -> None:
        self._take_inbox()
        now = now_ns()
        self._link.host.heartbeat(now)
        self._link.turn(now)
        self._look_whether_it_begins()
        for timer in self._timers.due(now):
            self._feed(ev.TimerFired(now, timer))
        self._hear(self._link.look(now))
        self._ask_for_early_save()
        self._journal.seen(now, is_held=self._controller.machine.is_held)
        finish = self._controller.finish
        if finish is not None and not self._is_closing:
            self._over(finish)

    def _take_inbox(self) -> None:
        """Wait until there is something to do, and do it."""
        wait_s = self._link.host.wait_s
        due_ns = self._timers.next_ns()
        if due_ns is not None:
            wait_s = min(wait_s, max(0, due_ns - now_ns()) / SECOND_NS)
        try:
            self._inbox.get(timeout=wait_s)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _feed(self, event: ev.Event) -> None:
        if isinstance(event, ev.ChoiceFailed | ev.LaunchFailed):
            self._trouble = event
        if isinstance(event, ev.SaveAsked) and self._controller.machine.state in BEFORE:
            self._save_asked = event.source  # nothing is trained yet: it is asked for then
            return
        if isinstance(event, ev.ProfileAsked) and self._controller.machine.state in BEFORE:
            say(f"Rank {event.rank} is not profiled for {event.source}: nothing is trained yet")
            return
        self._controller.feed(event)

    def _hear(self, reports: list[tuple[int, HostReport]]) -> None:
        for host, report in reports:
            self._controller.hear(report, host)

    def _ask_for_early_save(self) -> None:
        if self._save_asked and self._controller.machine.state is State.RUNNING:
            who, self._save_asked = self._save_asked, ""
            self._feed(ev.SaveAsked(now_ns(), who))

    # --- how it begins ----------------------------------------------------------------------

    def _refuse(self, words: str) -> None:
        """A rank cannot read the set that was chosen: another one is."""
        self._feed(ev.SetRefused(now_ns(), self._controller.machine.attempt, words))

    def _look_whether_it_begins(self) -> None:
        """The attempt is on record: what the rank and the controller write has its place now."""
        if self.proposals.has_begun or self._link.host.attempt < 0:
            return
        run = self._run_of
        place = run.folder.attempt_journal_dir(run.attempt)
        self._files.files += [
            Replicator(run.live, place / run.live.name),
            Replicator(self._live, run.folder.journal_dir / self._live.name),
        ]
        self.proposals.has_begun = True

    def _over(self, finish: act.Finish) -> None:
        """The run is over, and the script has not ended: it is told, or ended."""
        if finish.exit_code == EXIT_SAVED_START_ME_AGAIN:  # it was to stop, and came to no boundary
            self._end_process(finish)
        if self.refusal is None:
            self.refusal = self._error_of(finish)

    def _error_of(self, finish: act.Finish) -> HoldfastError:
        if self._trouble is not None:
            return StoreUnavailable(finish.words)
        is_none_such = finish.exit_code == EXIT_CONFIGURATION
        return (NoSuchCheckpoint if is_none_such else NoGoodCheckpoint)(finish.words)

    # --- how it ends ------------------------------------------------------------------------

    def killed(self) -> None:
        """The controller wants this process to end: for the machine it has."""
        self.do(lambda: self._hear(self._link.last_reports(now_ns(), None)))

    def _script_ends(self, how: Exit) -> None:
        self._is_closing = True
        machine = self._controller.machine
        if machine.state in (State.LAUNCHING, State.RUNNING):
            self._hear(self._link.reports())  # its last words count
            self._hear(self._link.last_reports(now_ns(), how))
        elif machine.state is State.KILLING:
            self._hear(self._link.last_reports(now_ns(), None))

    def _end_process(self, finish: act.Finish) -> NoReturn:
        """The main thread may be stuck for good: nothing waits for it."""
        self._link.await_the_others(LAST_S)
        self._close(END_LIMIT_S)
        self._run_of.flush()
        self.give_back(END_LIMIT_S)
        self._link.close(POST_CLOSE_S)
        os._exit(finish.exit_code)

    def _close(self, limit_s: float) -> None:
        finish = self._controller.finish
        self._keeper.close(limit_s, is_done=finish is not None and finish.exit_code == EXIT_DONE)
        self._journal.close()

    def give_back(self, limit_s: float) -> None:
        """Bring the journals home, and give the run back."""
        if not self._upkeep.close(limit_s):
            say(f"The journal's end is not in the run store: it is kept in {self._live.parent}")
        finish = self._controller.finish if self.proposals.has_begun else None
        words = None
        if finish is not None:
            words = LastWords(finish.exit_code, finish.words, finish.leaves_memory)
        with contextlib.suppress(HoldfastError, OSError):
            self._run_of.lease.release(words)

    # --- the store's ------------------------------------------------------------------------

    def _obey(self) -> None:
        """What people asked for through the store; called by the upkeep's thread."""
        try:
            taken = self._control.take()
        except HoldfastError:
            return  # the store is away: upkeep says so
        for words in taken.ignored:
            say(words)
        for asked in taken.requests:
            if asked.verb == "rollback":
                who = who_asks(asked)
                say(f"{who}: this process trains on; the next start of the script goes back")
            else:
                self.tell(event_of(asked))

    def _lease_lost(self, words: str) -> None:
        """Called by the upkeep's thread."""
        if words != self._lease_words:
            self._lease_words = words
            say(f"{words}; training goes on, and nothing that it saves counts")
