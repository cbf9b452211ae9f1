"""A small virtual world around the real machines: `core.run`, `core.hosts`, `core.save.agree_rank`.

The controller is `holdfast run`'s own; the world is what stands behind its ports: virtual hosts,
read in the same order and at the same intervals, a virtual store and a virtual clock. Nothing
waits and nothing is random, so a world that is told the same things does the same things.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from virtual_keeper import VirtualKeeper
from virtual_link import VirtualLink
from virtual_loop import Delays, Inputs, Source, Taking
from virtual_memory import Memory, Shard
from virtual_ranks import Failure, Shape, VirtualRank
from virtual_store import Live, Store
from virtual_time import MS, SECOND, Clock

from holdfast.controller.controller import Controller
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hang.events import RankStack
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.order import Host, Hurry
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.ledger import facts
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.run.rollback import Target, Wish, wishes_of
from holdfast.core.save import agree_events as news
from holdfast.core.save.choose import newest_first
from holdfast.core.save.word import Order, pack
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN

PROGRESS_NS = 250 * MS
REAP_NS = 1 * MS
HEARTBEAT_NS = 5 * SECOND  # how often a holder looks whether the lease is still its own
STUCK_NS = 10 * SECOND
LOOK_NS = 1 * SECOND  # at a flush under way
LOSSES = (host.Died, host.ReaperLost)  # before which the ranks' words are read

Tell = Callable[[int, Any, tuple[Any, ...], str], None]


class Watcher(Protocol):
    """Who checks what must be true whenever something happens (`watch.Watch`)."""

    def told(self, world: World, event: ev.Event, answer: tuple[act.Action, ...]) -> None:
        """The run's machine has answered; nothing was acted on yet."""

    def starts(self, world: World) -> None:
        """Ranks are about to be started."""

    def chosen(self, world: World, wish: Wish | None, resume: ev.Resume) -> None:
        """The store was asked what to start from."""

    def restored(self, world: World, rank: VirtualRank) -> None:
        """A rank is about to train on what it has read."""

    def commits(self, world: World, attempt: int, step: int) -> None:
        """A manifest is about to be written."""

    def put(self, world: World, what: str) -> None:
        """A manifest was written, or a set was marked as being removed."""

    def looked(self, world: World, *, is_ours: bool) -> None:
        """The store has said whose the run is."""

    def tells(self, world: World, attempt: int, step: int) -> None:
        """A set is told as durable."""

    def deletes(self, world: World, name: str) -> None:
        """A set is about to be deleted."""

    def left_saved(self, world: World, rank: VirtualRank, step: int) -> None:
        """A rank leaves, because its step is durable."""


class Rests(NamedTuple):
    """Looks at the pages are left out: since that one, with that wait between two of them."""

    since_ns: int
    wait_ns: int
    with_progress: bool


