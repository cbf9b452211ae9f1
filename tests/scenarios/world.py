"""A small virtual world around the real machines: `core.run`, `core.host`, `core.agree_rank`.

The supervisor here is `agent.supervisor` in miniature: the same order of reading, feeding and
acting, the same polling intervals, but virtual ranks, a virtual store and a virtual clock. Nothing
waits and nothing is random, so a world that is told the same things does the same things.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from virtual_memory import Memory, Shard
from virtual_ranks import Failure, Shape, VirtualRank
from virtual_store import Live, Store
from virtual_time import MS, SECOND, Clock

from holdfast.core import actions as act
from holdfast.core import agree_events as news
from holdfast.core import events as ev
from holdfast.core import facts, host
from holdfast.core.exits import Exit
from holdfast.core.hang_events import RankStack
from holdfast.core.rollback import Target, Wish, wishes_of
from holdfast.core.run import RunMachine, RunPolicy
from holdfast.core.word import Order, pack
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    NoGoodCheckpoint,
    NoSuchCheckpoint,
)
from holdfast.journal.attempts import AttemptRecord
from holdfast.snapshot.choose import newest_first
from holdfast.snapshot.sets import SetInfo, set_name

ACTIVE_POLL_NS = 2 * MS
IDLE_POLL_NS = 50 * MS
PROGRESS_NS = 250 * MS
STORE_NS = 10 * MS  # how long the store takes for anything
SPAWN_NS = 15 * MS
REAP_NS = 1 * MS
BELL_NS = 1 * MS
STUCK_NS = 10 * SECOND
LOOK_NS = 1 * SECOND  # at a drain under way

Tell = Callable[[int, Any, tuple[Any, ...], str], None]


class World:
    """One run under one supervisor, in virtual time. `tell` hears every event and its answer."""

    def __init__(
        self,
        shape: Shape,
        policy: RunPolicy | None = None,
        *,
        grace_ns: int = 30 * SECOND,
        tell: Tell = lambda *_: None,
        store: Store | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.clock = Clock()
        self.shape = shape
        self.machine = RunMachine(policy or RunPolicy(ranks=shape.ranks))
        self.host = host.HostMachine()
        self.store = store or Store()
        self.memory = memory or Memory(shape.ranks, shape.buffers)
        self.memory.busy = {}  # seals and drains end with the supervisor that they are children of
        self.seals_fail = False
        self.drain_starves = False  # until it is urgent
        self._drain: act.Drain | None = None
        self.grace_ns = grace_ns
        self.live: Live | None = None  # the attempt that runs
        self.finish: act.Finish | None = None
        self.finished_ns = 0
        self.failures: list[Failure] = []
        self.command_exists = True
        self.host_sticks = False
        self.stacks_ns: int | None = 50 * MS  # None: they never come
        self.reaper_alive = True
        self.recorded: list[dict[str, Any]] = []
        self.history: list[facts.Fact] = []
        self.ends: list[act.EndAttempt] = []
        self.launches: list[act.Launch] = []
        self.inputs: list[ev.Event] = []
        self.said: list[str] = []
        self._tell = tell
        self._timers: dict[str, int] = {}
        self._launch: act.Launch | None = None
        self._next_progress_ns = 0
        self._store_free_ns = 0
        self._interrupts = 0
        self._polls = 0

    # --- time -------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since the beginning."""
        return self.clock.now_ns

    def open(self) -> None:
        """The lease is held: begin."""
        store = self.store
        high_water = max((one.step for one in newest_first(store.sets, store.chain())), default=0)
        wishes = store.standing()
        self.feed(ev.Opened(self.now_ns, len(store.attempts), high_water, wishes=wishes))

    def run_for(self, ns: int) -> None:
        """Let so much time pass, or less if the run is over."""
        self.run_until(lambda: False, self.now_ns + ns)

    def run_until(self, reached: Callable[[], bool], limit_ns: int) -> bool:
        """Let time pass until it is so; False when the limit or the run's end came first."""
        while not reached():
            if self.finish is not None or not self.clock.advance(limit_ns):
                return reached()
        return True

    @property
    def step(self) -> int:
        """The step that all ranks have completed."""
        return self.live.step if self.live else self.machine.high_water

    # --- what comes from outside ------------------------------------------------------------

    def notice(self, source: str = "SIGTERM", grace_ns: int | None = None) -> None:
        """This host goes away when the grace period is over."""
        deadline_ns = self.now_ns + (self.grace_ns if grace_ns is None else grace_ns)
        self.feed(ev.StopAsked(self.now_ns, source, deadline_ns, notice=True))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._interrupts += 1
        if self._interrupts == 1:
            self.feed(ev.StopAsked(self.now_ns, "Ctrl-C", None, notice=False))
        else:
            self.stop_now("second Ctrl-C")

    def stop_now(self, source: str, exit_code: int = EXIT_SAVED_START_ME_AGAIN) -> None:
        """SIGQUIT, `holdfast stop --now`, or a lost lease."""
        self.feed(ev.StopNowAsked(self.now_ns, source, exit_code))

    def save(self) -> None:
        """`holdfast save`."""
        self.feed(ev.SaveAsked(self.now_ns, "holdfast save"))

    def roll_back(self, to: Target, skip_batches: int) -> None:
        """`holdfast rollback`: it lies in the store, and a supervisor that lives hears of it."""
        name = f"asked-{len(self.store.wishes)}"
        wish = Wish(name, to, skip_batches, "holdfast rollback", is_from_script=False)
        self.store.wishes.append(wish)
        if self.finish is None:
            self.feed(ev.RollbackAsked(self.now_ns, wish))

    def end_rank(self, rank: int, how: Exit) -> None:
        """A process ends, or is ended by somebody else. What it wished for is in its report."""
        if self.live is not None:
            self.live.ranks[rank].end(how)

    def suspend(self, gap_ns: int) -> None:
        """The whole machine sleeps; when it wakes up, its timers are long due."""
        self.clock.suspend(gap_ns)
        for rank in self.live.ranks if self.live else ():
            rank.pace.forget()
        self.feed(ev.Suspended(self.now_ns, gap_ns))
        for timer, at_ns in sorted(self._timers.items(), key=lambda item: item[1]):
            if at_ns <= self.now_ns and self._timers.get(timer) == at_ns:
                del self._timers[timer]
                self.feed(ev.TimerFired(self.now_ns, timer))

    def kill_reaper(self) -> None:
        """Somebody kills the reaper: its ranks are orphans now."""
        self.reaper_alive = False
        self.clock.later(REAP_NS, lambda: self._hear(host.ReaperLost(self.now_ns)))

    # --- Surroundings of the ranks ----------------------------------------------------------

    def failure(self, rank: int, step: int) -> Exit | str | None:
        """Whether this rank fails in this step."""
        for place, failure in enumerate(self.failures):
            if (failure.rank, failure.step) == (rank, step):
                if failure.times == 1:
                    del self.failures[place]
                elif failure.times:
                    self.failures[place] = replace(failure, times=failure.times - 1)
                return failure.how
        return None

    def read_error(self, resume: ev.Resume) -> str:
        """What a rank finds wrong with the set it restores."""
        bad = self.store.unreadable if resume.buffer is None else self.store.spoiling
        return bad.get(resume.set_name or "", "")

    def can_write(self, _rank: int) -> bool:
        """Whether a shard can be written."""
        return not self.store.is_full

    def ended(self, rank: VirtualRank) -> None:
        """A process is no more: the reaper reports it, and when nothing is left."""
        live = self.live
        if live is not None and rank.how is not None:
            self.store.wishes += wishes_of(live.attempt, [(rank.rank, rank.how)])
        if live is None or not self.reaper_alive:
            return
        self.clock.later(REAP_NS, lambda: self._report(live, rank))

    def _report(self, live: Live, rank: VirtualRank) -> None:
        if live is not self.live or rank.how is None or not self.reaper_alive:
            return
        asked = self.machine.stop is not None
        how = replace(rank.how, asked_to_stop=asked)
        self._hear(host.Died(self.now_ns, rank.ended_ns, rank.rank, how))
        if not any(other.alive for other in live.ranks) and not live.is_empty:
            live.is_empty = True
            self.clock.later(REAP_NS, lambda: self._hear(host.Empty(self.now_ns)))

    # --- the supervisor ---------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Record first, then decide, then act."""
        if self.finish is not None:
            return
        if ev.wants_progress(event, is_stopping=self.machine.stop is not None):
            self._read_words(with_progress=True)
        self.inputs.append(event)
        before = self.machine.state
        answer = self.machine.handle(event)
        after = self.machine.state
        change = f" [{before} → {after}]" if before is not after else ""
        self._tell(self.now_ns, event, answer, change)
        for action in answer:
            DO[type(action)](self, action)

    def _hear(self, event: host.HostEvent) -> None:
        if self.finish is not None:
            return
        live = self.live
        if isinstance(event, host.Died | host.ReaperLost):
            self._read_words(with_progress=True)
        if isinstance(event, host.Empty):
            self.live = None
        for action in self.host.handle(event):
            if isinstance(action, host.Tell):
                self.feed(action.event)
            elif isinstance(action, host.StartTree):
                self._start_tree()
            elif isinstance(action, host.KillTree) and live is not None:
                self._kill_tree(live)
            elif isinstance(action, host.SweepOrphans) and live is not None:
                self._sweep(live)

    def _start_tree(self) -> None:
        launch = self._launch
        assert launch is not None
        assert self.live is None, "two attempts at a time"
        self.reaper_alive = True
        if not self.command_exists:
            words = "cannot start 'trian.py': No such file or directory"
            self.clock.later(SPAWN_NS, lambda: self._hear(host.SpawnFailed(self.now_ns, words)))
            self.clock.later(SPAWN_NS + REAP_NS, lambda: self._hear(host.Empty(self.now_ns)))
            return

        def spawned() -> None:
            self.live = Live(launch.attempt, launch.resume, self)
            self._hear(host.Spawned(self.now_ns))
            self._polls += 1
            self._poll(self._polls)

        self.clock.later(SPAWN_NS, spawned)

    def _kill_tree(self, live: Live) -> None:
        if not live.is_killed:
            live.is_killed = True
            self.clock.later(REAP_NS, lambda: self._sigkill(live))
            self.clock.later(STUCK_NS, lambda: self._stuck(live))

    def _sigkill(self, live: Live) -> None:
        for rank in live.ranks:
            rank.is_stuck = rank.is_stuck or self.host_sticks
            rank.end(Exit(signal=9))

    def _stuck(self, live: Live) -> None:
        left = tuple(1000 + rank.rank for rank in live.ranks if rank.alive)
        if left and live is self.live:
            self._hear(host.Stuck(self.now_ns, left))

    def _sweep(self, live: Live) -> None:
        self._sigkill(live)
        left = tuple(1000 + rank.rank for rank in live.ranks if rank.alive)
        self._hear(host.Stuck(self.now_ns, left) if left else host.Empty(self.now_ns))

    # --- pages ------------------------------------------------------------------------------

    def _poll(self, number: int) -> None:
        if self.live is None or number != self._polls:
            return
        with_progress = self.machine.saving.is_active or self.now_ns >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = self.now_ns + PROGRESS_NS
        self._read_words(with_progress=with_progress)
        live = self.live
        for rank in live.ranks if live else ():
            if rank.sigterms > live.told_sigterms[rank.rank]:
                live.told_sigterms[rank.rank] = rank.sigterms
                self.notice(f"SIGTERM to rank {rank.rank}")
        hurried = self.machine.saving.is_active or self.machine.stop is not None
        wait_ns = ACTIVE_POLL_NS if hurried else IDLE_POLL_NS
        self.clock.later(wait_ns, lambda: self._poll(number))

    def _read_words(self, *, with_progress: bool) -> None:
        live = self.live
        if live is None:
            return
        for rank in live.ranks:
            if rank.has_page and rank.rank not in live.joined:
                live.joined.add(rank.rank)
                self._store_words(rank)
                self.feed(ev.Joined(self.now_ns, live.attempt, rank.rank))
            if rank.buffers != live.told_buffers[rank.rank]:
                live.told_buffers[rank.rank] = rank.buffers
                ready = ev.BuffersReady(self.now_ns, live.attempt, rank.rank, rank.buffers)
                self.feed(ready)
            before = live.told[rank.rank]
            rank.pace.look(rank.words.step, rank.step_ns, rank.spans_ns)
            if rank.words == before:
                continue
            fresh = with_progress or rank.words.loop_ended
            step = max(rank.words.step, before.step) if fresh else before.step
            live.told[rank.rank] = replace(rank.words, step=step)
            if rank.words.snap != before.snap:
                self.feed(ev.SaveTook(self.now_ns, live.attempt, rank.blocked_ns))
            for item in news.changes(self.now_ns, rank.rank, before, live.told[rank.rank]):
                self.feed(ev.Heard(self.now_ns, live.attempt, item))

    def _store_words(self, rank: VirtualRank) -> None:
        live = self.live
        if live is not None and rank.rank in live.joined:
            rank.order, rank.verdict, rank.committed = live.order, live.verdict, live.committed
            rank.stored()

    def stepped(self, rank: VirtualRank) -> None:
        """Some rank has passed a boundary; a step is complete when all ranks have passed it."""
        live = self.live
        if live is None:
            return
        slowest = min(max(one.words.step, live.resume.step) for one in live.ranks)
        if slowest > live.step and live.step_start_ns is not None:
            self.history.append(
                facts.StepsFact(
                    live.attempt, live.step + 1, slowest, live.step_start_ns, self.now_ns
                )
            )
            live.step, live.step_start_ns = slowest, self.now_ns

    def restored(self, rank: VirtualRank) -> None:
        """A rank has read its set: steps begin with the last; rank 0's reading is recorded."""
        live = self.live
        if live is None:
            return
        live.step_start_ns = self.now_ns
        if rank.rank == 0:
            start_ns = self.now_ns - self.shape.restore_ns
            self.history.append(
                facts.RestoreFact(
                    live.attempt, start_ns, self.now_ns, live.resume.step, live.resume.parent
                )
            )

    def copying(self, rank: VirtualRank, buffer: int) -> None:
        """It begins to write into a buffer."""
        self.memory.copying(rank.rank, buffer)

    def copied(self, rank: VirtualRank, buffer: int, epoch: int, step: int) -> None:
        """It has copied into a buffer, and rings: the supervisor looks at once."""
        if self.live is not None:
            self.memory.copied(rank.rank, buffer, Shard(self.live.attempt, epoch, step))
            self._polls += 1
            number = self._polls
            self.clock.later(BELL_NS, lambda: self._poll(number))

    def written(self, rank: VirtualRank, step: int) -> None:
        """A shard is durable."""
        if self.live is not None:
            self.store.shards.add((self.live.attempt, step, rank.rank))

    def facts(self) -> list[facts.Fact]:
        """What the run left for the ledger, from its ranks and from its controller."""
        run = facts.RunFact("virtual", 0, None, self.shape.ranks)
        found: list[facts.Fact] = [run, facts.SeenFact(self.now_ns), *self.history]
        started = {}
        for told in self.recorded:
            match told:
                case {"fact": "attempt_start"}:
                    started[told["attempt"]] = told["at_ns"]
                case {"fact": "attempt_end", "attempt": number}:
                    start_ns, end_ns = started.pop(number), told["at_ns"]
                    found.append(facts.AttemptFact(number, start_ns, end_ns, told["cause"]))
                case {"fact": "run_end"}:
                    found[0] = replace(run, ended_ns=told["at_ns"])
                case {"fact": "wait"}:
                    found.append(facts.WaitFact(told["kind"], told["start_ns"], told["end_ns"]))
                case {"fact": "fault"}:
                    at_ns, detected_ns = told["at_ns"], told["detected_ns"]
                    fault = facts.FaultFact(told["attempt"], at_ns, detected_ns, told["cause"])
                    found.append(fault)
                case {"fact": "notice"}:
                    deadline_ns = told["deadline_ns"]
                    found.append(facts.NoticeFact(told["at_ns"], deadline_ns, told["source"]))
                case {"fact": "saving" | "announced"}:
                    pass
                case _:
                    raise AssertionError(told)
        assert not started, "an attempt has not ended"
        return found

    # --- actions ----------------------------------------------------------------------------

    def _in_store(self, job: Callable[[], None]) -> None:
        """One worker, in order."""
        self._store_free_ns = max(self.now_ns, self._store_free_ns) + STORE_NS
        self.clock.later(self._store_free_ns - self.now_ns, job)

    def _do_choose(self, action: act.Choose) -> None:
        def job() -> None:
            if self.store.is_away:
                words = "the run store cannot be read"
                self.feed(ev.ChoiceFailed(self.now_ns, EXIT_UNAVAILABLE, words, is_away=True))
                return
            try:
                resume, words = self.store.choose(action.wish, self.memory)
            except (NoGoodCheckpoint, NoSuchCheckpoint) as error:
                self.feed(ev.ChoiceFailed(self.now_ns, error.exit_code, str(error)))
            else:
                self.feed(ev.Chosen(self.now_ns, resume, words))

        self._in_store(job)

    def _do_launch(self, action: act.Launch) -> None:
        self._launch = action
        self.launches.append(action)
        resume = action.resume
        self.memory.launch(action.attempt, resume.buffer)

        def job() -> None:
            if self.store.is_hung:
                return
            if self.store.is_fenced:
                words = f"attempt {action.attempt} was created by somebody else"
                failed = ev.LaunchFailed(self.now_ns, action.attempt, EXIT_UNAVAILABLE, words)
                self.feed(failed)
                self.feed(ev.TreeGone(self.now_ns, action.attempt))
                return
            ranks = self.shape.ranks
            self.store.attempts.append(
                AttemptRecord(
                    action.attempt,
                    resume.parent,
                    resume.step,
                    resume.set_name,
                    1,
                    ranks,
                    ranks,
                    "",
                    0,
                    skip_batches=resume.skip_batches,
                    rollback=action.rollback,
                )
            )
            self._hear(host.Start(self.now_ns, action.attempt, tuple(range(ranks))))

        self._in_store(job)

    def _do_carry_out(self, action: act.CarryOut) -> None:
        what, live = action.what, self.live
        if isinstance(what, news.Commit):
            self._in_store(lambda: self._commit(action.attempt, what))
        elif live is not None and isinstance(what, news.PublishOrder | news.PublishVerdict):
            word = pack(what.epoch, what.step, what.flags)
            if isinstance(what, news.PublishOrder):
                live.order = word
            else:
                live.verdict = word
                if what.flags & Order.COMMITTED:
                    live.committed = max(live.committed, what.step)
            for rank in live.ranks:
                self._store_words(rank)

    def _commit(self, attempt: int, what: news.Commit) -> None:
        outcome: news.Event
        if self.store.is_full:
            outcome = news.CommitFailed(self.now_ns, what.epoch, what.step, "no space left")
        else:
            place = Path(set_name(attempt, what.step))
            self.store.sets.append(SetInfo(place, attempt, what.step, self.shape.ranks, 0, 0, ()))
            outcome = news.Committed(self.now_ns, what.epoch, what.step)
        self.feed(ev.Heard(self.now_ns, attempt, outcome))

    def _do_seal(self, action: act.Seal) -> None:
        shard, buffer = Shard(action.attempt, action.epoch, action.step), action.buffer
        self.memory.pin(buffer, "it is being sealed")
        names = (action.attempt, action.epoch, action.step, buffer)

        def sealed() -> None:
            self.memory.unpin(buffer, "it is being sealed")
            if self.seals_fail:
                self.feed(ev.SealFailed(self.now_ns, *names, "no space left"))
            else:
                self.memory.seal(buffer, shard)
                self.feed(ev.Sealed(self.now_ns, *names))

        self.clock.later(self.shape.seal_ns, sealed)

    def _do_drain(self, action: act.Drain) -> None:
        if action.urgent and "it is being drained" in self.memory.busy.get(action.buffer, []):
            if self.drain_starves:
                self._drain = action
                self.clock.later(self.shape.drain_ns, lambda: self._drained(action, 0))
            return  # it goes on, faster
        assert all("it is being drained" not in why for why in self.memory.busy.values()), "two"
        here = self.memory.sealed.get(action.buffer)
        assert here is not None, f"{action}: nothing is sealed there"
        assert (here.attempt, here.step) == (action.attempt, action.step), (here, action)
        assert action.epoch in (0, here.epoch)
        self.memory.pin(action.buffer, "it is being drained")
        self._drain = action
        self.clock.later(LOOK_NS, lambda: self._draining(action))
        if not self.drain_starves or action.urgent:
            self.clock.later(self.shape.drain_ns, lambda: self._drained(action, 0))

    def _draining(self, action: act.Drain) -> None:
        drain = self._drain
        of = (action.attempt, action.epoch, action.step)
        if drain is not None and (drain.attempt, drain.epoch, drain.step) == of:
            self.clock.later(LOOK_NS, lambda: self._draining(action))
            self.feed(ev.Draining(self.now_ns, *of, 0))

    def _do_abandon_drain(self, action: act.AbandonDrain) -> None:
        drain, self._drain = self._drain, None
        assert drain is not None, "nothing is drained"
        self.memory.unpin(drain.buffer, "it is being drained")
        of = (action.attempt, action.epoch, action.step)
        self.feed(ev.DrainFailed(self.now_ns, *of, action.why))

    def _drained(self, action: act.Drain, rank: int) -> None:
        if action is not self._drain or self.store.is_hung:
            return
        names = (action.epoch, action.step)
        if self.store.is_full or self.store.is_away:
            self._drain = None
            self.memory.unpin(action.buffer, "it is being drained")
            why = "no space left" if self.store.is_full else "the run store cannot be reached"
            self.feed(ev.DrainFailed(self.now_ns, action.attempt, *names, why))
            return
        self.store.shards.add((action.attempt, action.step, rank))
        if rank + 1 < self.shape.ranks:
            self.clock.later(self.shape.drain_ns, lambda: self._drained(action, rank + 1))
        else:
            self._drain = None
            self.memory.unpin(action.buffer, "it is being drained")
        self.feed(ev.Drained(self.now_ns, action.attempt, rank, *names))

    def _do_commit_drained(self, action: act.CommitDrained) -> None:
        names = (action.attempt, action.epoch, action.step)

        def job() -> None:
            if self.store.is_full:
                self.feed(ev.DrainCommitFailed(self.now_ns, *names, "no space left"))
                return
            place = Path(set_name(action.attempt, action.step))
            ranks = self.shape.ranks
            if all(one.name != place.name for one in self.store.sets):
                one = SetInfo(place, action.attempt, action.step, ranks, 0, 0, ())
                self.store.sets.append(one)
            self.feed(ev.DrainCommitted(self.now_ns, *names))

        self._in_store(job)

    def _do_publish_committed(self, action: act.PublishCommitted) -> None:
        live = self.live
        if live is not None:
            live.committed = max(live.committed, action.step)
            for rank in live.ranks:
                self._store_words(rank)

    def _do_relay(self, _: act.Relay) -> None:
        for rank in self.live.ranks if self.live else ():
            rank.sigterm()

    def _do_kill(self, _: act.Kill) -> None:
        self._hear(host.End(self.now_ns))

    def _do_examine(self, action: act.Examine) -> None:
        for rank in self.live.ranks if self.live else ():
            rank.pace.look(rank.words.step, rank.step_ns, rank.spans_ns)
        looks = tuple(rank.look() for rank in self.live.ranks) if self.live else ()
        self.feed(ev.Examined(self.now_ns, action.attempt, looks))

    def _do_collect_stacks(self, action: act.CollectStacks) -> None:
        live = self.live

        def collected() -> None:
            stacks = tuple(
                RankStack(rank.rank, rank.where, not rank.where and not rank.is_stopped, "virtual")
                for rank in (live.ranks if live else ())
            )
            self.feed(ev.StacksCollected(self.now_ns, action.attempt, stacks))

        if self.stacks_ns is not None:
            self.clock.later(self.stacks_ns, collected)

    def _do_set_timer(self, action: act.SetTimer) -> None:
        self._timers[action.timer] = action.at_ns

        def fire() -> None:
            if self._timers.get(action.timer) == action.at_ns:
                del self._timers[action.timer]
                self.feed(ev.TimerFired(self.now_ns, action.timer))

        self.clock.later(action.at_ns - self.now_ns, fire)

    def _do_cancel_timer(self, action: act.CancelTimer) -> None:
        self._timers.pop(action.timer, None)

    def _do_record(self, action: act.Record) -> None:
        self.recorded.append(dict(action.fact))

    def _do_end_attempt(self, action: act.EndAttempt) -> None:
        self.ends.append(action)
        resume = self._launch.resume if self._launch else None
        if action.cause == "bad_checkpoint" and resume is not None and resume.set_name:
            bad = self.store.rejected if resume.buffer is None else self.store.spoilt
            bad[resume.set_name] = action.words

    def _do_say(self, action: act.Say) -> None:
        self.said.append(action.words)

    def _do_finish(self, action: act.Finish) -> None:
        assert self.finish is None, "finished twice"
        self.finish = action
        self.finished_ns = self.now_ns
        if not action.keep_memory:
            self.memory.lose()


DO: dict[type[act.Action], Callable[[World, Any], None]] = {
    act.Choose: World._do_choose,
    act.Launch: World._do_launch,
    act.CarryOut: World._do_carry_out,
    act.Seal: World._do_seal,
    act.Drain: World._do_drain,
    act.AbandonDrain: World._do_abandon_drain,
    act.CommitDrained: World._do_commit_drained,
    act.PublishCommitted: World._do_publish_committed,
    act.Relay: World._do_relay,
    act.Kill: World._do_kill,
    act.Examine: World._do_examine,
    act.CollectStacks: World._do_collect_stacks,
    act.SetTimer: World._do_set_timer,
    act.CancelTimer: World._do_cancel_timer,
    act.Record: World._do_record,
    act.EndAttempt: World._do_end_attempt,
    act.Say: World._do_say,
    act.Finish: World._do_finish,
}
