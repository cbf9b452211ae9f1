"""`holdfast run`: the controller and this host's agent in one process.

A loop over one selector feeds the pure machines (`core.run`, `core.hosts`) and carries out what
they answer. Each input of the run's machine is journaled before it is acted on. Whatever touches
the run store happens in threads of its own (`storekeeper`, `upkeep`), whatever touches a terminal
too (`output`). The loop itself waits for events and for nothing else.
"""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.agent.attempt import NO_STANDBY, LiveAttempt
from holdfast.agent.controller_journal import ControllerJournal
from holdfast.agent.job import Job
from holdfast.agent.look import Wakefulness, look_at
from holdfast.agent.memory import Memory
from holdfast.agent.output import RankOutput
from holdfast.agent.restart_log import RestartLog
from holdfast.agent.signals import watch
from holdfast.agent.stacks import Collected, collect_beside, targets
from holdfast.agent.standbys import Standbys
from holdfast.agent.storekeeper import Storekeeper
from holdfast.agent.successor import Successor
from holdfast.agent.timers import Timers
from holdfast.agent.tree import RankCommand, become_subreaper
from holdfast.agent.upkeep import Upkeep
from holdfast.agent.worker import Inbox
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts import machine as host
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunMachine, State
from holdfast.core.save import agree_events as news
from holdfast.core.save.word import pack
from holdfast.distribution import VERSION
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE
from holdfast.journal.clocks import now_ns
from holdfast.journal.gate import Go
from holdfast.journal.lease import Lease
from holdfast.journal.store import RunFolder

if TYPE_CHECKING:
    from holdfast.notices.listener import Listener

ACTIVE_POLL_NS = 2_000_000
IDLE_POLL_NS = 50_000_000
PROGRESS_NS = 250_000_000
LONGEST_WAIT_NS = 250_000_000
CLOSE_LIMIT_S = 20.0
LISTENER_LIMIT_S = 2.0
SECOND_NS = 1_000_000_000


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


