"""The run's state machine: what the controller does about each event, as one table.

    machine = RunMachine(RunPolicy(ranks=2))
    for action in machine.handle(event): ...

`TABLE` is the whole of it: a pair (state, event type) that is not in it is a bug, and raises
InvalidTransition with the story so far, unless the event is in `LATE`: what a dying attempt may
still say after its fate is settled. The agent, the simulator and the replay of a journal drive
this very class. Deterministic: integers in, no clock, no randomness.

The saves inside a running attempt are `core.saving`'s; here is its life and death.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from holdfast.core import actions as act
from holdfast.core import agree_events, exits, records, restart, rollback
from holdfast.core import events as ev
from holdfast.core.absence import Absence
from holdfast.core.ending import Ending, Verdict, exit_code
from holdfast.core.hang_watch import HangWatch
from holdfast.core.keeping import Keeping
from holdfast.core.run_state import (
    SECOND_NS,
    InvalidTransition,
    RunPolicy,
    State,
    StopIntent,
    Timer,
)
from holdfast.core.saving import Saving
from holdfast.core.stopping import Stopping
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
)

__all__ = ["LATE", "TABLE", "InvalidTransition", "RunMachine", "RunPolicy", "State", "Timer"]


STOP_NOW_LIMIT_NS = 5 * SECOND_NS  # for a store that does not answer
LAST = "the run ends here"
# What a dying attempt may still say of its saves.
LAST_WORDS = agree_events.Committed | agree_events.Durable | agree_events.Snapped


class RunMachine:
    """Feed events with `handle`; carry out the actions in order."""

    def __init__(self, policy: RunPolicy) -> None:
        self.policy = policy
        self.state = State.NEW
        self.attempt = -1
        self.resume = ev.Resume(None, 0, None)
        self.high_water = 0  # the highest step any attempt completed on all ranks
        self.failures: tuple[restart.Failure, ...] = ()
        self.rollbacks = rollback.Rollbacks()
        self.saving = Saving(policy.ranks, policy.save, memory_policy=policy.save_in_memory)
        self.keeping = Keeping(self.saving, self._carry_out)
        self._absence = Absence(policy.store_patience_ns)
        self.hangs = HangWatch(policy.hang, policy.ranks)
        self._ending = Ending()
        self._stopping = Stopping(policy.leave_limit_ns, policy.margin_ns)
        self._attempt_ended_ns: int | None = None
        self._next_attempt = 0
        self._relayed = False
        self._leaving = False
        self._wake_ns: int | None = None
        self._failures_before = self._losses_before = 0
        self._choice_waits = False  # for a set in memory that is being sealed
        self._finish = act.Finish(EXIT_DONE, "")  # for when nothing in memory is ahead of the disk
        self._high_water_at_launch = 0
        self._launch_failure: ev.LaunchFailed | None = None
        self._story: deque[str] = deque(maxlen=20)

    @property
    def stop(self) -> StopIntent | None:
        """Who wants the run to stop; None: nobody."""
        return self._stopping.intent

    def handle(self, event: ev.Event) -> tuple[act.Action, ...]:
        """The decision on one event. Raises InvalidTransition for one that cannot be."""
        handler = TABLE.get((self.state, type(event)))
        if handler is None:
            if type(event) in LATE and self.state is not State.NEW:
                return ()
            raise InvalidTransition(self.state, event, self._story)
        attempt = getattr(event, "attempt", None)
        if attempt is not None and attempt != self.attempt:
            return ()  # a dead attempt's last words
        before = self.state
        answer = tuple(handler(self, event))
        self._story.append(f"{type(event).__name__} ({before})")
        return answer

    # --- before an attempt runs -------------------------------------------------------------

    def _on_opened(self, event: ev.Opened) -> list[act.Action]:
        """Take over what is known of the run, and ask the store what to restore."""
        self._next_attempt = event.next_attempt
        self.high_water = event.high_water
        self._failures_before = event.failures_seen
        self._losses_before = event.memory_lost
        self.saving.observed_ns = event.observed_ns
        self.rollbacks.add(event.wishes)
        if self.stop:
            return self._over_in_a_gap(event.at_ns, *self._stopping.where_nothing_ran)
        return self._choose(event.at_ns)

    def _choose(self, at_ns: int) -> list[act.Action]:
        """Ask the store; not before what the last attempt has copied into memory is sealed."""
        self.state = State.CHOOSING
        self._choice_waits = self.saving.tier.is_sealing and not self.rollbacks.standing
        if self._choice_waits:
            return [act.SetTimer(Timer.SEAL, at_ns + self.saving.tier.seal_limit_ns)]
        wish, why = self.rollbacks.take_up()
        if wish is None:
            return [act.Choose()]
        which = f" ({why})" if why else ""
        return [act.Say("warning", rollback.wish_words(wish) + which), act.Choose(wish)]

    def _on_chosen(self, event: ev.Chosen) -> list[act.Action]:
        """Launch the next attempt from the chosen set, unless more was wished for meanwhile."""
        if self.rollbacks.is_overtaken:
            return self._choose(event.at_ns)
        self._absence.over()
        self.state = State.LAUNCHING
        self.attempt = self._next_attempt
        self._next_attempt += 1
        self.resume = event.resume
        self._ending = Ending()
        self._relayed = False
        granted, on_record = self.rollbacks.settle()
        if granted is not None:
            self._go_back(granted, event.resume.step)
        # Now, not at Launched: the first of many ranks may show itself before the last is started.
        step, resume = event.resume.durable_step, event.resume
        self.saving.begin(event.at_ns, step, attempt=self.attempt, resume=resume)
        self.saving.failed(self._failures_before + len(self.failures), self._losses)
        self._high_water_at_launch = self.high_water
        self._wake_ns = None
        return [
            act.Say("info", f"attempt {self.attempt}: {event.words}"),
            act.Launch(self.attempt, event.resume, on_record),
        ]

    @property
    def _losses(self) -> int:
        """Failures that took the memory of their host along."""
        lost = exits.ExitCause.HOST_LOST
        return self._losses_before + sum(one.cause is lost for one in self.failures)

    def _go_back(self, wish: rollback.Wish, step: int) -> None:
        """Progress is counted anew; a person's wish begins a new story of failures as well."""
        self.high_water = self.high_water if wish.to is None else step
        if not wish.is_from_script:
            self._failures_before += len(self.failures)
            self.failures = ()

    def _on_choice_failed(self, event: ev.ChoiceFailed) -> list[act.Action]:
        """A store that is away is waited for; without a checkpoint to start from it is over."""
        again_ns, why = self._absence.again(event.at_ns) if event.is_away else (None, "")
        words = f"{event.words}; {why}" if why else event.words
        if again_ns is None:
            return self._over_in_a_gap(event.at_ns, event.exit_code, words)
        self.state = State.WAITING
        said: list[act.Action] = [act.Say("warning", words)] if why else []
        return [*said, act.SetTimer(Timer.RESTART, again_ns)]

    def _on_launched(self, event: ev.Launched) -> list[act.Action]:
        """The attempt runs; a stop that was asked meanwhile begins now."""
        self.state = State.RUNNING
        answer: list[act.Action] = []
        if self._attempt_ended_ns is not None:
            answer.append(records.back_off(self._attempt_ended_ns, event.at_ns))
        answer.append(records.attempt_start(self.attempt, event.at_ns))
        answer += self.hangs.begin(event.at_ns)
        if self._stopping.now is not None:
            self.state = State.DRAINING
            return [*answer, act.Kill(self._stopping.now.source)]
        if self.stop:
            answer += self._begin_stop(self.stop, event.at_ns)
        elif self.rollbacks.asked_by_person:
            answer += self._end_to_go_back()
        return answer

    def _on_launch_failed(self, event: ev.LaunchFailed) -> list[act.Action]:
        """Starting again cannot help; over as soon as nothing is left."""
        self.state = State.DRAINING
        self._launch_failure = event
        return []

    # --- while it runs ----------------------------------------------------------------------

    def _on_joined(self, event: ev.Joined) -> list[act.Action]:
        """A rank's session can be asked from now on, which is better than a signal."""
        self.saving.join(event.rank)
        for gone in self._ending.by_rank.values():
            if gone.exit.code == EXIT_DONE and not gone.exit.has_session:
                return self._on_rank_exited(gone)  # what looked like a plain command was not one
        if self.stop is None or not self._relayed:
            return []
        self._relayed = False
        answer: list[act.Action] = []
        if self.stop.deadline_ns is None:
            answer.append(act.CancelTimer(Timer.DEADLINE))
        return answer + self._begin_stop(self.stop, event.at_ns)

    def _on_heard(self, event: ev.Heard) -> list[act.Action]:
        """News of the saves: what is due is ordered, committed, published."""
        answer = self._carry_out(self.saving.hear(event.news))
        self.high_water = max(self.high_water, self.saving.slowest_step)
        answer += self.keeping.drain_if_due(event.at_ns)
        if self.saving.slowest_step > self.resume.step:
            self.hangs.stepped(event.at_ns)
        return answer + self._after_saving(event.at_ns)

    def _on_save_took(self, event: ev.SaveTook) -> list[act.Action]:
        """The measured cost of a copy: the save policy wants to know it."""
        self.saving.note_cost(event.blocked_ns)
        return []

    def _on_save_asked(self, event: ev.SaveAsked) -> list[act.Action]:
        """Order a save at the next boundary that all ranks can answer."""
        answer = self._carry_out(self.saving.ask(event.at_ns, event.source, in_step=event.in_step))
        return answer + self._after_saving(event.at_ns)

    def _carry_out(self, actions: tuple[agree_events.Action, ...]) -> list[act.Action]:
        deadline_ns = self._stopping.deadline_ns
        return [
            act.Seal(self.attempt, action.epoch, action.step, action.buffer)
            if isinstance(action, agree_events.Seal)
            else act.CarryOut(self.attempt, action, deadline_ns)
            for action in actions
        ]

    def _after_saving(self, at_ns: int) -> list[act.Action]:
        """Keep the saves' timer right, and see to it that ranks which may leave do leave."""
        wake_ns = self.saving.wake_at_ns
        answer: list[act.Action] = []
        if wake_ns != self._wake_ns:
            self._wake_ns = wake_ns
            timer = Timer.SAVES
            if wake_ns is None:
                answer.append(act.CancelTimer(timer))
            else:
                answer.append(act.SetTimer(timer, wake_ns))
        if self.saving.is_over and self.stop is not None and not self._leaving:
            self._leaving = True
            answer.append(act.SetTimer(Timer.LEAVE, self._stopping.leave_limit_ns(at_ns)))
        return answer

    @property
    def _is_told_to_leave(self) -> bool:
        return self.stop is not None and (self._relayed or self.saving.is_over)

    def _on_rank_exited(self, event: ev.RankExited) -> list[act.Action]:
        """The first loss ends the attempt; a rank that is done, or was told to leave, is none."""
        if self.saving.joined:  # then its peers have sessions, and so had it, or would have had
            event = replace(event, exit=replace(event.exit, has_session=True))
        self._ending.by_rank[event.rank] = event
        cause, words = exits.classify(event.exit)
        if cause is exits.ExitCause.DONE:
            return []  # the others are on their way; TreeGone settles it
        if self._is_told_to_leave:
            return []  # told to leave: how it does that is its own affair
        if cause is exits.ExitCause.STOPPED:
            return self._on_rank_stopped(event)
        self.state = State.DRAINING
        self._ending.is_faulty = True
        who = f"rank {event.rank}: " if self.policy.ranks > 1 else ""
        return [
            records.fault(event, cause),
            act.Say("warning", f"{who}{words}"),
            act.Kill("a rank was lost"),
        ]

    def _on_rank_stopped(self, event: ev.RankExited) -> list[act.Action]:
        """It left in peace, before it was told to or instead of saving: nobody waits for it."""
        if len(self._ending.by_rank) == self.policy.ranks:
            return []
        answer: list[act.Action] = []
        if self.stop is None:
            answer += self._begin_stop(self._stopping.note_left(event.rank), event.at_ns)
        if self.state is State.RUNNING and not self._relayed:
            gone = agree_events.RankGone(event.at_ns, event.rank)
            answer += self._carry_out(self.saving.hear(gone)) + self._after_saving(event.at_ns)
        return answer

    def _on_rank_exited_while_draining(self, event: ev.RankExited) -> list[act.Action]:
        """Kept for the verdict on why the attempt ended."""
        self._ending.by_rank.setdefault(event.rank, event)
        return []

    def _on_heard_while_draining(self, event: ev.Heard) -> list[act.Action]:
        """A set that all have copied or written is still completed while its writers die."""
        if not isinstance(event.news, LAST_WORDS):
            return []
        return self._carry_out(self.saving.hear_last_words(event.news))

    # --- the memory tier --------------------------------------------------------------------

    def _on_buffers_ready(self, event: ev.BuffersReady) -> list[act.Action]:
        """A rank can copy into memory that outlives it."""
        self.saving.tier.has(event.rank, event.buffers)
        return []

    def _on_tier(self, event: ev.TierEvent) -> list[act.Action]:
        """A set in memory is sealed, or was drained, or was not: whoever waits for it goes on."""
        is_running = self.state is State.RUNNING
        answer = self.keeping.hear(event, is_running=is_running)
        if is_running:
            if isinstance(event, ev.Sealed):  # after the stop was asked for
                answer += self._drain_before_leaving(event.at_ns)
            return answer + self._after_saving(event.at_ns)
        if self._choice_waits and not self.saving.tier.is_sealing:
            return [*answer, act.CancelTimer(Timer.SEAL), *self._choose(event.at_ns)]
        if self.state is State.KEEPING:
            if not isinstance(event, ev.DrainFailed | ev.DrainCommitFailed):
                answer += self.keeping.drain_newest(event.at_ns, LAST)
            if not self.keeping.is_pending:
                answer += self._finished()
        return answer

    def _on_seal_timer(self, event: ev.TimerFired) -> list[act.Action]:
        """What is being sealed has kept the next attempt waiting long enough."""
        if event.timer != Timer.SEAL or not self._choice_waits:
            return []
        self.saving.tier.give_up_seals()
        return self._choose(event.at_ns)

    def _on_keep_timer(self, event: ev.TimerFired) -> list[act.Action]:
        """What is in memory could not be made durable in time: it stays there."""
        return self._finished() if event.timer == Timer.KEEP else []

    def _on_stop_asked_while_keeping(self, event: ev.StopAsked) -> list[act.Action]:
        """The run is over already; there may be a deadline now."""
        if event.deadline_ns is None:
            return []
        return [act.SetTimer(Timer.KEEP, event.deadline_ns)]

    def _on_stop_now_while_keeping(self, event: ev.StopNowAsked) -> list[act.Action]:
        """What is in memory stays there."""
        return [self._stopping.note_now(event), *self._finished()]

    def _on_host_lost(self, event: ev.HostLost) -> list[act.Action]:
        """Processes survive SIGKILL: the attempt is over, and this host with it."""
        self._ending.host_lost = True
        return [act.Say("error", event.words), *self._on_tree_gone(event)]

    # --- going back -------------------------------------------------------------------------

    def _on_rollback_asked(self, event: ev.RollbackAsked) -> list[act.Action]:
        """End the attempt without a save, and start from where a person wants it to."""
        if not self.rollbacks.add((event.wish,)):
            return []
        said = act.Say("warning", f"asked to go {rollback.wish_words(event.wish)}")
        if self.stop is not None:
            return [said, act.Say("warning", "the run is stopping: its next start goes back")]
        if self.state is State.RUNNING:
            return [said, *self._end_to_go_back()]
        if self.state is State.WAITING:
            return [said, act.CancelTimer(Timer.RESTART), *self._choose(event.at_ns)]
        return [said]  # as soon as the store has answered, the ranks run, or all are gone

    def _end_to_go_back(self) -> list[act.Action]:
        self.state = State.DRAINING
        self._ending.gone_back, _ = rollback.prevailing(self.rollbacks.standing)
        return [act.Kill("the run goes back")]

    # --- stopping ---------------------------------------------------------------------------

    def _on_stop_asked(self, event: ev.StopAsked) -> list[act.Action]:
        """Save and leave, by the earliest deadline; where nothing runs, the run is over."""
        first = self.stop is None
        answer = self._stopping.note(event, is_running=self.state is State.RUNNING)
        if self.state in (State.CHOOSING, State.WAITING):
            return answer + self._over_in_a_gap(event.at_ns, *self._stopping.where_nothing_ran)
        is_asked = self.saving.is_active and not self.saving.is_over
        if self.stop and self.state is State.RUNNING and (first or is_asked):
            return answer + self._begin_stop(self.stop, event.at_ns)
        return answer

    def _begin_stop(self, stop: StopIntent, at_ns: int) -> list[act.Action]:
        return self._drain_before_leaving(at_ns) + self._ask_to_leave(stop, at_ns)

    def _drain_before_leaving(self, at_ns: int) -> list[act.Action]:
        """With a deadline what is in memory is drained first: that much is safe in any case."""
        if self.stop is None or self.stop.deadline_ns is None:
            return []
        return self.keeping.drain_newest(at_ns, self.stop.source)

    def _ask_to_leave(self, stop: StopIntent, at_ns: int) -> list[act.Action]:
        if not self.saving.joined:
            # No session has shown itself: a plain program, or one that is still importing. The
            # signal is all it can understand, and an import has nothing to lose.
            self._relayed = True
            limit_ns = stop.deadline_ns or at_ns + self.policy.relay_limit_ns
            return [act.Relay(stop.source), act.SetTimer(Timer.DEADLINE, limit_ns)]
        if self.saving.agreement.is_saved and not self.saving.is_ended:
            self.state = State.DRAINING
            return [
                act.Say("info", "no step since the last checkpoint: leaving without saving"),
                act.Kill(stop.source),
            ]
        actions = self.saving.stop(at_ns, stop.source, self._stopping.leave_by_ns(at_ns))
        return self._carry_out(actions) + self._after_saving(at_ns)

    def _on_stop_now(self, event: ev.StopNowAsked) -> list[act.Action]:
        """End every process; where nothing runs, the run is over."""
        answer = [self._stopping.note_now(event)]
        if self.state in (State.RUNNING, State.DRAINING):
            self.state = State.DRAINING
            return [*answer, act.Kill(event.source)]
        if self.state is State.NEW:
            return answer  # as soon as there is something to end
        if self.state is State.LAUNCHING:  # the same, unless the store keeps us waiting
            return [*answer, act.SetTimer(Timer.LEAVE, event.at_ns + STOP_NOW_LIMIT_NS)]
        return answer + self._over_in_a_gap(event.at_ns, *self._stopping.where_nothing_ran)

    def _on_timer(self, event: ev.TimerFired) -> list[act.Action]:
        """Time has passed: for the saves, or for ranks that should be gone."""
        if event.timer == Timer.SAVES:
            self._wake_ns = None
            answer = self._carry_out(self.saving.hear(agree_events.Tick(event.at_ns)))
            return answer + self._after_saving(event.at_ns)
        if event.timer in (Timer.DEADLINE, Timer.LEAVE):
            self.state = State.DRAINING
            late = "the deadline came" if event.timer == Timer.DEADLINE else "ranks did not leave"
            return [act.Say("warning", f"{late}: ending them"), act.Kill(late)]
        return [act.Examine(self.attempt)] if event.timer == Timer.HANG else []

    def _on_examined(self, event: ev.Examined) -> list[act.Action]:
        """Tell a hang from slow steps; when it is certain, end the attempt."""
        if self._is_told_to_leave:
            return []  # there are limits for that
        answer = self.hangs.examined(
            event,
            gone=self._ending.by_rank,
            reached=self.high_water,
            is_writing=self.saving.is_writing,
        )
        if self.hangs.verdict is not None:
            self.state = State.DRAINING
            self._ending.is_faulty = True
        return answer

    def _on_stacks_collected(self, event: ev.StacksCollected) -> list[act.Action]:
        """Look once more: it may have gone on meanwhile."""
        return self.hangs.collected(event)

    def _on_suspended(self, event: ev.Suspended) -> list[act.Action]:
        """The ranks could not run, so nothing was late: their limits start anew."""
        answer = self.hangs.suspended(event)
        if self._leaving and self.stop is not None:
            answer.append(act.SetTimer(Timer.LEAVE, self._stopping.leave_limit_ns(event.at_ns)))
        return answer

    def _on_timer_while_launching(self, event: ev.TimerFired) -> list[act.Action]:
        """Told to stop now, and the store has not put the attempt on record: nobody waits for it.

        Should its ranks be there after all, they end with the supervisor.
        """
        now = self._stopping.now
        if event.timer != Timer.LEAVE or now is None:
            return []
        words = f"{now.source}; the run store does not answer"
        return self._over_in_a_gap(event.at_ns, self._stopping.exit_code, words)

    def _on_restart_timer(self, event: ev.TimerFired) -> list[act.Action]:
        """The back-off is over."""
        return self._choose(event.at_ns) if event.timer == Timer.RESTART else []

    # --- the end of an attempt --------------------------------------------------------------

    def _on_tree_gone(self, event: ev.TreeGone | ev.HostLost) -> list[act.Action]:
        """Nothing is left of the attempt: name the cause, then end, restart, wait or give up."""
        failed = self._launch_failure
        if failed is None:
            return self._settle(event.at_ns)
        answer: list[act.Action] = []
        if failed.is_on_record:
            is_command = failed.exit_code == EXIT_CONFIGURATION
            cause = exits.ExitCause.CONFIGURATION if is_command else exits.ExitCause.HOST_LOST
            end = act.EndAttempt(self.attempt, exits.HISTORY_CAUSE[cause], failed.words, None, True)
            answer.append(end)
        return answer + self._over_in_a_gap(event.at_ns, failed.exit_code, failed.words)

    def _settle(self, at_ns: int) -> list[act.Action]:
        saved = self.saving.what_is_saved
        verdict = self._ending.verdict(self.hangs.verdict, self.stop, saved)
        cause, words, rank, _ = verdict
        ends = [(gone.rank, gone.exit) for gone in self._ending.by_rank.values()]
        asks = self.rollbacks.add(rollback.wishes_of(self.attempt, ends))
        self._attempt_ended_ns = at_ns
        self.saving.end(at_ns)
        done = cause is exits.ExitCause.DONE
        answer: list[act.Action] = [act.CancelTimer(timer) for timer in Timer]
        answer.append(records.attempt_end(self.attempt, at_ns, cause))
        history_cause = exits.HISTORY_CAUSE[cause]
        answer.append(act.EndAttempt(self.attempt, history_cause, words, rank, not done))
        if done:
            answer.append(records.run_end(at_ns))
            return answer + self._over(at_ns, EXIT_DONE, "done")
        if self.stop is not None or cause is exits.ExitCause.STOPPED:
            fault = words if self._ending.is_faulty else None
            return answer + self._over(
                at_ns, self._stopping.exit_code, self._stopping.last_words(saved, fault)
            )
        if self.rollbacks.asked_by_person:  # who has looked, and knows what to do next
            return answer + self._choose(at_ns)
        return answer + self._restart(at_ns, verdict, asks)

    def _restart(self, at_ns: int, verdict: Verdict, asks: bool) -> list[act.Action]:
        failure = restart.Failure(
            attempt=self.attempt,
            cause=verdict.cause,
            signature=verdict.signature,
            completed_before=rollback.progress_from(
                self.failures, self._high_water_at_launch, asks=asks
            ),
            completed_after=self.high_water,
            at_ns=at_ns,
            asked_rollback=asks,
        )
        self.failures = (*self.failures, failure)
        decision, reason = self.policy.restart.decide(self.failures, at_ns)
        if isinstance(decision, restart.GiveUp):
            return self._over(at_ns, exit_code(verdict.cause), f"{verdict.words}; {reason}")
        if decision.delay_ns == 0:
            return [act.Say("info", f"restarting: {reason}"), *self._choose(at_ns)]
        self.state = State.WAITING
        return [
            act.Say("info", f"restarting in {decision.delay_ns / SECOND_NS:.1f} s: {reason}"),
            act.SetTimer(Timer.RESTART, at_ns + decision.delay_ns),
        ]

    def _over_in_a_gap(self, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
        """No attempt runs; if one did, the time since then was ours."""
        since_ns = self._attempt_ended_ns
        gap = [] if since_ns is None else [records.back_off(since_ns, at_ns)]
        return [*gap, *self._over(at_ns, exit_code, words)]

    def _over(self, at_ns: int, exit_code: int, words: str) -> list[act.Action]:
        """The end, but for what is only in memory: that is made durable first."""
        self._finish, self._choice_waits = act.Finish(exit_code, words), False
        answer = [] if self._stopping.now else self.keeping.drain_newest(at_ns, LAST)
        if self._stopping.now or not self.keeping.is_pending:
            return self._finished()
        self.state = State.KEEPING
        limit_ns = self._stopping.deadline_ns or at_ns + self.policy.store_patience_ns
        words = "what is in memory is taken to the run store"
        return [act.Say("info", words), act.SetTimer(Timer.KEEP, limit_ns), *answer]

    def _finished(self) -> list[act.Action]:
        """Nothing happens any more."""
        was_kept, self.state = self.state is State.KEEPING, State.OVER
        return [self.keeping.last_words(self._finish, was_kept=was_kept)]


Handler = Callable[[RunMachine, Any], list[act.Action]]

TABLE: dict[tuple[State, type[ev.Event]], Handler] = {
    (State.NEW, ev.Opened): RunMachine._on_opened,
    (State.NEW, ev.StopAsked): RunMachine._on_stop_asked,
    (State.NEW, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.NEW, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.CHOOSING, ev.Chosen): RunMachine._on_chosen,
    (State.CHOOSING, ev.ChoiceFailed): RunMachine._on_choice_failed,
    (State.CHOOSING, ev.StopAsked): RunMachine._on_stop_asked,
    (State.CHOOSING, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.CHOOSING, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.LAUNCHING, ev.Joined): RunMachine._on_joined,
    (State.LAUNCHING, ev.Heard): RunMachine._on_heard,
    (State.LAUNCHING, ev.SaveTook): RunMachine._on_save_took,
    (State.LAUNCHING, ev.BuffersReady): RunMachine._on_buffers_ready,
    (State.LAUNCHING, ev.Launched): RunMachine._on_launched,
    (State.LAUNCHING, ev.LaunchFailed): RunMachine._on_launch_failed,
    (State.LAUNCHING, ev.StopAsked): RunMachine._on_stop_asked,
    (State.LAUNCHING, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.LAUNCHING, ev.TimerFired): RunMachine._on_timer_while_launching,
    (State.LAUNCHING, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.RUNNING, ev.Joined): RunMachine._on_joined,
    (State.RUNNING, ev.Heard): RunMachine._on_heard,
    (State.RUNNING, ev.SaveTook): RunMachine._on_save_took,
    (State.RUNNING, ev.SaveAsked): RunMachine._on_save_asked,
    (State.RUNNING, ev.RankExited): RunMachine._on_rank_exited,
    (State.RUNNING, ev.TreeGone): RunMachine._on_tree_gone,
    (State.RUNNING, ev.HostLost): RunMachine._on_host_lost,
    (State.RUNNING, ev.StopAsked): RunMachine._on_stop_asked,
    (State.RUNNING, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.RUNNING, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.RUNNING, ev.TimerFired): RunMachine._on_timer,
    (State.RUNNING, ev.Examined): RunMachine._on_examined,
    (State.RUNNING, ev.StacksCollected): RunMachine._on_stacks_collected,
    (State.RUNNING, ev.Suspended): RunMachine._on_suspended,
    (State.RUNNING, ev.BuffersReady): RunMachine._on_buffers_ready,
    (State.DRAINING, ev.Heard): RunMachine._on_heard_while_draining,
    (State.DRAINING, ev.RankExited): RunMachine._on_rank_exited_while_draining,
    (State.DRAINING, ev.TreeGone): RunMachine._on_tree_gone,
    (State.DRAINING, ev.HostLost): RunMachine._on_host_lost,
    (State.DRAINING, ev.StopAsked): RunMachine._on_stop_asked,
    (State.DRAINING, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.DRAINING, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.CHOOSING, ev.TimerFired): RunMachine._on_seal_timer,
    (State.WAITING, ev.TimerFired): RunMachine._on_restart_timer,
    (State.WAITING, ev.StopAsked): RunMachine._on_stop_asked,
    (State.WAITING, ev.StopNowAsked): RunMachine._on_stop_now,
    (State.WAITING, ev.RollbackAsked): RunMachine._on_rollback_asked,
    (State.KEEPING, ev.TimerFired): RunMachine._on_keep_timer,
    (State.KEEPING, ev.StopAsked): RunMachine._on_stop_asked_while_keeping,
    (State.KEEPING, ev.StopNowAsked): RunMachine._on_stop_now_while_keeping,
}

TIER_EVENTS: tuple[type[ev.Event], ...] = get_args(ev.TierEvent)
TABLE.update(
    ((state, kind), RunMachine._on_tier)
    for state in State
    if state not in (State.NEW, State.OVER)
    for kind in TIER_EVENTS
)

# News that may cross with the end of what it is about; anything else outside TABLE is a bug.
LATE: frozenset[type[ev.Event]] = frozenset(
    {
        ev.Joined,
        ev.Heard,
        ev.SaveTook,
        ev.SaveAsked,
        ev.RankExited,
        ev.TreeGone,
        ev.HostLost,
        ev.StopAsked,
        ev.StopNowAsked,
        ev.RollbackAsked,
        ev.TimerFired,
        ev.Examined,
        ev.StacksCollected,
        ev.Suspended,
        ev.Chosen,
        ev.ChoiceFailed,
        ev.BuffersReady,
        *TIER_EVENTS,
    }
)
