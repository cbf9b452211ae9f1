"""The agent of one host: it carries out what the run's controller orders, and tells what it sees.

It decides nothing about the run. It has the ranks' processes and pages, the buffers in memory with
their seals and flushes, and what is prepared for the next attempt. Orders and reports are registers
(`core.hosts`); on one host the controller is in the same process, and gets them by a call.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path

from holdfast.agent.attempt import LiveAttempt, Surroundings
from holdfast.agent.copying import Copying
from holdfast.agent.job import Job, LocalRanks
from holdfast.agent.launch import journal_name
from holdfast.agent.look import Wakefulness, look_at
from holdfast.agent.memory import Memory
from holdfast.agent.output import RankOutput
from holdfast.agent.stacks import Collected, collect_beside, targets
from holdfast.agent.standbys import Standbys
from holdfast.agent.tree import RankCommand
from holdfast.controller.ports import OwnHosts
from holdfast.controller.upkeep import Upkeep
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.copies import has_own
from holdfast.core.hosts.order import Host, Hurry
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.report import HostReport
from holdfast.core.save import events as news
from holdfast.core.save.choose import SealedSet
from holdfast.journal.clocks import now_ns
from holdfast.journal.gate import Go
from holdfast.journal.store import RunFolder
from holdfast.profiles.asked import ask_rank
from holdfast.snapshot.part import PartName

ACTIVE_POLL_NS = 2_000_000
IDLE_POLL_NS = 50_000_000
PROGRESS_NS = 250_000_000
LONGEST_WAIT_NS = 250_000_000
OF_PARTS = (ev.TreeGone, ev.HostLost, ev.Sealed, ev.SealFailed)  # after which sets are other ones


class HostAgent(Host, OwnHosts):
    """One run's processes and memory on this host, for the loop's thread alone."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        selector: selectors.BaseSelector,
        upkeep: Upkeep,
        around: Surroundings,
        number: int = 0,
        standbys: Standbys | None = None,
        copying: Copying | None = None,
        progress_ns: int = PROGRESS_NS,
    ) -> None:
        """`number`: of this host in the placement of attempts. `standbys`: that wait already.

        `copying`: how parts of sets come from other hosts; None: there is no other. `progress_ns`:
        between two words on how far the ranks are.
        """
        super().__init__()
        self.number = number
        self.attempt: LiveAttempt | None = None
        self.spared: Callable[[], list[int]] = list  # children of ours that are no attempt's
        self._folder = folder
        self._job = job
        self._selector = selector
        self._upkeep = upkeep
        self._around = around
        self._host = host.HostMachine()
        self._wakefulness = Wakefulness(LONGEST_WAIT_NS)
        self._report = HostReport()
        self._next_poll_ns = self._next_progress_ns = 0
        self._progress_ns = progress_ns
        self._launch: act.Launch | None = None
        self._copying = copying
        warn = partial(around.say, "warning")
        local = self._local = job.local_ranks(number)
        self.standbys = standbys or Standbys(
            job.standby, local.ranks, job.scratch, selector, self._commands, say=warn
        )
        self.standbys.commands = self._commands
        environment, place = job.command.environment, folder.ckpt_dir
        self.memory = Memory(job.memory, selector, environment, place, feed=self._tell)
        self.memory.begin(local.ranks, local.world_size)
        self.parts = self.memory.held()  # as of when no rank was writing

    # --- what the loop does -----------------------------------------------------------------

    def attach(self, _: object) -> None:
        """Nothing: it is told through what is around."""

    def chips_of(self, _: Placement) -> int:
        """Whatever runs, all that the run has are here."""
        return self._job.chips

    @property
    def next_look_ns(self) -> int | None:
        """When the ranks' pages are due to be looked at; None: there are no ranks."""
        return None if self.attempt is None else self._next_poll_ns

    def look_whether_we_slept(self) -> bool:
        """Tell if nothing ran for a while since this was last asked: then every clock is new."""
        gap_ns = self._wakefulness.gap_ns(now_ns(), time.monotonic_ns())
        if gap_ns:
            if self.attempt is not None:
                self.attempt.pages.suspended()
            self._tell(ev.Suspended(now_ns(), gap_ns))
        return gap_ns > 0

    def turn(self) -> None:
        """Tell what has happened to processes and memory since the last turn."""
        self.memory.turn()
        attempt = self.attempt
        if attempt is not None:
            if attempt.bell.answer():
                self._next_poll_ns = 0
            attempt.postmortem.asked_to_stop = self.attention.is_stopping
            for event in attempt.read():
                self._hear(event)
        self.standbys.turn([] if self.attempt is None else list(self.attempt.pids.values()))

    def look(self, now: int) -> None:
        """Tell what the ranks' pages say, if a look is due."""
        attempt = self.attempt
        if attempt is None or now < self._next_poll_ns:
            return
        attempt.pages.heartbeat(now)
        with_progress = self.attention.is_saving or now >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = now + self._progress_ns
        if self._read(with_progress=with_progress):
            self._around.reported(self._numbered())
        hurried = self.attention.is_saving or self.attention.is_stopping
        self._next_poll_ns = now + (ACTIVE_POLL_NS if hurried else IDLE_POLL_NS)

    hosts_words = ""

    @property
    def standby_words(self) -> str:
        """How what waits for the next attempt stands."""
        return self.standbys.words

    def go_on_without_us(self) -> bool:
        """They are of this process, and end with it."""
        return False

    def close(self, finish: act.Finish | None) -> None:
        """Let go of all. `finish`: how the run is over, if it is."""
        self.leave()
        self.memory.close(leaves_sets=finish is None or finish.leaves_memory)

    def leave(self) -> None:
        """End all processes. What is in memory stays, and its folder is held."""
        self.close_attempt()
        self.standbys.close()
        self.memory.rest()

    def close_attempt(self) -> None:
        """Let go of the attempt that runs, if one does."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.unregister(self._selector)
            attempt.close()
            self._upkeep.end(attempt.scratch)

    # --- what is reported -------------------------------------------------------------------

    def reports(self) -> list[tuple[int, HostReport]]:
        """How this host stands now, the ranks' plain progress included."""
        self._read(with_progress=True)
        return [(self.number, self._numbered())]

    def _read(self, *, with_progress: bool) -> bool:
        """Whether the ranks' pages say something new."""
        if self.attempt is None:
            return False
        ranks = self.attempt.pages.read(with_progress=with_progress)
        if ranks == self._report.ranks:
            return False
        self._report.ranks = ranks
        if self._copying is not None and any(rank.has_session for rank in ranks):
            self._copying.serve()  # not before: what the ranks import needs the cores
        if any(rank.buffers for rank in ranks):
            self.memory.expect()
        return True

    def _tell(self, event: ev.Event) -> None:
        """Something has happened here."""
        if self.attempt is None and isinstance(event, OF_PARTS):
            self.parts = self.memory.held()
        self._report.note(event)
        self._around.reported(self._numbered())

    def _numbered(self) -> HostReport:
        self._report.number += 1
        return self._report

    # --- the attempt's processes ------------------------------------------------------------

    def _hear(self, event: host.HostEvent) -> None:
        attempt = self.attempt
        if isinstance(event, host.Died | host.ReaperLost):
            # What a dead rank stored last counts: a set may have become durable just before.
            self._read(with_progress=True)
        if isinstance(event, host.Empty):
            self.standbys.has_ended()
            self.close_attempt()
        for action in self._host.handle(event):
            if isinstance(action, host.PassOn):
                if attempt is not None and isinstance(action.event, ev.TreeGone | ev.HostLost):
                    self._report.ended = attempt.postmortem.evidence()
                self._tell(action.event)
            elif isinstance(action, host.StartTree):
                self._start_tree()
            elif isinstance(action, host.KillTree) and attempt is not None:
                attempt.tree.kill()
            elif isinstance(action, host.SweepOrphans) and attempt is not None:
                own = [*self.standbys.pids, *self.memory.pids, *self.spared()]
                self._hear(attempt.sweep(own))

    def _start_tree(self) -> None:
        launch = self._launch
        if launch is None:
            return
        standby = self.standbys.take(launch.attempt, self._local.ranks)
        self._around.prepared(standby.ready_ns)
        resume = launch.resume
        scratch = self._job.scratch
        attempt = LiveAttempt(self._folder, launch, scratch, standby, self._around)
        place = self.memory.place.buffer(resume.buffer)
        what = resume.set_name, resume.step, resume.parent, resume.skip_batches
        standby.begin(
            Go(*what, place, resume.ended_until),
            partial(self._commands, attempt=launch.attempt, resume=resume),
        )
        attempt.register(self._selector)
        self.attempt = attempt
        self._next_poll_ns = 0  # ranks that were woken ahead have shown themselves already
        self._upkeep.add(attempt.live_files())

    def _commands(
        self,
        outputs: Sequence[RankOutput],
        *,
        attempt: int,
        resume: ev.Resume = ev.SCRATCH,
        gate: Path | None = None,
    ) -> list[RankCommand]:
        memory = self.memory.place
        return self._job.rank_commands(
            self._folder, outputs, attempt, self._local, memory=memory, resume=resume, gate=gate
        )

    # --- what the controller orders ---------------------------------------------------------

    def meet_controller(self) -> None:
        """Another one has taken over: what was seen for the one before is of no use to it."""
        super().meet_controller()
        self._report.meet_controller()
        self.memory.give_up("another controller has taken over: it orders what is due then")

    def look_at_parts(self) -> None:
        """For a controller that takes over; what is being written now is no part."""
        self.parts = self.memory.held()

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """Keep of the seals' outcomes those that the controller has not heard of."""
        self._report.forget_seals(is_wanted)

    def launch(self, action: act.Launch) -> None:
        """Start the ranks."""
        self._launch = action
        self._local = LocalRanks.of(action, self.number)
        ranks = self._local.ranks
        self.memory.begin(ranks, self._local.world_size)
        self._report.begin(action.attempt, action.resume.step, len(ranks))
        self._fetch_own(action.resume, ranks)
        self._hear(host.Start(now_ns(), action.attempt, ranks))

    def _fetch_own(self, resume: ev.Resume, ranks: tuple[int, ...]) -> None:
        """Have this host's part of what is restored from memory here, if it is not."""
        buffer, parent = resume.buffer, resume.parent
        if self._copying is None:
            return
        self._copying.stop_fetch()
        if buffer is None or parent is None:
            return
        set_ = SealedSet(parent, resume.step, buffer)
        if not has_own(self.parts, set_, ranks):
            part = PartName(parent, resume.step, ranks)
            self._copying.fetch(part, buffer, self.places.own)

    def publish_order(self, order: news.PublishOrder, deadline_ns: int | None) -> None:
        """Store an order in every page."""
        if self.attempt is not None:
            self.attempt.pages.orders.give_order(order, deadline_ns)
            self.attempt.pages.store_orders()

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """Store a verdict in every page."""
        if self.attempt is not None:
            self.attempt.pages.orders.give_verdict(verdict)
            self.attempt.pages.store_orders()

    def publish_committed(self, step: int) -> None:
        """Store in every page which step is durable."""
        if self.attempt is not None:
            self.attempt.pages.orders.give_committed(step)
            self.attempt.pages.store_orders()

    def relay(self) -> None:
        """Send SIGTERM to the ranks."""
        if self.attempt is not None:
            self.attempt.tree.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every process of the attempt."""
        self._hear(host.End(now_ns()))

    def stand_by(self, action: act.StandBy) -> None:
        """Prepare, wake or drop what waits for the next attempt."""
        self.standbys.stand_by(action)

    def examine(self, action: act.Examine) -> None:
        """Look at pages and processes; a look that came late is followed by another one."""
        if self.attempt is not None:
            looks, at_ns = look_at(self.attempt.pages, self.attempt.pids), now_ns()
            if not self.look_whether_we_slept():
                self._tell(ev.Examined(at_ns, action.attempt, looks))

    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Ask each rank in a thread, in bounded time."""
        attempt = self.attempt
        if attempt is None:
            return

        def done(found: list[Collected]) -> None:
            attempt.postmortem.stacks = {one.stack.rank: one for one in found}
            stacks = tuple(one.stack for one in found)
            self._around.later(
                lambda: self._tell(ev.StacksCollected(now_ns(), action.attempt, stacks))
            )

        collect_beside(targets(attempt.pages, attempt.pids), done)

    def profile(self, action: act.Profile) -> None:
        """Knock at the rank's door."""
        attempt = self.attempt
        if attempt is not None and action.rank in self._local.ranks:
            journal = attempt.scratch / journal_name(action.rank)
            ask_rank(self._folder, journal, action, partial(self._around.say, "warning"))

    def seal(self, action: act.Seal) -> None:
        """Have a process of the memory tier seal a buffer."""
        self.memory.seal(action)

    def flush(self, action: act.Flush) -> None:
        """Have a process of the memory tier write a sealed set to the store."""
        self._report.begin_flush()
        self.memory.flush(action)

    def replicate(self, action: act.Replicate) -> None:
        """Have the copy process keep a copy of the part of the host before this one."""
        launch, copying = self._launch, self._copying
        if launch is not None and copying is not None:
            hosts = sorted(set(launch.placement.hosts))
            before = hosts[hosts.index(self.number) - 1]
            ranks = launch.placement.on(before)
            copying.replicate(action, ranks, self.places.neighbour, self._tell)

    def hurry(self, action: Hurry) -> None:
        """Have the process that flushes go on at full speed."""
        self.memory.hurry(action)

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """End the flush under way, by force if need be."""
        self.memory.abandon(action)