class Supervisor:
    """One run under supervision, from the lease to the exit code."""

    def __init__(
        self, folder: RunFolder, lease: Lease, job: Job, journal: ControllerJournal, screen: Screen
    ) -> None:
        self.folder = folder
        self.job = job
        self.machine = RunMachine(job.policy)
        self.attempt: LiveAttempt | None = None
        self.at_close: list[Callable[[act.Finish | None], None]] = []
        self.listener: Listener | None = None  # to sources of notices
        self.spared: Callable[[], list[int]] = list  # children of ours that are no attempt's
        self._inbox: Inbox[Callable[[], None]] = Inbox()
        self._journal = journal
        self._screen = screen
        self._host = host.HostMachine()
        self._timers = Timers()
        self._selector = selectors.DefaultSelector()
        self._wakefulness = Wakefulness(LONGEST_WAIT_NS)
        self._next_poll_ns = 0
        self._next_progress_ns = 0
        self._launch: act.Launch | None = None
        self._finish: act.Finish | None = None
        self._incident_of: LiveAttempt | None = None
        say_later = self.say_later
        self.upkeep = Upkeep(lease, partial(say_later, "warning"), self._lease_lost)
        self._restarts = RestartLog(job.policy.ranks)
        self.standbys = Standbys(
            job.policy.ranks, job.standby, self._selector, partial(screen.say, "warning")
        )
        self.successor = Successor(
            self.machine,
            self.standbys,
            job.scratch,
            self._commands_ahead,
            ranks=job.policy.ranks,
            is_hot=job.is_hot,
            say=partial(screen.say, "warning"),
        )
        self._storekeeper = Storekeeper(
            folder,
            lease,
            job.keep,
            memory=job.memory.folder.path if job.memory is not None else None,
            later=self._inbox.put,
            feed=self._feed,
            say=partial(say_later, "warning"),
        )
        self.memory = Memory(
            job.memory,
            self._selector,
            job.command,
            job.policy.ranks,
            folder.ckpt_dir,
            storekeeper=self._storekeeper,
            feed=self._feed,
        )

    def run(self, opened: ev.Opened) -> act.Finish:
        """Until the run is over for this supervisor."""
        become_subreaper()
        also = self.listener.signals if self.listener is not None else ()
        ignore_signals = watch(
            lambda number: self._inbox.put(partial(self._on_signal, number)), also
        )
        self._selector.register(self._inbox, selectors.EVENT_READ)
        self._journal.opened(self.folder, self.job.chips, self.job.ideal_step_ns)
        self._journal.policy(self.job.policy, VERSION)
        self.upkeep.start()
        if self.listener is not None:
            self.listener.start()
        try:
            self._feed(opened)
            while self._finish is None:
                self._selector.select(self._wait_s())
                self._turn()
        finally:
            self._close_attempt()
            if self.listener is not None:
                self.listener.close(LISTENER_LIMIT_S)
            self.standbys.close()
            self.memory.close(keep=self._finish is None or self._finish.keep_memory)
            is_done = self._finish is not None and self._finish.exit_code == EXIT_DONE
            self._storekeeper.close(CLOSE_LIMIT_S, is_done=is_done)
            self._journal.close()
            self.upkeep.close(CLOSE_LIMIT_S)
            for close in self.at_close:
                close(self._finish)
            ignore_signals()
            self._selector.close()
        self._turn_inbox()
        return self._finish

    def post(self, event: Callable[[int], ev.Event]) -> None:
        """Feed an event from another thread; `event` gets the time at which it is fed."""
        self._inbox.put(lambda: self._feed(event(now_ns())))

    def noticed(self, notice: Notice) -> None:
        """A source of notices has told something; called from its thread."""
        self.post(lambda at_ns: ev.Noticed(at_ns, notice))

    def say_later(self, level: str, words: str) -> None:
        """Say something; called from any thread."""
        self._inbox.put(partial(self._screen.say, level, words))

    def notice(self, source: str, grace_ns: int | None = None) -> ev.StopAsked:
        """A warning that says: this host goes away when the grace period is over."""
        at_ns = now_ns()
        grace_ns = self.job.grace_ns if grace_ns is None else grace_ns
        return ev.StopAsked(at_ns, source, at_ns + grace_ns, notice=True)

    # --- the loop ---------------------------------------------------------------------------

    def _wait_s(self) -> float:
        now = now_ns()
        wake_ns = now + LONGEST_WAIT_NS
        if self.attempt is not None:
            wake_ns = min(wake_ns, self._next_poll_ns)
        timer_ns = self._timers.next_ns()
        if timer_ns is not None:
            wake_ns = min(wake_ns, timer_ns)
        return max(0, wake_ns - now) / SECOND_NS

    def _turn(self) -> None:
        self._was_suspended()  # asked before anything that it made late
        self._turn_inbox()
        self.memory.turn()
        attempt = self.attempt
        if attempt is not None:
            if attempt.rung():
                self._next_poll_ns = 0
            for event in attempt.read(asked_to_stop=self.machine.stop is not None):
                self._on_host_event(event)
        self._look_at_successor()
        now = now_ns()
        self._was_suspended()  # also in this turn: then it is not as late as it seems now
        for timer in self._timers.due(now):
            self._feed(ev.TimerFired(now, timer))
        if now >= self._next_poll_ns:
            self._poll_ranks(now)
        self._journal.seen(now, is_held=self.machine.is_held)
        self._screen.show(self)

    def _turn_inbox(self) -> None:
        for item in self._inbox.take():
            item()

    def _look_at_successor(self) -> None:
        """Prepare the next attempt, and put on record how the last restart went."""
        self.successor.turn([] if self.attempt is None else list(self.attempt.pids.values()))
        if self.machine.state is State.RUNNING and (told := self._restarts.take()):
            self._storekeeper.note_restart(*told)

    def _poll_ranks(self, now: int) -> None:
        attempt = self.attempt
        if attempt is None:
            return
        attempt.pages.heartbeat(now)
        with_progress = self.machine.saving.is_active or now >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = now + PROGRESS_NS
        for event in attempt.pages.poll(now, with_progress=with_progress):
            if isinstance(event, ev.BuffersReady):
                self.memory.expect()
            self._feed(event)
        for rank in attempt.pages.new_sigterms():
            self._feed(self.notice(f"SIGTERM to rank {rank}"))
        hurried = self.machine.saving.is_active or self.machine.stop is not None
        self._next_poll_ns = now + (ACTIVE_POLL_NS if hurried else IDLE_POLL_NS)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self.listener is not None and self.listener.signal(number):
            return
        if number == signal.SIGQUIT:
            self._feed(ev.StopNowAsked(now_ns(), name))
        elif number == signal.SIGINT:
            self._feed(ev.Interrupted(now_ns(), "Ctrl-C"))
        else:
            self._feed(self.notice(name))

    def _was_suspended(self) -> bool:
        """Whether nothing ran for a while since this was last asked; then every clock is new."""
        gap_ns = self._wakefulness.gap_ns()
        if gap_ns:
            if self.attempt is not None:
                self.attempt.pages.suspended()
            self._feed(ev.Suspended(now_ns(), gap_ns))
        return gap_ns > 0

    def _read_progress(self) -> None:
        if self.attempt is not None:
            for event in list(self.attempt.pages.poll(now_ns(), with_progress=True)):
                self._feed(event)

    def _on_host_event(self, event: host.HostEvent) -> None:
        attempt = self.attempt
        if attempt is not None and isinstance(event, host.Died | host.ReaperLost):
            # A dead rank's last words count: a set may have become durable just before.
            self._read_progress()
        if isinstance(event, host.Empty):
            self.successor.has_ended()
            self._close_attempt()
        for action in self._host.handle(event):
            if isinstance(action, host.Tell):
                self._feed(action.event)
            elif isinstance(action, host.StartTree):
                self._start_tree()
            elif isinstance(action, host.KillTree) and attempt is not None:
                attempt.kill()
            elif isinstance(action, host.SweepOrphans) and attempt is not None:
                self._on_host_event(attempt.sweep(self._own_pids()))

    def _own_pids(self) -> list[int]:
        return [*self.standbys.pids, *self.memory.pids, *self.spared()]

    def _feed(self, event: ev.Event) -> None:
        """Journal first, then decide, then act."""
        if ev.wants_progress(event, is_stopping=self.machine.stop is not None):
            self._read_progress()
        self._journal.event(event)
        self._restarts.hear(event)
        actions = self.machine.handle(event)
        self._journal.answered(actions, event.at_ns)
        for action in actions:
            DO[type(action)](self, action)

    # --- actions ----------------------------------------------------------------------------

    def _do_choose(self, action: act.Choose) -> None:
        self._storekeeper.choose(action.wish)

    def _do_launch(self, action: act.Launch) -> None:
        self._launch = action
        ranks = tuple(range(self.job.policy.ranks))

        def created() -> None:
            self._restarts.recorded(now_ns())
            self._on_host_event(host.Start(now_ns(), action.attempt, ranks))

        self._storekeeper.create_attempt(
            action,
            created,
            ranks=len(ranks),
            chips=self.job.chips,
            incarnation=self.job.incarnation,
            command=tuple(self.job.command.argv),
        )

    def _start_tree(self) -> None:
        launch = self._launch
        if launch is None:
            return
        resume = launch.resume
        commands = partial(self._commands, attempt=launch.attempt, resume=resume)
        place = self.memory.place.buffer(resume.buffer)
        self.attempt = LiveAttempt(
            self.folder,
            launch.attempt,
            self.job.policy.ranks,
            go=Go(resume.set_name, resume.step, resume.parent, resume.skip_batches, place),
            scratch=self.job.scratch,
            commands=commands,
            screen=self._screen.line,
            unfinished=self._screen.unfinished,
            prepared=self.standbys.take(launch.attempt),
            started=self._on_started,
        )
        self._incident_of = self.attempt
        self.attempt.register(self._selector)
        self._next_poll_ns = 0  # ranks that were woken ahead have shown themselves already
        self.upkeep.add(self.attempt.live_files())

    def _on_started(self, rank: int, cold: str) -> None:
        if self.job.standby is not None:
            self._restarts.started(rank, cold)
            if cold and cold != NO_STANDBY:
                self._screen.say("info", f"Rank {rank} starts without a standby: {cold}")

    def _commands_ahead(
        self, outputs: Sequence[RankOutput], scratch: Path, attempt: int, gate: Path | None
    ) -> list[RankCommand]:
        nothing = ev.Resume(None, 0, None)
        return self._commands(outputs, scratch, attempt=attempt, resume=nothing, gate=gate)

    @property
    def _commands(self) -> Callable[..., list[RankCommand]]:
        return partial(self.job.rank_commands, self.folder, memory=self.memory.place)

    def _close_attempt(self) -> None:
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.unregister(self._selector)
            attempt.close()
            self.upkeep.end(attempt.scratch)

    def _do_carry_out(self, action: act.CarryOut) -> None:
        what = action.what
        attempt = self.attempt
        if isinstance(what, news.Commit):
            self._storekeeper.commit(action.attempt, what, self.job.policy.ranks)
        elif isinstance(what, news.PublishOrder) and attempt is not None:
            packed = pack(what.epoch, what.step, what.flags)
            attempt.pages.store_order(packed, action.deadline_ns)
        elif isinstance(what, news.PublishVerdict) and attempt is not None:
            attempt.pages.store_verdict(pack(what.epoch, what.step, what.flags))

    def _do_publish_committed(self, action: act.PublishCommitted) -> None:
        if self.attempt is not None:
            self.attempt.pages.store_committed(action.step)

    def _do_relay(self, _: act.Relay) -> None:
        if self.attempt is not None:
            self.attempt.signal(signal.SIGTERM)

    def _do_kill(self, _: act.Kill) -> None:
        self._on_host_event(host.End(now_ns()))
        self.successor.is_ending()

    def _do_examine(self, action: act.Examine) -> None:
        if self.attempt is not None:
            looks, at_ns = look_at(self.attempt.pages, self.attempt.pids), now_ns()
            if not self._was_suspended():  # else this look came late, and another one follows
                self._feed(ev.Examined(at_ns, action.attempt, looks))

    def _do_collect_stacks(self, action: act.CollectStacks) -> None:
        attempt = self.attempt
        if attempt is None:
            return

        def done(found: list[Collected]) -> None:
            attempt.postmortem.stacks = {one.stack.rank: one for one in found}
            stacks = tuple(one.stack for one in found)
            self.post(lambda at_ns: ev.StacksCollected(at_ns, action.attempt, stacks))

        collect_beside(targets(attempt.pages, attempt.pids), done)

    def _do_set_timer(self, action: act.SetTimer) -> None:
        self._timers.set(action.timer, action.at_ns)

    def _do_cancel_timer(self, action: act.CancelTimer) -> None:
        self._timers.cancel(action.timer)

    def _do_record(self, action: act.Record) -> None:
        self._journal.fact(action.fact)

    def _do_end_attempt(self, action: act.EndAttempt) -> None:
        ended = self._incident_of
        exits: tuple[int | None, ...] = ()
        incident: dict[str, Any] = {}
        stacks: dict[int, str] = {}
        if ended is not None and ended.attempt == action.attempt:
            exits = ended.postmortem.exits(self.job.policy.ranks)
            incident = ended.postmortem.incident(action)
            stacks = {rank: one.text for rank, one in ended.postmortem.stacks.items()}
        self._storekeeper.end_attempt(action, exits, incident, stacks)

    def _do_say(self, action: act.Say) -> None:
        self._screen.say(action.level, action.words)

    def _do_finish(self, action: act.Finish) -> None:
        self._finish = action

    def _lease_lost(self, words: str) -> None:
        self.post(lambda at_ns: ev.StopNowAsked(at_ns, words, EXIT_UNAVAILABLE))


DO: dict[type[act.Action], Callable[[Supervisor, Any], None]] = {
    act.Choose: Supervisor._do_choose,
    act.Launch: Supervisor._do_launch,
    act.CarryOut: Supervisor._do_carry_out,
    act.Seal: lambda self, action: self.memory.seal(action),
    act.Drain: lambda self, action: self.memory.drain(action),
    act.AbandonDrain: lambda self, action: self.memory.abandon(action),
    act.CommitDrained: lambda self, action: self.memory.commit(action),
    act.MakeRoom: lambda self, what: self._storekeeper.make_room(what.attempt, what.step),
    act.PublishCommitted: Supervisor._do_publish_committed,
    act.Relay: Supervisor._do_relay,
    act.Kill: Supervisor._do_kill,
    act.Examine: Supervisor._do_examine,
    act.CollectStacks: Supervisor._do_collect_stacks,
    act.SetTimer: Supervisor._do_set_timer,
    act.CancelTimer: Supervisor._do_cancel_timer,
    act.Record: Supervisor._do_record,
    act.EndAttempt: Supervisor._do_end_attempt,
    act.Say: Supervisor._do_say,
    act.Finish: Supervisor._do_finish,
}