class Unwatched:
    """Nobody looks."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class World(Host):
    """One run under one supervisor, in virtual time. `tell` hears every event and its answer.

    Several may share a clock and a store: a supervisor that is gone, and its successors. On the
    same host they share its memory as well.
    """

    def __init__(
        self,
        shape: Shape,
        policy: RunPolicy | None = None,
        *,
        grace_ns: int = 30 * SECOND,
        tell: Tell = lambda *_: None,
        store: Store | None = None,
        memory: Memory | None = None,
        clock: Clock | None = None,
        delays: Delays | None = None,
        watch: Watcher | None = None,
    ) -> None:
        super().__init__()
        self.clock = clock or Clock()
        self.shape = shape
        self.policy = policy or RunPolicy(ranks=shape.ranks)
        self.host = host.HostMachine()
        self.store = store or Store()
        self.memory = memory or Memory(shape.ranks, shape.buffers)
        self.memory.busy = {}  # seals and flushes end with the supervisor that they are children of
        self.seals_fail = False
        self.flush_starves = False  # until it is urgent
        self._flush: act.Flush | None = None
        self.grace_ns = grace_ns
        self.delays = delays or Delays()
        self.taking = Taking(self.delays)
        self.heard = Inputs(self.clock, self._woken)
        self.watch: Any = watch or Unwatched()
        self.epoch = 0  # of the lease
        self.opened_ns = self.clock.now_ns
        self.reached = 0  # the highest step that all ranks of one attempt have done
        self.held_ns = 0  # for so long it could do nothing: stalled, or asleep
        self.died_ns: int | None = None  # when the supervisor was killed, if it was
        self.live: Live | None = None  # the attempt that runs
        self.finished_ns = 0
        self.failures: list[Failure] = []
        self.command_exists = True
        self.host_sticks = False
        self.stacks_ns: int | None = 50 * MS  # None: they never come
        self.reaper_alive = True
        self.recorded: list[dict[str, Any]] = []
        self.history: list[facts.RestoreFact | facts.StepsFact] = []
        self.ends: list[act.EndAttempt] = []
        self.launches: list[act.Launch] = []
        self.rejected: set[str] = set()  # sets that ranks found to be bad
        self.rejected_copies: set[str] = set()  # in memory
        self.inputs: list[ev.Event] = []
        self.said: list[str] = []
        self._tell = tell
        self._launch: act.Launch | None = None
        self._host_report = HostReport()
        self._next_progress_ns = 0
        self._seal_free_ns = 0
        self._polls = 0
        self._is_touched = True  # some page has changed since the last look
        self._rests: Rests | None = None
        self._timers = Timers(self.clock, self.heard, self.feed)
        self._link = VirtualLink(self, self.delays.link_ns)
        self.controller = Controller(
            self.policy,
            link=self._link,
            store=VirtualKeeper(self),
            clock=self._timers,
            journal=self,
            say=lambda _, words: self.said.append(words),
            grace_ns=grace_ns,
        )

    @property
    def machine(self) -> RunMachine:
        """What decides."""
        return self.controller.machine

    @property
    def finish(self) -> act.Finish | None:
        """How the run is over for this supervisor, once it is."""
        return self.controller.finish

    # --- time -------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since the beginning."""
        return self.clock.now_ns

    def open(self) -> None:
        """The lease is held: begin."""
        store = self.store
        store.epoch += 1
        self.epoch = store.epoch
        known = [*store.sets, *(one for _, one in self.memory.sets())]
        high_water = max((one.step for one in newest_first(known, store.chain())), default=0)
        self.feed(
            ev.Opened(
                self.now_ns,
                len(store.attempts),
                high_water,
                failures_seen=store.failures,
                memory_lost=store.memory_lost,
                wishes=store.standing(),
            )
        )

    def die(self, *, with_tree: bool = True, with_host: bool = False) -> None:
        """SIGKILL to the supervisor. Its tree goes down with it, or lives on until the fence."""
        if self.died_ns is not None or self.finish is not None:
            return
        self.died_ns = self.now_ns
        live = self.live
        for rank in live.ranks if live and with_host else ():
            rank.vanish()
        if live is not None and with_tree and not with_host:
            self.clock.later(REAP_NS, lambda: self._sigkill(live))
        if with_host:
            self.memory.lose()
            self.store.memory_lost += 1
        if self.store.attempts and self.store.attempts[-1].attempt not in {
            one.attempt for one in self.ends
        }:
            self.store.failures += 1  # the successor closes it

    def fence(self) -> bool:
        """End what is left of the ranks, before a successor starts any; False: it cannot be."""
        if self.live is not None:
            self._sigkill(self.live)
        return not self.is_inhabited

    @property
    def is_inhabited(self) -> bool:
        """Whether some rank of this supervisor's is still there."""
        return self.live is not None and any(rank.alive for rank in self.live.ranks)

    @property
    def over_ns(self) -> int:
        """When the supervisor was gone; now, if it is not."""
        if self.died_ns is not None:
            return self.died_ns
        return self.now_ns if self.finish is None else self.finished_ns

    @property
    def is_over(self) -> bool:
        """Whether the supervisor is gone, by itself or by force."""
        return self.finish is not None or self.died_ns is not None

    def stall(self, ns: int) -> None:
        """The supervisor's loop does not come round for so long; the ranks train on."""
        self.held_ns += ns
        self.heard.stall(ns)

    def _woken(self, late_ns: int) -> None:
        for rank in self.live.ranks if self.live else ():
            rank.pace.forget()
        self._note(ev.Suspended(self.now_ns, late_ns))

    def run_for(self, ns: int) -> None:
        """Let so much time pass, or less if the run is over."""
        self.run_until(lambda: False, self.now_ns + ns)

    def run_until(self, reached: Callable[[], bool], limit_ns: int) -> bool:
        """Let time pass until it is so; False when the limit or the run's end came first."""
        while not reached():
            if self.is_over or not self.clock.advance(limit_ns):
                return reached()
        return True

    @property
    def step(self) -> int:
        """The step that all ranks have completed."""
        return self.live.step if self.live else self.machine.high_water

    # --- what comes from outside ------------------------------------------------------------

    def notice(self, source: str = "SIGTERM", grace_ns: int | None = None) -> None:
        """This host goes away when the grace period is over."""
        grace_ns = self.grace_ns if grace_ns is None else grace_ns

        def noticed() -> None:
            self.feed(ev.StopAsked(self.now_ns, source, self.now_ns + grace_ns, notice=True))

        self.heard.give(Source.INBOX, noticed)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.heard.give(Source.INBOX, lambda: self.feed(ev.Interrupted(self.now_ns, "Ctrl-C")))

    def stop_now(self, source: str, exit_code: int = EXIT_SAVED_START_ME_AGAIN) -> None:
        """SIGQUIT, `holdfast stop --now`, or a lost lease."""
        self.heard.give(
            Source.INBOX, lambda: self.feed(ev.StopNowAsked(self.now_ns, source, exit_code))
        )

    def save(self) -> None:
        """`holdfast save`."""
        self.heard.give(Source.INBOX, lambda: self.feed(ev.SaveAsked(self.now_ns, "holdfast save")))

    def roll_back(self, to: Target, skip_batches: int) -> None:
        """`holdfast rollback`: it lies in the store, and a supervisor that lives hears of it."""
        name = f"asked-{len(self.store.wishes)}"
        wish = Wish(name, to, skip_batches, "holdfast rollback", is_from_script=False)
        self.store.wishes.append(wish)
        self.heard.give(Source.INBOX, lambda: self.feed(ev.RollbackAsked(self.now_ns, wish)))

    def end_rank(self, rank: int, how: Exit) -> None:
        """A process ends, or is ended by somebody else. What it wished for is in its report."""
        if self.live is not None:
            self.live.ranks[rank].end(how)

    def slept(self, gap_ns: int) -> None:
        """The whole machine has slept: its timers are long due."""
        self.held_ns += gap_ns
        if self._rests is not None:
            self._rests = self._rests._replace(since_ns=self._rests.since_ns + gap_ns)
        for rank in self.live.ranks if self.live else ():
            rank.pace.forget()
        self._note(ev.Suspended(self.now_ns, gap_ns))
        self._timers.slept()

    def kill_reaper(self) -> None:
        """Somebody kills the reaper: its ranks are orphans now."""
        live = self.live
        if live is None:
            return
        self.reaper_alive = False

        def lost() -> None:
            if live is self.live:
                self._hear(host.ReaperLost(self.now_ns))

        self.clock.later(REAP_NS, lambda: self.heard.give(Source.REAPER, lost))

    def _reaped(self, ns: int, event: Callable[[], host.HostEvent]) -> None:
        """The loop hears this of the reaper in so long, or when it comes round."""
        self.clock.later(ns, lambda: self.heard.give(Source.REAPER, lambda: self._hear(event())))

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
        reaped = lambda: self.heard.give(Source.REAPER, lambda: self._reap(live, rank))  # noqa: E731
        self.clock.later(self.taking.next_ns("reap_ns"), reaped)

    def _reap(self, live: Live, rank: VirtualRank) -> None:
        if live is not self.live or rank.how is None or not self.reaper_alive:
            return
        asked = self.machine.stop is not None
        how = replace(rank.how, asked_to_stop=asked)
        self._hear(host.Died(self.now_ns, rank.ended_ns, rank.rank, how))
        live.reported += 1
        if live.reported == len(live.ranks):
            self._reaped(REAP_NS, lambda: host.Empty(self.now_ns))

    # --- the supervisor ---------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Tell the controller, as long as there is one."""
        if self.is_over:
            return
        self.controller.feed(event)
        self._look_whether_it_is_over()

    def _look_whether_it_is_over(self) -> None:
        if self.finish is not None and not self.controller.is_acting:
            self.finished_ns = self.now_ns
            if not self.finish.keep_memory:
                self.memory.lose()

    def attend(self) -> None:
        """The pages are looked at more often, or more seldom."""
        if self._rests is not None and self._rests != (
            self._rests.since_ns,
            self._look_wait_ns,
            self.attention.is_saving,
        ):
            self.touched()

    def _tell_words(self, *, with_progress: bool) -> None:
        if self._read_words(with_progress=with_progress):
            self._link.reported()

    def _hear(self, event: host.HostEvent) -> None:
        if self.is_over:
            return
        live = self.live
        if isinstance(event, LOSSES):
            self._read_words(with_progress=True)
        if isinstance(event, host.Empty):
            self.live = None
        for action in self.host.handle(event):
            if isinstance(action, host.Tell):
                self._note(action.event)
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
        self.watch.starts(self)
        self.reaper_alive = True
        spawn_ns = self.taking.next_ns("spawn_ns")
        if not self.command_exists:
            words = "cannot start 'trian.py': No such file or directory"
            self._reaped(spawn_ns, lambda: host.SpawnFailed(self.now_ns, words))
            self._reaped(spawn_ns + REAP_NS, lambda: host.Empty(self.now_ns))
            return

        def spawned() -> None:
            if self.is_over:
                return
            self.live = Live(launch.attempt, launch.resume, self)
            self._hear(host.Spawned(self.now_ns))
            self._polls += 1
            self._rests = None
            self._poll(self._polls)

        self.clock.later(spawn_ns, lambda: self.heard.give(Source.REAPER, spawned))

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
            self.heard.give(Source.REAPER, lambda: self._hear(host.Stuck(self.now_ns, left)))

    def _sweep(self, live: Live) -> None:
        self._sigkill(live)
        left = tuple(1000 + rank.rank for rank in live.ranks if rank.alive)
        self._hear(host.Stuck(self.now_ns, left) if left else host.Empty(self.now_ns))

    # --- pages ------------------------------------------------------------------------------

    def _poll(self, number: int) -> None:
        if self.live is None or number != self._polls or self.is_over:
            return
        with_progress = self.attention.is_saving or self.now_ns >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = self.now_ns + PROGRESS_NS
        self._is_touched = False
        self._tell_words(with_progress=with_progress)
        wait_ns = self._look_wait_ns
        if self._is_touched:
            self._look_in(wait_ns, number)
        else:
            self._rests = Rests(self.now_ns, wait_ns, self.attention.is_saving)

    @property
    def _look_wait_ns(self) -> int:
        hurried = self.attention.is_saving or self.attention.is_stopping
        return self.delays.looks_ns[0 if hurried else 1]

    def _look_in(self, ns: int, number: int) -> None:
        self._rests = None
        look = partial(self._poll, number)
        self.clock.later(ns, lambda: self.heard.give(Source.WORDS, look))

    def touched(self) -> None:
        """A page has changed, or how often to look: looks that would find nothing are left out."""
        self._is_touched = True
        if self._rests is None:
            return
        since_ns, wait_ns, with_progress = self._rests
        times = max(1, -((since_ns - self.now_ns) // wait_ns))
        skipped_ns = since_ns + (times - 1) * wait_ns
        if times > 1 and with_progress:
            self._next_progress_ns = skipped_ns + PROGRESS_NS
        while self._next_progress_ns <= skipped_ns:  # the looks in between that read progress too
            looks = max(1, -((since_ns - self._next_progress_ns) // wait_ns))
            self._next_progress_ns = since_ns + looks * wait_ns + PROGRESS_NS
        self._look_in(since_ns + times * wait_ns - self.now_ns, self._polls)

    def report_now(self, *, with_progress: bool = False) -> HostReport:
        """How the host stands now; with the ranks' progress up to now, or as it was last read."""
        if with_progress:
            self._read_words(with_progress=True)
        report = self._host_report
        report.number += 1
        return report

    def hear(self, report: HostReport) -> None:
        """The controller gets a report, as long as there is one."""
        if not self.is_over:
            self.controller.hear(report)
            self._look_whether_it_is_over()

    def _note(self, event: ev.Event) -> None:
        """Something has happened on the host."""
        self._host_report.note(event)
        self._link.reported()

    def _read_words(self, *, with_progress: bool) -> bool:
        """Whether the pages say something new."""
        live = self.live
        if live is None:
            return False
        before = self._host_report.ranks
        now = tuple(map(partial(self._as_told, live, with_progress), live.ranks, before))
        self._host_report.ranks = now
        return now != before

    def _as_told(
        self, live: Live, with_progress: bool, rank: VirtualRank, before: RankState
    ) -> RankState:
        """What the page says, as it is told."""
        if not rank.has_page:
            return before
        if rank.rank not in live.joined:
            live.joined.add(rank.rank)
            self._store_words(rank)
        words = rank.words
        rank.pace.look(words.step, rank.step_ns, rank.spans_ns)
        if words.step < before.words.step or not (with_progress or words.loop_ended):
            self._is_touched = self._is_touched or words.step > before.words.step
            words = words._replace(step=before.words.step)
        return RankState(
            has_session=True,
            words=words,
            blocked_ns=rank.blocked_ns
            if words.copied != before.words.copied
            else before.blocked_ns,
            buffers=rank.buffers,
            sigterms=rank.sigterms,
        )

    def _store_words(self, rank: VirtualRank) -> None:
        live = self.live
        if live is None or rank.rank not in live.joined:
            return
        late_ns = self.delays.words_ns[rank.rank % len(self.delays.words_ns)]
        words = live.order, live.verdict, live.committed
        if late_ns:
            self.clock.later(late_ns, lambda: rank.see(*words))
        else:
            rank.see(*words)

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
            self.reached = max(self.reached, slowest)

    def restored(self, rank: VirtualRank) -> None:
        """A rank has read its set: steps begin with the last; rank 0's reading is recorded."""
        live = self.live
        if live is None:
            return
        self.watch.restored(self, rank)
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
            self._look_in(self.taking.next_ns("bell_ns"), self._polls)

    def written(self, rank: VirtualRank, step: int) -> None:
        """A shard is durable."""
        if self.live is not None:
            self.store.shards.add((self.live.attempt, step, rank.rank))

    def left_saved(self, rank: VirtualRank, step: int) -> None:
        """It leaves, because that step is durable."""
        self.watch.left_saved(self, rank, step)

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
        known = {one.attempt for one in found if isinstance(one, facts.AttemptFact)} | set(started)
        for one in self.history:  # the supervisor died before it heard of their launch
            if one.attempt not in known:
                started.setdefault(one.attempt, one.start_ns)
        for number, start_ns in started.items():  # the next start closes it, as its ranks tell
            assert self.died_ns is not None, "an attempt has not ended"
            last = [one.end_ns or 0 for one in self.history if one.attempt == number]
            end_ns = max(self.died_ns, *last, 0)
            found.append(facts.AttemptFact(number, start_ns, end_ns, "killed"))
        return found

    # --- what the controller orders (controller.ports.Link) ---------------------------------

    def launch(self, action: act.Launch) -> None:
        """Start the ranks."""
        self._launch = action
        self._host_report.begin(action.attempt, action.resume.step, self.shape.ranks)
        self._hear(host.Start(self.now_ns, action.attempt, tuple(range(self.shape.ranks))))

    def publish_order(self, order: news.PublishOrder, _: int | None) -> None:
        """Store it in the pages."""
        if self.live is not None:
            self.live.order = pack(order.epoch, order.step, order.flags)
            self._store_all_words(self.live)

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """Store it in the pages."""
        if self.live is not None:
            self.live.verdict = pack(verdict.epoch, verdict.step, verdict.flags)
            if verdict.flags & Order.COMMITTED:
                self.live.committed = max(self.live.committed, verdict.step)
            self._store_all_words(self.live)

    def _store_all_words(self, live: Live) -> None:
        for rank in live.ranks:
            self._store_words(rank)

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """The controller has heard of the others."""
        self._host_report.forget_seals(is_wanted)

    def seal(self, action: act.Seal) -> None:
        shard, buffer = Shard(action.attempt, action.epoch, action.step), action.buffer
        self.memory.pin(buffer, "it is being sealed")
        names = (action.attempt, action.epoch, action.step, buffer)

        def sealed() -> None:
            if self.is_over:
                return  # it ends with the supervisor that it is a child of
            self.memory.unpin(buffer, "it is being sealed")
            is_gone = self.memory.has_vanished and not self.memory.holds(buffer, shard)
            if self.seals_fail or is_gone:
                outcome: ev.Event = ev.SealFailed(self.now_ns, *names, "no space left")
            else:
                self.memory.seal(buffer, shard)
                outcome = ev.Sealed(self.now_ns, *names)
            self.heard.give(Source.MEMORY, lambda: self._note(outcome))

        self._seal_free_ns = max(self.now_ns, self._seal_free_ns) + self.taking.next_ns(
            "seal_ns", self.shape.seal_ns
        )  # one after the other, by one thread
        self.clock.later(self._seal_free_ns - self.now_ns, sealed)

    def flush(self, action: act.Flush) -> None:
        assert all("it is being flushed" not in why for why in self.memory.busy.values()), "two"
        here = self.memory.sealed.get(action.buffer)
        if here is None and self.memory.has_vanished:
            gone = ev.FlushFailed(self.now_ns, action.attempt, action.epoch, action.step, "gone")
            self.heard.give(Source.MEMORY, lambda: self._note(gone))
            return
        assert here is not None, f"{action}: nothing is sealed there"
        assert (here.attempt, here.step) == (action.attempt, action.step), (here, action)
        assert action.epoch in (0, here.epoch)
        self._host_report.begin_flush()
        self.memory.pin(action.buffer, "it is being flushed")
        self._flush = action
        self.clock.later(LOOK_NS, lambda: self._flushing(action))
        if not self.flush_starves or action.urgent:
            self.clock.later(self.shape.flush_ns, lambda: self._flushed(action, 0))

    def hurry(self, action: Hurry) -> None:
        """It goes on, faster; one that had no turn gets one."""
        flush = self._flush
        if flush is not None and flush.step == action.step and self.flush_starves:
            self.clock.later(self.shape.flush_ns, lambda: self._flushed(flush, 0))

    def _flushing(self, action: act.Flush) -> None:
        flush = self._flush
        of = (action.attempt, action.epoch, action.step)
        if flush is not None and (flush.attempt, flush.epoch, flush.step) == of:
            self.clock.later(LOOK_NS, lambda: self._flushing(action))
            look = lambda: self._note(ev.Flushing(self.now_ns, *of, 0))  # noqa: E731
            self.heard.give(Source.MEMORY, look)

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        flush, self._flush = self._flush, None
        if flush is None:
            return  # it was over before this came
        self.memory.unpin(flush.buffer, "it is being flushed")
        of = (action.attempt, action.epoch, action.step)
        self._note(ev.FlushFailed(self.now_ns, *of, action.why))

    def _flushed(self, action: act.Flush, rank: int) -> None:
        if action is not self._flush or self.is_over:
            return
        if self.store.is_hung:
            self.store.waiting.append(lambda: self._flushed(action, rank))
            return
        names = (action.epoch, action.step)
        if self.store.is_full or self.store.is_away:
            why = "no space left" if self.store.is_full else "the run store cannot be reached"
            failed = ev.FlushFailed(self.now_ns, action.attempt, *names, why)
            self._flush_said(action, failed, is_over=True)
            return
        self.store.shards.add((action.attempt, action.step, rank))
        if rank + 1 < self.shape.ranks:
            self.clock.later(self.shape.flush_ns, lambda: self._flushed(action, rank + 1))
        done = ev.Flushed(self.now_ns, action.attempt, rank, *names)
        self._flush_said(action, done, is_over=rank + 1 == self.shape.ranks)

    def _flush_said(self, action: act.Flush, event: ev.Event, *, is_over: bool) -> None:
        def hear() -> None:
            if action is self._flush and not self.is_over:
                if is_over:
                    self._flush = None
                    self.memory.unpin(action.buffer, "it is being flushed")
                self._note(event)

        self.heard.give(Source.MEMORY, hear)

    def publish_committed(self, step: int) -> None:
        live = self.live
        if live is not None:
            live.committed = max(live.committed, step)
            self._store_all_words(live)

    def relay(self) -> None:
        for rank in self.live.ranks if self.live else ():
            rank.sigterm()

    def kill(self) -> None:
        self._hear(host.End(self.now_ns))

    def examine(self, action: act.Examine) -> None:
        for rank in self.live.ranks if self.live else ():
            rank.pace.look(rank.words.step, rank.step_ns, rank.spans_ns)
        looks = tuple(rank.look() for rank in self.live.ranks) if self.live else ()
        self._note(ev.Examined(self.now_ns, action.attempt, looks))

    def collect_stacks(self, action: act.CollectStacks) -> None:
        live = self.live

        def collected() -> None:
            stacks = tuple(
                RankStack(rank.rank, rank.where, not rank.where and not rank.is_stopped, "virtual")
                for rank in (live.ranks if live else ())
            )
            self._note(ev.StacksCollected(self.now_ns, action.attempt, stacks))

        if self.stacks_ns is not None:
            self.clock.later(self.stacks_ns, lambda: self.heard.give(Source.INBOX, collected))

    def stand_by(self, _: act.StandBy) -> None:
        """Processes that wait for the next attempt change its speed alone."""

    # --- Notebook ---------------------------------------------------------------------------

    def event(self, event: ev.Event) -> None:
        """What the controller writes down before it decides."""
        self.inputs.append(event)
        self._state = self.machine.state

    def answered(self, actions: tuple[act.Action, ...], _: int) -> None:
        """What it has decided, and not acted on yet."""
        event, before, after = self.inputs[-1], self._state, self.machine.state
        change = f" [{before} → {after}]" if before is not after else ""
        self._tell(self.now_ns, event, actions, change)
        self.watch.told(self, event, actions)

    def fact(self, fact: Mapping[str, Any]) -> None:
        """For the ledger."""
        self.recorded.append(dict(fact))


class Timers:
    """A `controller.ports.Clock`; a timer is heard when the loop comes round."""

    def __init__(self, clock: Clock, heard: Inputs, feed: Callable[[ev.Event], None]) -> None:
        self._clock = clock
        self._heard = heard
        self._feed = feed
        self._at_ns: dict[str, int] = {}

    def now_ns(self) -> int:
        """Virtual."""
        return self._clock.now_ns

    def set(self, name: str, at_ns: int) -> None:
        """It goes off then, unless it was set anew or cancelled."""
        self._at_ns[name] = at_ns
        due = lambda: self._heard.give(Source.TIMER, lambda: self._fire(name, at_ns))  # noqa: E731
        self._clock.later(at_ns - self._clock.now_ns, due)

    def cancel(self, name: str) -> None:
        """Forget it."""
        self._at_ns.pop(name, None)

    def slept(self) -> None:
        """The machine was asleep: those that came due meanwhile go off now."""
        for name, at_ns in sorted(self._at_ns.items(), key=lambda item: item[1]):
            if at_ns <= self._clock.now_ns:
                self._fire(name, at_ns)

    def _fire(self, name: str, at_ns: int) -> None:
        if self._at_ns.get(name) == at_ns:
            del self._at_ns[name]
            self._feed(ev.TimerFired(self._clock.now_ns, name))
