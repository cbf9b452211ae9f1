"""The ranks of one simulated attempt, from its launch until they are gone.

They step together, so that one line of steps stands for them all, and they are seen as one. What
they do takes the time that the scenario says: the start, the restore, the copies, the writes.

Between two events from outside nothing happens but equal steps and equal saves. They are folded
(`sim.cadence`), so that a run costs what its faults cost. That the outcome is the same is tested
with the folding switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hang.events import STARTING, TRAINING, RankLook
from holdfast.core.hosts.report import RankState
from holdfast.core.ledger.facts import RestoreFact, SpanFact, StepsFact
from holdfast.core.run.machine import RunMachine
from holdfast.core.run.state import State
from holdfast.core.save import events as news
from holdfast.core.save.ranks import RankAnswers
from holdfast.core.save.saving import Saving
from holdfast.core.save.word import Order, buffer_of
from holdfast.sim.cadence import Cadence, Habit
from holdfast.sim.clock import NEVER_NS, VirtualClock, to_ns
from holdfast.sim.look_timers import LookTimers
from holdfast.sim.model import Scenario
from holdfast.sim.story import Story
from holdfast.sim.training import Training

BUFFERS = 3


@dataclass(frozen=True, slots=True)
class RanksSetting:
    """What the attempts under one controller have in common.

    `feed`: tell the controller. `report`: have it hear how the ranks stand now.
    """

    scenario: Scenario
    story: Story
    clock: VirtualClock
    timers: LookTimers
    habit: Habit
    machine: RunMachine
    feed: Callable[[ev.Event], None]
    report: Callable[[], None]
    folds: bool


class SimulatedRanks:
    """All ranks of the attempt, as one."""

    def __init__(self, setting: RanksSetting, launch: act.Launch, step_ns: int) -> None:
        """They are launched now; a step of them takes `step_ns`."""
        self.attempt = launch.attempt
        self._setting = setting
        self._clock = setting.clock
        self._feed = setting.feed
        self._resume = launch.resume
        self._launched_ns = setting.clock.now_ns
        self._step_ns = step_ns
        saves = setting.scenario.saves
        self._stall_ns, self._copy_ns = to_ns(saves.stall_s), to_ns(saves.copy_s)
        self._write_ns = to_ns(saves.write_s)
        self._cadence: Cadence | None = None  # None: they have not come to their first step yet
        self._order: news.PublishOrder | None = None  # the newest to save
        self._hung_ns: int | None = None
        self._is_leaving = self._are_gone = False

    # --- from the launch to the first step --------------------------------------------------

    def start(self, startup_ns: int) -> None:
        """They come to their first step after so long."""
        self._after(startup_ns, self._train)

    def _train(self) -> None:
        now_ns, resume, scenario = self._clock.now_ns, self._resume, self._setting.scenario
        story, step_ns = self._setting.story, self._step_ns
        began_ns = max(self._launched_ns, now_ns - self._restore_ns)
        self._write_down_startup(began_ns)
        story.add(RestoreFact(self.attempt, began_ns, now_ns, resume.step, resume.parent))
        idle_ns = int(step_ns * scenario.idle)
        training = Training(story.of(self.attempt), resume.step, now_ns, step_ns, idle_ns)
        cadence = self._cadence = Cadence(training, self._setting.habit)
        self._setting.timers.step()
        if self._order is not None:  # it came before
            self._answer(cadence, self._order)
        if scenario.saves.memory:
            self._feed(ev.BuffersReady(now_ns, self.attempt, 0, BUFFERS))
        is_known = self._setting.machine.saving.step_time_ns and not scenario.fleet.elastic
        if scenario.saves.memory or not is_known:
            for step in (1, 2):  # enough for the machine to know what a step takes
                self._after(step * step_ns, self._setting.report)

    @property
    def _restore_ns(self) -> int:
        recovery, resume = self._setting.scenario.recovery, self._resume
        if resume.set_name is None:
            return 0
        in_memory = resume.buffer is not None
        return to_ns(recovery.restore_from_memory_s if in_memory else recovery.restore_s)

    def _write_down_startup(self, until_ns: int) -> None:
        if until_ns > self._launched_ns:
            startup = SpanFact(self.attempt, "startup", self._launched_ns, until_ns)
            self._setting.story.add(startup)

    # --- how they are seen ------------------------------------------------------------------

    def state(self) -> RankState:
        """How far they are; what they save is told when it happens."""
        step = self._resume.step
        if self._cadence is not None:
            step = self._cadence.training.completed(self._seen_ns)
        return RankState(has_session=True, answers=RankAnswers(step=step))

    def look(self) -> RankLook:
        """What their pages and processes show."""
        if self._cadence is None:
            return RankLook(0, doing=STARTING, process="S")
        training, at_ns = self._cadence.training, self._seen_ns
        step, resumed_step = training.completed(at_ns), self._resume.step
        saving_since_ns = training.saving_since_ns(at_ns)
        return RankLook(
            0,
            doing=TRAINING,
            step=step,
            step_ns=min(training.passed_ns(step), at_ns) if step > resumed_step else 0,
            span="" if saving_since_ns is None else "save",
            span_ns=saving_since_ns or 0,
            span_ended_ns=0 if saving_since_ns is not None else training.anchor_ns,
            process="S",
            samples=max(0, step - resumed_step - 1),
            median_ns=training.step_ns,
            longest_ns=training.step_ns,
        )

    @property
    def _seen_ns(self) -> int:
        """Now, or when they came to stand still: nothing has changed since."""
        return self._clock.now_ns if self._hung_ns is None else self._hung_ns

    @property
    def may_be_stopped(self) -> bool:
        """Whether they would save and stop if they were asked to, and were not asked yet."""
        return self._hung_ns is None and not self._is_leaving

    # --- saves ------------------------------------------------------------------------------

    def save_before(self, until_ns: int) -> bool:
        """Have the next save made, if one is due before then; those that are alike are folded."""
        cadence, machine = self._cadence, self._setting.machine
        saving = machine.saving
        if cadence is None or not saving.may_order:
            return False
        if self._hung_ns is not None or machine.state is not State.RUNNING:
            return False
        now_ns = self._clock.now_ns
        order_until_ns, fold_until_ns = _before_an_end(saving, now_ns, until_ns)
        step = cadence.step_to_save(saving, now_ns, order_until_ns)
        if step is None:
            return False
        if cadence.are_alike(step) and self._setting.folds:
            seen_ns = saving.failures.observed_ns + now_ns - self._launched_ns
            blocked_ns = self._copy_ns if saving.tier.is_there else self._stall_ns
            step = cadence.fold(saving, step, blocked_ns, fold_until_ns, seen_ns)
        self._clock.pass_to(cadence.training.passed_ns(step - 1))
        self._say(news.Progress(self._clock.now_ns, 0, step - 1))
        return True

    def obey(self, order: news.PublishOrder) -> None:
        """They see it at once, and answer at the boundary."""
        self._order = order
        if self._cadence is not None:  # else they find it when they come to their first step
            self._answer(self._cadence, order)

    def _answer(self, cadence: Cadence, order: news.PublishOrder) -> None:
        delay_ns = cadence.training.passed_ns(order.step) - self._clock.now_ns
        self._after(delay_ns, lambda: self._save(cadence, order))

    def _save(self, cadence: Cadence, order: news.PublishOrder) -> None:
        """At the boundary."""
        if order is not self._order:
            return  # a later order took its place
        buffer = buffer_of(order.flags)
        blocked_ns = self._stall_ns if buffer is None else self._copy_ns
        cadence.save(order.step, NEVER_NS if order.flags & Order.STOP else blocked_ns)

        def copied() -> None:
            if blocked_ns != self._setting.machine.saving.blocked_ns:
                self._feed(ev.SaveTook(self._clock.now_ns, self.attempt, blocked_ns))
            if buffer is None and not self._write_ns:
                written()  # which says that it is copied too
                return
            self._say(news.Snapped(self._clock.now_ns, 0, order.epoch, order.step))
            if buffer is None:
                self._after(self._write_ns, written, beside=True)

        def written() -> None:
            self._say(news.Durable(self._clock.now_ns, 0, order.epoch, order.step))

        self._after(blocked_ns, copied)

    # --- how they end -----------------------------------------------------------------------

    def leave(self) -> None:
        """They are to save and stop: an order to do so follows."""
        self._is_leaving = True

    def hang(self) -> None:
        """They stand still from now on; what is being written goes on."""
        if self._hung_ns is None:
            self._stop()
            self._hung_ns = self._clock.now_ns
            self._setting.timers.stand_still()

    def end(self) -> None:
        """They are gone, at once and on all hosts."""
        if self._hung_ns is None:
            self._stop()
        self._are_gone = True

    def close(self) -> None:
        """The simulated time is over: what is under way stays open."""
        if self._cadence is not None and self._hung_ns is None:
            self._cadence.training.end(self._clock.now_ns)

    def _stop(self) -> None:
        """No step is completed any more; the machine hears of the last one."""
        now_ns = self._clock.now_ns
        if self._cadence is None:
            self._write_down_startup(now_ns)
            return
        step, began_ns = self._cadence.training.end(now_ns)
        if began_ns is not None:
            self._setting.story.add(StepsFact(self.attempt, step + 1, step + 1, began_ns, None))
        if step > self._resume.step:
            self._say(news.Progress(now_ns, 0, step))

    # --- beneath all of that ----------------------------------------------------------------

    def _say(self, what: news.Event) -> None:
        self._feed(ev.Heard(self._clock.now_ns, self.attempt, what))

    def _after(self, delay_ns: int, do: Callable[[], None], *, beside: bool = False) -> None:
        """Do this later, if they are still there and do not hang; `beside`: though they hang."""

        def if_alive() -> None:
            if not self._are_gone and (beside or self._hung_ns is None):
                do()

        self._clock.at(self._clock.now_ns + delay_ns, if_alive)


def _before_an_end(saving: Saving, now_ns: int, until_ns: int) -> tuple[int, int]:
    """Up to when saves are ordered, and folded: before an announced end none is to be durable.

    Copies to memory go on meanwhile.
    """
    held_ns = saving.held_from_ns
    if held_ns is None:
        return until_ns, until_ns
    held_ns = min(until_ns, held_ns)
    if not saving.tier.is_there:
        return held_ns, held_ns
    return until_ns, held_ns if now_ns < held_ns else until_ns
