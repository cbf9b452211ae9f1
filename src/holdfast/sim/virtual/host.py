"""A virtual host: the processes of its ranks, their pages, and what it tells of them.

It is read in the same order and at the same intervals as a real one, and obeys by the same
`core.hosts.order.Host`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hang.events import RankStack
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.order import Host, HostOrder, Hurry
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.rollback import wishes_of
from holdfast.core.save import events as news
from holdfast.core.save.word import Order, pack
from holdfast.sim.clock import MS, SECOND, VirtualClock
from holdfast.sim.virtual.broken import require
from holdfast.sim.virtual.loop import Inputs, Source
from holdfast.sim.virtual.memory import CopiedShard
from holdfast.sim.virtual.memory_work import MemoryWork
from holdfast.sim.virtual.pages import HostPages, ProcessTree
from holdfast.sim.virtual.process import RankProcess
from holdfast.sim.virtual.ranks import VirtualRank
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.shared import Shared, VirtualAttempt

REAP_NS = 1 * MS
STUCK_NS = 10 * SECOND
LOSSES = (host.Died, host.ReaperLost)  # before which the ranks' words are read


class VirtualHost(Host):
    """The host of that number. `reported`: whoever is told when its report has changed.

    `heard`: the loop that reads what happens on it; on one host it is the supervisor's.
    """

    def __init__(self, world: Shared, number: int, heard: Inputs) -> None:
        super().__init__()
        self.number = number
        self.ranks = world.placement[number]
        self.is_lost = self.is_given_up = False
        self.reported: Callable[[], None] = lambda: None
        self._world = world
        self.clock: VirtualClock = world.clock
        self.shape: Shape = world.shape
        self.heard = heard
        self._machine = host.HostMachine()
        self._launch: act.Launch | None = None
        self._reaper_alive = True
        self._kills_at_once = False
        self._report = HostReport()
        self._work = MemoryWork(world, number, heard, self._report, self._note)
        self._pages = HostPages(world, heard, self._report, lambda: self.reported())

    @property
    def tree(self) -> ProcessTree | None:
        """The processes of the attempt that runs here."""
        return self._pages.tree

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an attempt is here."""
        return self._machine.state is host.HostState.EMPTY

    @property
    def ranks_left(self) -> tuple[int, ...]:
        """Those whose process lives here."""
        return tuple(rank.rank for rank in (self.tree.ranks if self.tree else ()) if rank.alive)

    @property
    def _is_over(self) -> bool:
        return self.is_lost or self._world.is_over

    # --- what befalls it --------------------------------------------------------------------

    def lose(self) -> None:
        """It is gone with all that is on it, and nobody is left to tell."""
        self.is_lost = self._work.is_lost = self._pages.is_lost = True
        for rank in self.tree.ranks if self.tree else ():
            rank.vanish()
        self._pages.tree = None
        self._world.ranks_gone(self._attempt, self.ranks)
        if not self.is_given_up:
            self._world.memory.lose_host(self.number)

    def give_up(self, *, keeps_memory: bool) -> None:
        """Another one has its number now; on the same machine what is in memory is of use to it."""
        self.is_given_up = self._work.is_lost = True
        memory = self._world.memory
        forget = memory.let_go if keeps_memory else memory.lose_host
        forget(self.number)

    @property
    def _attempt(self) -> int:
        """The newest that was to be started here; -1: none."""
        return -1 if self._launch is None else self._launch.attempt

    def slept(self, gap_ns: int) -> None:
        """With all others: what is under way took no time."""
        self._pages.slept(gap_ns)
        for rank in self.tree.ranks if self.tree else ():
            rank.slept(gap_ns)
        self.heard.slept(gap_ns)

    def woken(self, gap_ns: int) -> None:
        """Its loop could do nothing for so long."""
        for rank in self.tree.ranks if self.tree else ():
            rank.pace.forget()
        self._note(ev.Suspended(self.clock.now_ns, gap_ns))

    def kill_reaper(self) -> None:
        """Somebody kills the reaper: its ranks are orphans now."""
        tree = self.tree
        if tree is None:
            return
        self._reaper_alive = False

        def lost() -> None:
            if tree is self.tree:
                self._hear(host.ReaperLost(self.clock.now_ns))

        self.clock.later(REAP_NS, lambda: self.heard.give(Source.REAPER, lost))

    def kill_all(self) -> None:
        """SIGKILL to every process of the attempt."""
        if self.tree is not None:
            self._sigkill(self.tree)

    def obey(self, order: HostOrder) -> None:
        """Carry out what is new in the order, if there is a host."""
        if not self.is_lost:
            super().obey(order)

    # --- processes --------------------------------------------------------------------------

    def _hear(self, event: host.HostEvent) -> None:
        if self._is_over:
            return
        tree = self.tree
        if isinstance(event, LOSSES):
            self._pages.read(with_progress=True)
        if isinstance(event, host.Empty):
            self._pages.tree = None
            self._world.ranks_gone(self._attempt, self.ranks)
        for action in self._machine.handle(event):
            if isinstance(action, host.PassOn):
                self._note(action.event)
            elif isinstance(action, host.StartTree):
                self._start_tree()
            elif isinstance(action, host.KillTree):
                self._kill_tree(tree)
            elif isinstance(action, host.SweepOrphans) and tree is not None:
                self._sweep(tree)

    def _start_tree(self) -> None:
        world, launch = self._world, self._launch
        require(launch is not None and self.tree is None, "two attempts at a time")
        world.watch.starts(world, self.number)
        self._reaper_alive, self._kills_at_once = True, False
        spawn_ns = world.taking.next_ns("spawn_ns")
        if not world.command_exists:
            words = "cannot start 'trian.py': No such file or directory"
            self._reaped(spawn_ns, lambda: host.SpawnFailed(self.clock.now_ns, words))
            self._reaped(spawn_ns + REAP_NS, lambda: host.Empty(self.clock.now_ns))
            return

        def spawned() -> None:
            if self._is_over or launch is None:
                return
            live = world.live
            if live is None or live.attempt != launch.attempt:
                ranks = launch.placement.ranks
                live = world.live = VirtualAttempt(launch.attempt, launch.resume, ranks)
            mine = [VirtualRank(r, launch.resume, live.barrier, self) for r in self.ranks]
            live.begin(mine)
            self._pages.tree = ProcessTree(launch, mine)
            self._hear(host.Spawned(self.clock.now_ns))
            self._pages.begin()
            if self._kills_at_once:
                self._kill_tree(self.tree)

        self.clock.later(spawn_ns, lambda: self.heard.give(Source.REAPER, spawned))

    def _reaped(self, ns: int, event: Callable[[], host.HostEvent]) -> None:
        """The loop hears this of the reaper in so long, or when it comes round."""
        self.clock.later(ns, lambda: self.heard.give(Source.REAPER, lambda: self._hear(event())))

    def _reap(self, tree: ProcessTree, rank: RankProcess) -> None:
        if tree is not self.tree or rank.how is None or not self._reaper_alive:
            return
        how = replace(rank.how, asked_to_stop=self.attention.is_stopping)
        self._hear(host.Died(self.clock.now_ns, rank.ended_ns, rank.rank, how))
        tree.reported += 1
        if tree.reported == len(tree.ranks):
            self._reaped(REAP_NS, lambda: host.Empty(self.clock.now_ns))

    def _kill_tree(self, tree: ProcessTree | None) -> None:
        if tree is None:
            self._kills_at_once = True  # what is being started
        elif not tree.is_killed:
            tree.is_killed = True
            self.clock.later(REAP_NS, lambda: self._sigkill(tree))
            self.clock.later(STUCK_NS, lambda: self._stuck(tree))

    def _sigkill(self, tree: ProcessTree) -> None:
        for rank in tree.ranks:
            rank.is_stuck = rank.is_stuck or self._world.host_sticks
            rank.end(Exit(signal=9))

    def _stuck(self, tree: ProcessTree) -> None:
        left = tree.pids_left
        if left and tree is self.tree:
            stuck = lambda: self._hear(host.Stuck(self.clock.now_ns, left))  # noqa: E731
            self.heard.give(Source.REAPER, stuck)

    def _sweep(self, tree: ProcessTree) -> None:
        self._sigkill(tree)
        left = tree.pids_left
        now_ns = self.clock.now_ns
        self._hear(host.Stuck(now_ns, left) if left else host.Empty(now_ns))

    # --- what it tells ----------------------------------------------------------------------

    def report_now(self, *, with_progress: bool = False) -> HostReport:
        """How it stands now; with the ranks' progress up to now, or as it was last read."""
        if with_progress:
            self._pages.read(with_progress=True)
        self._report.number += 1
        return self._report

    def _note(self, event: ev.Event) -> None:
        """Something has happened here."""
        self._report.note(event)
        self.reported()

    # --- what it is asked for (core.hosts.order.Host) ----------------------------------------

    def attend(self) -> None:
        """The pages are looked at more often, or more seldom."""
        self._pages.attend(self.attention)

    def launch(self, action: act.Launch) -> None:
        """Start the ranks."""
        self._launch = action
        self.ranks = action.placement.on(self.number)
        self._report.begin(action.attempt, action.resume.step, len(self.ranks))
        self._hear(host.Start(self.clock.now_ns, action.attempt, self.ranks))

    def publish_order(self, order: news.PublishOrder, _: int | None) -> None:
        """Store it in the pages."""
        if self.tree is not None:
            self.tree.order = pack(order.epoch, order.step, order.flags)
            self._pages.store_all()

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """Store it in the pages."""
        if self.tree is not None:
            self.tree.verdict = pack(verdict.epoch, verdict.step, verdict.flags)
            if verdict.flags & Order.COMMITTED:
                self.tree.committed = max(self.tree.committed, verdict.step)
            self._pages.store_all()

    def publish_committed(self, step: int) -> None:
        """Store it in the pages."""
        if self.tree is not None:
            self.tree.committed = max(self.tree.committed, step)
            self._pages.store_all()

    def relay(self) -> None:
        """SIGTERM to each rank."""
        for rank in self.tree.ranks if self.tree else ():
            rank.sigterm()

    def kill(self) -> None:
        """Have the reaper end everything."""
        self._hear(host.End(self.clock.now_ns))

    def stand_by(self, action: act.StandBy) -> None:
        """Processes that wait for the next attempt change its speed alone."""

    def examine(self, action: act.Examine) -> None:
        """Look at every rank."""
        ranks = self.tree.ranks if self.tree else []
        for rank in ranks:
            rank.pace.look(rank.words.step, rank.step_ns, rank.spans_ns)
        looks = tuple(rank.look() for rank in ranks)
        self._note(ev.Examined(self.clock.now_ns, action.attempt, looks))

    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Ask every rank where it stands."""
        tree, takes_ns = self.tree, self._world.stacks_ns

        def collected() -> None:
            stacks = tuple(
                RankStack(rank.rank, rank.where, not rank.where and not rank.is_stopped, "virtual")
                for rank in (tree.ranks if tree else ())
            )
            self._note(ev.StacksCollected(self.clock.now_ns, action.attempt, stacks))

        if takes_ns is not None:
            self.clock.later(takes_ns, lambda: self.heard.give(Source.INBOX, collected))

    def seal(self, action: act.Seal) -> None:
        """Sealed or SealFailed follows."""
        self._work.seal(action)

    def flush(self, action: act.Flush) -> None:
        """Flushing now and then, Flushed or FlushFailed follows."""
        self._work.flush(action)

    def replicate(self, action: act.Replicate) -> None:
        """Replicated or NotReplicated follows."""
        self._work.replicate(action)

    def hurry(self, action: Hurry) -> None:
        """Go on with that flush, faster."""
        self._work.hurry(action)

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """FlushFailed follows, if it is under way."""
        self._work.abandon(action)

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """The controller has heard of the others."""
        self._report.forget_seals(is_wanted)

    # --- what its ranks do (virtual.process.RankSurroundings) ----------------------------------

    def failure(self, rank: int, step: int) -> Exit | str | None:
        """Whether this rank fails in this step."""
        return self._world.failure(rank, step)

    def read_error(self, resume: ev.Resume) -> str:
        """What a rank finds wrong with the set it restores."""
        store = self._world.store
        if resume.buffer is None:
            return store.unreadable.get(resume.set_name or "", "")
        if (self.number, resume.buffer) not in self._world.memory.seals:
            return f"{resume.set_name} is not in this host's memory"
        return store.spoiling.get(resume.set_name or "", "")

    def can_write(self, _rank: int) -> bool:
        """Whether a shard can be written."""
        return not self._world.store.is_full

    def touched(self) -> None:
        """A page has changed."""
        self._pages.touched()

    def stepped(self, _rank: RankProcess) -> None:
        """It has passed a boundary."""
        self._world.rank_stepped()

    def restored(self, rank: RankProcess) -> None:
        """It has what it starts from."""
        self._world.rank_restored(rank)

    def copying(self, rank: RankProcess, buffer: int) -> None:
        """It begins to write into a buffer."""
        if not self.is_given_up:
            self._world.memory.copying(self.number, rank.rank, buffer)

    def copied(self, rank: RankProcess, buffer: int, epoch: int, step: int) -> None:
        """It has copied into a buffer, and rings: the pages are looked at at once."""
        if self.tree is not None:
            shard = CopiedShard(self.tree.attempt, epoch, step)
            if not self.is_given_up:
                self._world.memory.copied(rank.rank, buffer, shard)
            self._pages.look_in(self._world.taking.next_ns("bell_ns"))

    def written(self, rank: RankProcess, step: int) -> None:
        """A shard is durable."""
        if self.tree is not None:
            self._world.store.shards.add((self.tree.attempt, step, rank.rank))

    def left_saved(self, rank: RankProcess, step: int) -> None:
        """It leaves, because that step is durable."""
        self._world.watch.left_saved(self._world, rank, step)

    def ended(self, rank: RankProcess) -> None:
        """A process is no more: the reaper reports it, and when nothing is left."""
        tree, world = self.tree, self._world
        if tree is None:
            return
        if rank.how is not None:
            world.store.wishes += wishes_of(tree.attempt, [(rank.rank, rank.how)])
        if self._reaper_alive:
            reap = lambda: self._reap(tree, rank)  # noqa: E731
            after_ns = world.taking.next_ns("reap_ns")
            self.clock.later(after_ns, lambda: self.heard.give(Source.REAPER, reap))
