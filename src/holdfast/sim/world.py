"""One simulated run: the core's own machine, with virtual hosts that carry out what it says.

    world = World(scenario, faults, policy, seed=1)
    story = world.run()

`core.run.machine.RunMachine` decides here as it does in the agent: when to save and where to, what
to restore, whether and when to start again. What happens from outside is here, and what becomes of
the hosts; the ranks of the attempt that runs are one for it (`sim.ranks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from holdfast.controller.controller import Controller
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hang.events import RankStack
from holdfast.core.hosts.register import Register
from holdfast.core.hosts.report import HostReport
from holdfast.core.ledger.facts import CapacityFact
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunPolicy
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as news
from holdfast.core.save.choose import SealedSet
from holdfast.core.save.policy import Optimal
from holdfast.core.save.word import Order
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN
from holdfast.sim.announced import StandingNotices
from holdfast.sim.cadence import Habit
from holdfast.sim.clock import NEVER_NS, VirtualClock, to_ns
from holdfast.sim.elastic import SliceWatch
from holdfast.sim.faults import (
    IN_PLACE,
    TOGETHER,
    AnnouncedLoss,
    Arrival,
    Fault,
    FaultCause,
    FaultStream,
)
from holdfast.sim.hosts import Hosts
from holdfast.sim.look_timers import LookTimers
from holdfast.sim.model import Scenario
from holdfast.sim.no_ops import NoOps
from holdfast.sim.ranks import RanksSetting, SimulatedRanks
from holdfast.sim.standbys import SimulatedStandbys
from holdfast.sim.story import Story
from holdfast.sim.tiers import Tiers

LEARNED = Optimal()  # what the core takes the time between failures to be, from what it has seen


class World(NoOps):
    """One run, from its request on.

    `events`: how many the core was fed. `stops`: the words with which a supervisor gave up, and
    left the run to a person; the next one starts at once here, whatever persons would need.
    """

    def __init__(
        self,
        scenario: Scenario,
        faults: FaultStream,
        policy: RunPolicy,
        *,
        seed: int = 0,
        folds: bool = True,
    ) -> None:
        super().__init__()
        self.scenario = scenario
        self.story = Story("simulated", scenario.fleet.chips)
        self.events = 0
        self.stops: list[str] = []
        self._clock = VirtualClock()
        self._faults = faults
        self._policy = policy
        self._rng = Random(seed)  # noqa: S311 - draws, not secrets
        self._hosts = Hosts(scenario.fleet, scenario.recovery, self._rng, faults.hosts_at_start)
        self._slice_watch: SliceWatch | None = None
        if scenario.fleet.elastic:
            self._slice_watch = SliceWatch(scenario, self._hosts, self._clock, faults, self)
        self._folds = folds
        self._habit = Habit()
        self._step_ns = max(1, to_ns(scenario.step_s))
        self._reports = 0
        self._facts: Register[ev.Event] = Register()
        self._notices = StandingNotices()
        self._ranks: SimulatedRanks | None = None
        self._launch: act.Launch | None = None  # that waits for hosts
        self._ordered_ns = 0  # when the newest launch was ordered
        saves = scenario.saves
        self._tiers = Tiers(self._clock, self._feed, to_ns(saves.write_s), peers=saves.peers)
        self._standbys = SimulatedStandbys(to_ns(scenario.recovery.standby_ready_s))
        self._is_cold = True  # the next start finds no standby
        self.controller = self._begin()

    def run(self) -> Story:
        """All of it."""
        clock, faults, end_ns = self._clock, self._faults, to_ns(self.scenario.duration_s)
        self._feed(ev.Opened(0, 0))
        while True:
            fault_ns, next_ns = faults.next_ns(), clock.next_ns
            until_ns = next_ns if fault_ns is None or next_ns < fault_ns else fault_ns
            until_ns = min(until_ns, end_ns)
            if self._ranks is not None and self._ranks.save_before(until_ns):
                continue
            if until_ns >= end_ns:
                break
            if not clock.advance(until_ns):
                self._strike(faults.pop())
        clock.pass_to(end_ns)
        if self._ranks is not None:
            self._ranks.close()
        return self.story

    # --- the core ---------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Tell the controller; where that ends its work, another one takes over."""
        self.controller.feed(event)
        self._look_whether_it_is_over()

    def _look_whether_it_is_over(self) -> None:
        controller = self.controller
        if controller.finish is not None and not controller.is_acting:
            self._succeed(controller.finish)

    def _report_ranks(self) -> None:
        """Have the controller hear how far they are now."""
        self.controller.hear(self._report())
        self._look_whether_it_is_over()

    def _begin(self) -> Controller:
        self.meet_controller()
        self._timers = LookTimers(self._clock, self._feed, folds=self._folds)
        controller = Controller(
            self._policy,
            link=self,
            store=self,
            clock=self._timers,
            journal=self,
            say=lambda _level, _words: None,
        )
        self._ranks_setting = RanksSetting(
            self.scenario,
            self.story,
            self._clock,
            self._timers,
            self._habit,
            controller.machine,
            self._feed,
            self._report_ranks,
            self._folds,
        )
        return controller

    # --- what happens from outside ----------------------------------------------------------

    def _strike(self, what: Fault | AnnouncedLoss | Arrival) -> None:
        if isinstance(what, Arrival):
            self._hosts.arrived(what.host, self._clock.now_ns)
            self._wait_for_hosts()
            return
        if isinstance(what, AnnouncedLoss):
            self._announce(what)
            return
        self._befall(what)
        for place in () if what.cause in IN_PLACE else what.hosts:
            self._withdraw(place)

    def _befall(self, what: Fault) -> None:
        takes_hosts = what.cause not in IN_PLACE
        if takes_hosts:
            for place in what.hosts:
                self._lose(place)
            for at_ns in self._hosts.take_repairs():
                self._clock.at(at_ns, self._repaired)
            if self._trains_on(*what.hosts):  # before anybody asks what there is to restore
                self._tiers.lose_memory(together=what.cause in TOGETHER)
        ranks = self._ranks
        if ranks is None or not self._trains_on(*what.hosts):
            self._wait_for_hosts()
        elif what.cause is FaultCause.HANG:
            ranks.hang()
        else:
            self._end_ranks(Exit(host_lost=True) if takes_hosts else Exit(signal=9))

    def _announce(self, what: AnnouncedLoss) -> None:
        """The cloud says that a host goes; where that was wrong, it says so at its deadline."""
        if not self._trains_on(what.host):
            return
        notice = self._notices.give(what)
        self._feed(ev.Noticed(self._clock.now_ns, notice))
        if not what.comes_true:
            self._clock.at(what.deadline_ns, lambda: self._withdraw(what.host, notice))

    def _withdraw(self, host: int, only: Notice | None = None) -> None:
        """It is not to be expected any more: it has come, or never will."""
        for over in self._notices.take_back(host, self._clock.now_ns, only):
            self._feed(ev.Noticed(self._clock.now_ns, over))

    def _lose(self, place: int) -> None:
        if self._faults.tells_arrivals:
            self._hosts.vacate(place, self._clock.now_ns)
            return
        comes_ns = self._hosts.lose(place, self._clock.now_ns)
        if comes_ns < NEVER_NS:
            self._faults.renewed(place, comes_ns)

    def _trains_on(self, *hosts: int) -> bool:
        return self._slice_watch is None or self._slice_watch.slices.uses(*hosts)

    def _repaired(self) -> None:
        taken = self._hosts.repaired(self._clock.now_ns)
        if taken is not None:
            self._faults.renewed(*taken)
            self._wait_for_hosts()

    # --- attempts ---------------------------------------------------------------------------

    def look(self, _: Wish | None, __: tuple[SealedSet, ...] | None = None) -> None:
        """The store answers at once: what that takes is part of a restart."""
        self._feed(ev.SetsSeen(self._clock.now_ns, self._tiers.seen()))

    def launch(self, action: act.Launch) -> None:
        """As soon as there are hosts."""
        self._timers.stand_still()
        self._launch = action
        self._tiers.launched(action)
        self._ordered_ns = self._clock.now_ns
        self._wait_for_hosts()

    def _wait_for_hosts(self) -> None:
        if self._slice_watch is not None:
            self._slice_watch.look_at(self._clock.now_ns)
            return
        launch = self._launch
        if launch is None:
            return
        ready_ns, wait = self._hosts.complete_at(self._clock.now_ns)

        def ready() -> None:
            again_ns, _ = self._hosts.complete_at(self._clock.now_ns)
            if self._launch is launch and again_ns <= self._clock.now_ns:
                self.launch_now(wait)

        self._clock.at(ready_ns, ready)

    def launch_now(self, wait: str) -> None:
        """Launch what waits for hosts; `wait`: what was waited for until now, if at all."""
        launch, self._launch = self._launch, None
        if launch is None:
            return
        now_ns, step_ns = self._clock.now_ns, self._step_ns
        if self._slice_watch is not None:
            slices = self._slice_watch.slices
            if (chips := slices.use(now_ns)) is not None:
                self.story.add(CapacityFact(now_ns, chips))
            step_ns = slices.longer(step_ns)
        ranks = self._ranks = SimulatedRanks(self._ranks_setting, launch, step_ns)
        waited = ev.Waited(wait, now_ns) if now_ns > self._ordered_ns else None
        self._facts.put(ev.Launched, ev.Launched(now_ns, launch.attempt, waited))
        self._report_ranks()
        ranks.start(self._startup_ns(launch.resume))
        self._standbys.launched(now_ns)

    def _startup_ns(self, resume: ev.Resume) -> int:
        recovery = self.scenario.recovery
        restart_s = recovery.restart.sample_s(self._rng)
        factor = recovery.start_factor(is_cold=self._is_cold)
        if factor > 1.0:
            restart_s *= factor
        elif resume.buffer is not None and restart_s:
            restart_s *= recovery.from_memory_s / recovery.restart.mean_s
        return to_ns(restart_s)

    def kill(self) -> None:
        """What is left of an attempt; most that is killed here has ended before."""
        self._end_ranks()

    def _end_ranks(self, how: Exit | None = None) -> None:
        """All of them are gone, if there are any. `how` they exited; None: they were killed."""
        ranks = self._ranks
        if ranks is None:
            return
        ranks.end()
        self._ranks = None
        now_ns = self._clock.now_ns
        self._is_cold = not self._standbys.is_ready(now_ns)
        if how is not None:
            self._feed(ev.RankExited(now_ns, ranks.attempt, 0, now_ns, how))
        self._feed(ev.TreeGone(now_ns, ranks.attempt))

    # --- how the ranks are seen -------------------------------------------------------------

    def reports(self) -> list[tuple[int, HostReport]]:
        """Of the only host."""
        return [(0, self._report())]

    def _report(self) -> HostReport:
        ranks = self._ranks
        if ranks is None:
            return HostReport()
        self._reports += 1
        return HostReport(self._reports, ranks.attempt, (ranks.state(),), self._facts)

    def examine(self, action: act.Examine) -> None:
        """As the ranks' pages and processes show it."""
        if self._ranks is not None:
            seen = self._ranks.look()
            self._feed(ev.Examined(self._clock.now_ns, action.attempt, (seen,)))

    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Nobody stands anywhere."""
        where = (RankStack(0, how="simulated"),)
        self._feed(ev.StacksCollected(self._clock.now_ns, action.attempt, where))

    # --- slices, where the fleet is elastic -------------------------------------------------

    @property
    def waits_to_launch(self) -> bool:
        """Whether an attempt waits for slices."""
        return self._launch is not None

    @property
    def may_be_stopped(self) -> bool:
        """Whether an attempt runs that would save and stop if it were asked to."""
        return self._ranks is not None and self._ranks.may_be_stopped

    @property
    def between_failures_ns(self) -> int:
        """What the core has learned of it."""
        return to_ns(LEARNED.mtbf_s(self.controller.machine.saving.view(self._clock.now_ns)))

    def stop_for_slices(self) -> None:
        """An agreed save, and an end that starts again; the launch then takes what is whole."""
        if self._ranks is not None:
            self._ranks.leave()
            self._feed(ev.StopAsked(self._clock.now_ns, "slices are back", None, notice=False))

    # --- saves ------------------------------------------------------------------------------

    def commit(self, attempt: int, epoch: int, step: int, _ranks: int) -> None:
        """The manifest is written at once."""
        self._tiers.committed(attempt, step)
        committed = news.Committed(self._clock.now_ns, epoch, step)
        self._feed(ev.Heard(self._clock.now_ns, attempt, committed))

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """The ranks see it at once."""
        if verdict.flags & Order.STOP:
            self._end_ranks(Exit(code=EXIT_SAVED_START_ME_AGAIN))

    def publish_order(self, order: news.PublishOrder, _: int | None) -> None:
        """The ranks answer at the boundary."""
        if self._ranks is not None:
            self._ranks.obey(order)

    def seal(self, action: act.Seal) -> None:
        """In memory."""
        self._tiers.seal(action)

    def flush(self, action: act.Flush) -> None:
        """It takes as long as a write."""
        self._tiers.flush(action)

    def replicate(self, action: act.Replicate) -> None:
        """Never: its hosts are one."""
        raise NotImplementedError

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """It ends at once."""
        self._tiers.abandon(action)

    def commit_flushed(self, action: act.CommitFlushed) -> None:
        """The manifest is written at once."""
        self._tiers.commit(action)

    # --- what is written down, and who takes over -------------------------------------------

    def event(self, _: ev.Event) -> None:
        """Count it."""
        self.events += 1

    def fact(self, fact: Mapping[str, Any]) -> None:
        """For the ledger."""
        self.story.record(fact)

    def _succeed(self, finish: act.Finish) -> None:
        """The supervisor ends, and another one takes over what is known of the run."""
        if finish.exit_code != EXIT_SAVED_START_ME_AGAIN:
            self.stops.append(finish.words)
        if not finish.leaves_memory:
            self._tiers.give_back_memory()
        before, saving = self.controller.machine, self.controller.machine.saving
        self._timers.clear()
        self.controller = self._begin()
        self._feed(
            ev.Opened(
                self._clock.now_ns,
                before.attempt + 1,
                before.high_water,
                before.failures_seen,
                saving.failures.observed_ns,
                memory_lost=saving.failures.losses,
            )
        )
