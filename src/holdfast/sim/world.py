"""One simulated run: the core's own machine, with virtual hosts that carry out what it says.

    world = World(scenario, faults, policy, seed=1)
    story = world.run()

`core.run.machine.RunMachine` decides here as it does in the agent: when to save and where to, what
to restore, whether and when to start again. The ranks step together and are told to it as one. What
the edges do (start, restore, copy, write, find another host) takes the time that the scenario says.

Between two events from outside nothing happens but equal steps and equal saves. They are folded
(`sim.cadence`), so that a run costs what its faults cost. That the outcome is the same is tested
with the folding switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from holdfast.controller.controller import Controller
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hang.events import RankStack
from holdfast.core.hosts.register import Register
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.ledger.facts import CapacityFact, RestoreFact, SpanFact, StepsFact
from holdfast.core.notices.board import Notice
from holdfast.core.run.machine import RunPolicy
from holdfast.core.run.rollback import Wish
from holdfast.core.run.state import State
from holdfast.core.save import events as news
from holdfast.core.save.policy import Optimal
from holdfast.core.save.ranks import RankAnswers
from holdfast.core.save.word import Order, buffer_of
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN
from holdfast.sim.announced import StandingNotices
from holdfast.sim.cadence import Cadence, Habit
from holdfast.sim.clock import NEVER_NS, VirtualClock, to_ns
from holdfast.sim.elastic import Does, Doing, Slices, Watch
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
from holdfast.sim.idle import NOTHING_NEW, Idle
from holdfast.sim.looks import LookTimers, look
from holdfast.sim.model import Scenario
from holdfast.sim.story import Story
from holdfast.sim.tiers import Tiers
from holdfast.sim.training import Training

BUFFERS = 3
LEARNED = Optimal()  # what the core takes the time between failures to be, from what it has seen


@dataclass(slots=True)
class RunningAttempt:
    """The attempt that runs. `training` None: it has not come to its first step yet.

    `order`: the newest to save. `leaves`: it was asked to save and stop.
    """

    attempt: int
    resume: ev.Resume
    launched_ns: int
    training: Training | None = None
    cadence: Cadence | None = None
    hung_ns: int | None = None
    order: news.PublishOrder | None = None
    leaves: bool = False


class World(Idle):
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
        self._slices: Slices | None = None
        if scenario.fleet.elastic:
            self._slices = Slices(scenario, self._hosts)
            does = Does(self._run_is, self._go_on, self._stop_for_slices)
            self._watch = Watch(self._slices, self._hosts, self._clock, faults, does)
        self._folds = folds
        self._habit = Habit()
        self._end_ns = to_ns(scenario.duration_s)
        self._step_ns = max(1, to_ns(scenario.step_s))
        self._reports = 0
        self._facts: Register[ev.Event] = Register()
        self._notices = StandingNotices()
        self._life: RunningAttempt | None = None
        self._launch: act.Launch | None = None
        self._ordered_ns = 0  # when that was
        saves = scenario.saves
        self._stall_ns, self._copy_ns = to_ns(saves.stall_s), to_ns(saves.copy_s)
        self._write_ns = to_ns(saves.write_s)
        self._tiers = Tiers(self._clock, self._feed, self._write_ns, peers=saves.peers)
        self.controller = self._begin()

    def run(self) -> Story:
        """All of it."""
        clock, faults, end_ns = self._clock, self._faults, self._end_ns
        self._feed(ev.Opened(0, 0))
        while True:
            fault_ns, next_ns = faults.next_ns(), clock.next_ns
            until_ns = next_ns if fault_ns is None or next_ns < fault_ns else fault_ns
            until_ns = min(until_ns, end_ns)
            life = self._life
            if life is not None and life.training is not None and self._save_before(life, until_ns):
                continue
            if until_ns >= end_ns:
                break
            if until_ns == next_ns:
                clock.advance()
            else:
                clock.now_ns = until_ns
                self._strike(faults.pop())
        self._close()
        return self.story

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since the request."""
        return self._clock.now_ns

    def _close(self) -> None:
        """The time is over: what is under way stays open."""
        self._clock.now_ns = max(self._clock.now_ns, self._end_ns)
        life = self._life
        if life is not None and life.training is not None and life.hung_ns is None:
            life.training.end(self._end_ns)

    # --- the core ---------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Tell the controller; where that ends its work, another one takes over."""
        controller = self.controller
        controller.feed(event)
        if controller.finish is not None:
            self._look_whether_it_is_over()

    def _look_whether_it_is_over(self) -> None:
        controller = self.controller
        if controller.finish is not None and not controller.is_acting:
            self._succeed(controller.finish)

    def _hear(self, report: HostReport) -> None:
        self.controller.hear(report)
        self._look_whether_it_is_over()

    def _begin(self) -> Controller:
        self.meet_controller()
        self._timers = LookTimers(self._clock, self._feed, folds=self._folds)
        return Controller(
            self._policy,
            link=self,
            store=self,
            clock=self._timers,
            journal=self,
            say=lambda _level, _words: None,
        )

    def _heard(self, life: RunningAttempt, what: news.Event) -> None:
        self._feed(ev.Heard(self._clock.now_ns, life.attempt, what))

    def _after(
        self, delay_ns: int, life: RunningAttempt, do: Callable[[], None], *, beside: bool = False
    ) -> None:
        """Do this later, if the attempt lives and does not hang; `beside`: though it hangs."""

        def if_alive() -> None:
            if self._life is life and (beside or life.hung_ns is None):
                do()

        self._clock.at(self._clock.now_ns + delay_ns, if_alive)

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
            for at_ns in self._hosts.repairs_ns:
                self._clock.at(at_ns, self._repaired)
            self._hosts.repairs_ns = []
            if self._trains_on(*what.hosts):  # before anybody asks what there is to restore
                self._tiers.lose_memory(together=what.cause in TOGETHER)
        life = self._life
        if life is None or not self._trains_on(*what.hosts):
            self._wait_for_hosts()
            return
        if what.cause is FaultCause.HANG and life.hung_ns is None:
            self._hang(life)
        elif what.cause is not FaultCause.HANG:
            self._break(life, Exit(host_lost=True) if takes_hosts else Exit(signal=9))

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
        return self._slices is None or self._slices.uses(*hosts)

    def _repaired(self) -> None:
        taken = self._hosts.repaired(self._clock.now_ns)
        if taken is not None:
            self._faults.renewed(*taken)
            self._wait_for_hosts()

    def _hang(self, life: RunningAttempt) -> None:
        """The ranks stand still; what is being written goes on."""
        self._stop_training(life)
        life.hung_ns = self._clock.now_ns
        self._timers.stand_still()

    def examine(self, action: act.Examine) -> None:
        """As the ranks' pages and processes show it."""
        life = self._life
        if life is not None:
            at_ns = self._clock.now_ns if life.hung_ns is None else life.hung_ns
            seen = look(life.training, life.resume.step, at_ns)
            self._feed(ev.Examined(self._clock.now_ns, action.attempt, (seen,)))

    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Nobody stands anywhere."""
        where = (RankStack(0, how="simulated"),)
        self._feed(ev.StacksCollected(self._clock.now_ns, action.attempt, where))

    def _break(self, life: RunningAttempt, how: Exit) -> None:
        """The attempt is gone, at once and on all hosts."""
        self._stop_training(life)
        self._life = None
        now_ns = self._clock.now_ns
        self._feed(ev.RankExited(now_ns, life.attempt, 0, now_ns, how))
        self._feed(ev.TreeGone(now_ns, life.attempt))

    def _stop_training(self, life: RunningAttempt) -> None:
        """No step is completed any more; the machine hears of the last one."""
        training = life.training
        if training is None:
            if life.hung_ns is None:
                self._started(life, self._clock.now_ns)
            return
        if life.hung_ns is not None:
            return
        step, began_ns = training.end(self._clock.now_ns)
        if began_ns is not None:
            self.story.add(StepsFact(life.attempt, step + 1, step + 1, began_ns, None))
        if step > life.resume.step:
            self._heard(life, news.Progress(self._clock.now_ns, 0, step))

    # --- attempts ---------------------------------------------------------------------------

    def look(self, _: Wish | None) -> None:
        """The store answers at once: what that takes is part of a restart."""
        self._feed(ev.SetsSeen(self._clock.now_ns, self._tiers.seen()))

    def create_attempt(self, _: act.Launch, created: Callable[[], None]) -> None:
        """It is on record at once."""
        created()

    def launch(self, action: act.Launch) -> None:
        """As soon as there are hosts."""
        self._timers.stand_still()
        self._launch = action
        self._tiers.launched(action)
        self._ordered_ns = self._clock.now_ns
        self._wait_for_hosts()

    def _wait_for_hosts(self) -> None:
        if self._slices is not None:
            self._watch.look_at(self._clock.now_ns)
            return
        launch = self._launch
        if launch is None:
            return
        ready_ns, wait = self._hosts.complete_at(self._clock.now_ns)

        def ready() -> None:
            again_ns, _ = self._hosts.complete_at(self._clock.now_ns)
            if self._launch is launch and again_ns <= self._clock.now_ns:
                self._launch = None
                self._launched(launch, wait)

        self._clock.at(ready_ns, ready)

    def _launched(self, launch: act.Launch, wait: str) -> None:
        now_ns = self._clock.now_ns
        life = self._life = RunningAttempt(launch.attempt, launch.resume, now_ns)
        if self._slices is not None and (chips := self._slices.use(now_ns)) is not None:
            self.story.add(CapacityFact(now_ns, chips))
        waited = ev.Waited(wait, now_ns) if now_ns > self._ordered_ns else None
        self._facts.put(ev.Launched, ev.Launched(now_ns, launch.attempt, waited))
        self._hear(self._report())
        recovery = self.scenario.recovery
        restart_s = recovery.restart.sample_s(self._rng)
        if launch.resume.buffer is not None and restart_s:
            restart_s *= recovery.from_memory_s / recovery.restart.mean_s
        self._after(to_ns(restart_s), life, lambda: self._train(life))

    def _restore_ns(self, life: RunningAttempt) -> int:
        recovery, resume = self.scenario.recovery, life.resume
        if resume.set_name is None:
            return 0
        in_memory = resume.buffer is not None
        return to_ns(recovery.restore_from_memory_s if in_memory else recovery.restore_s)

    def _started(self, life: RunningAttempt, at_ns: int) -> None:
        """What an attempt did before its first step, up to now."""
        if at_ns > life.launched_ns:
            self.story.add(SpanFact(life.attempt, "startup", life.launched_ns, at_ns))

    def _train(self, life: RunningAttempt) -> None:
        now_ns, resume = self._clock.now_ns, life.resume
        began_ns = max(life.launched_ns, now_ns - self._restore_ns(life))
        self._started(life, began_ns)
        self.story.add(RestoreFact(life.attempt, began_ns, now_ns, resume.step, resume.parent))
        rows = self.story.of(life.attempt)
        step_ns = self._step_ns if self._slices is None else self._slices.longer(self._step_ns)
        idle_ns = int(step_ns * self.scenario.idle)
        training = life.training = Training(rows, resume.step, now_ns, step_ns, idle_ns)
        life.cadence = Cadence(life.training, self._habit)
        self._timers.step()
        if life.order is not None:  # it was asked for before
            self._answer(life, training, life.order)
        if self.scenario.saves.memory:
            self._feed(ev.BuffersReady(now_ns, life.attempt, 0, BUFFERS))
        is_known = self.controller.machine.saving.step_time_ns and not self.scenario.fleet.elastic
        if self.scenario.saves.memory or not is_known:
            for step in (1, 2):  # enough for the machine to know what a step takes
                self._after(step * step_ns, life, self._progress)

    def _progress(self) -> None:
        self._hear(self._report())

    def reports(self) -> list[tuple[int, HostReport]]:
        """Of the only host."""
        return [(0, self._report())]

    def when_complete(self, do: Callable[[], None]) -> None:
        """At once: a launch waits for hosts."""
        do()

    def _report(self) -> HostReport:
        """How far the ranks are now, as one; what they save is told when it happens."""
        life = self._life
        if life is None:
            return NOTHING_NEW
        step, at_ns = life.resume.step, self._clock.now_ns if life.hung_ns is None else life.hung_ns
        if life.training is not None:
            step = life.training.completed(at_ns)
        self._reports += 1
        state = RankState(has_session=True, answers=RankAnswers(step=step))
        return HostReport(self._reports, life.attempt, (state,), self._facts)

    # --- slices, where the fleet is elastic -------------------------------------------------

    def _run_is(self) -> tuple[Doing, int]:
        """What is asked before the slices are looked at; and the time between failures."""
        life, between_s = (
            self._life,
            LEARNED.mtbf_s(self.controller.machine.saving.view(self._clock.now_ns)),
        )
        doing = Doing.WAITS if self._launch is not None else Doing.NEITHER
        if life is not None and life.hung_ns is None and not life.leaves:
            doing = Doing.TRAINS
        return doing, to_ns(between_s)

    def _go_on(self, wait: str) -> None:
        """Launch on the slices that are whole; `wait`: what was waited for until now, if at all."""
        launch, self._launch = self._launch, None
        assert launch is not None  # noqa: S101 - it waits for this
        self._launched(launch, wait)

    def _stop_for_slices(self) -> None:
        """An agreed save, and an end that starts again; the launch then takes what is whole."""
        assert self._life is not None  # noqa: S101 - it trains
        self._life.leaves = True
        self._feed(ev.StopAsked(self._clock.now_ns, "slices are back", None, notice=False))

    def kill(self) -> None:
        """What is left of an attempt; most that is killed here has ended before."""
        life = self._life
        if life is not None:
            self._stop_training(life)
            self._life = None
            self._feed(ev.TreeGone(self._clock.now_ns, life.attempt))

    # --- saves ------------------------------------------------------------------------------

    def _save_before(self, life: RunningAttempt, until_ns: int) -> bool:
        """Have the next save made, if one is due before then; those that are alike are folded."""
        machine, cadence = self.controller.machine, life.cadence
        saving, training = machine.saving, life.training
        if training is None or cadence is None or not saving.may_order:
            return False
        if life.hung_ns is not None or machine.state is not State.RUNNING:
            return False
        now_ns = self._clock.now_ns
        fold_until_ns = until_ns
        if self._notices.by_host:
            until_ns, fold_until_ns = self._before_an_end(until_ns)
        step = cadence.step_to_save(saving, now_ns, until_ns)
        if step is None:
            return False
        if cadence.are_alike(step) and self._folds:
            seen_ns = saving.failures.observed_ns + now_ns - life.launched_ns
            step = cadence.fold(saving, step, self._blocked_ns, fold_until_ns, seen_ns)
        now_ns = self._clock.now_ns = max(now_ns, training.passed_ns(step - 1))
        self._heard(life, news.Progress(now_ns, 0, step - 1))
        return True

    def _before_an_end(self, until_ns: int) -> tuple[int, int]:
        """Up to when saves are ordered, and folded: before an announced end none is to be durable.

        Copies to memory go on meanwhile.
        """
        saving = self.controller.machine.saving
        held_ns = saving.held_from_ns
        if held_ns is None:
            return until_ns, until_ns
        if not saving.tier.is_there:
            return min(until_ns, held_ns), min(until_ns, held_ns)
        return until_ns, min(until_ns, held_ns) if self._clock.now_ns < held_ns else until_ns

    @property
    def _blocked_ns(self) -> int:
        return self._copy_ns if self.controller.machine.saving.tier.is_there else self._stall_ns

    def commit(self, attempt: int, epoch: int, step: int, _ranks: int) -> None:
        """The manifest is written at once."""
        self._tiers.committed(attempt, step)
        committed = news.Committed(self._clock.now_ns, epoch, step)
        self._feed(ev.Heard(self._clock.now_ns, attempt, committed))

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """The ranks see it at once."""
        if self._life is not None and verdict.flags & Order.STOP:
            self._break(self._life, Exit(code=EXIT_SAVED_START_ME_AGAIN))

    def publish_order(self, order: news.PublishOrder, _: int | None) -> None:
        """The ranks see it at once, and answer at the boundary."""
        life = self._life
        if life is not None:
            life.order = order
            if life.training is not None:  # else it finds the order when it comes to its first step
                self._answer(life, life.training, order)

    def seal(self, action: act.Seal) -> None:
        """In memory."""
        self._tiers.seal(action)

    def flush(self, action: act.Flush) -> None:
        """It takes as long as a write."""
        self._tiers.flush(action)

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """It ends at once."""
        self._tiers.abandon(action)

    def commit_flushed(self, action: act.CommitFlushed) -> None:
        """The manifest is written at once."""
        self._tiers.commit(action)

    def _answer(self, life: RunningAttempt, training: Training, order: news.PublishOrder) -> None:
        """When the boundary comes."""
        delay_ns = training.passed_ns(order.step) - self._clock.now_ns
        self._after(delay_ns, life, lambda: self._boundary(life, order))

    def _boundary(self, life: RunningAttempt, order: news.PublishOrder) -> None:
        if order is not life.order:
            return  # a later order took its place
        training, buffer = life.training, buffer_of(order.flags)
        assert training is not None  # noqa: S101 - it has passed a boundary
        blocked_ns = self._stall_ns if buffer is None else self._copy_ns
        training.block(order.step, NEVER_NS if order.flags & Order.STOP else blocked_ns)
        if life.cadence is not None:
            life.cadence.saved(order.step)

        def copied() -> None:
            if blocked_ns != self.controller.machine.saving.blocked_ns:
                self._feed(ev.SaveTook(self._clock.now_ns, life.attempt, blocked_ns))
            if buffer is None and not self._write_ns:
                written()  # which says that it is copied too
                return
            self._heard(life, news.Snapped(self._clock.now_ns, 0, order.epoch, order.step))
            if buffer is None:
                self._after(self._write_ns, life, written, beside=True)

        def written() -> None:
            self._heard(life, news.Durable(self._clock.now_ns, 0, order.epoch, order.step))

        self._after(blocked_ns, life, copied)

    # --- what is written down, and who takes over -------------------------------------------

    def event(self, _: ev.Event) -> None:
        """Count it."""
        self.events += 1

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None:
        """Nothing is written down: the same seed decides the same again."""

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
