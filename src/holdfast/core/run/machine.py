"""The run's state machine: what the controller does about each event, as one table.

    machine = RunMachine(RunPolicy(ranks=2))
    for action in machine.handle(event): ...

`TABLE` is the whole of it: a pair (state, event type) that is not in it is a bug, and raises
InvalidTransition with the story so far, unless the event is in `LATE`: what a dying attempt may
still say after its fate is settled. The agent, the simulator and the replay of a journal drive
this very class. Deterministic: integers in, no clock, no randomness.

The handlers stand by when they are wanted, and none knows of those after it: `over`,
`before` (an attempt), `saves`, `stops`, `notices`, `during`, `after`. What they share is
`course.RunState`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, get_args

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.order import ATTENTION, Attention
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.notices.watch import NoticeWatch
from holdfast.core.plain_json import copied
from holdfast.core.run import after, before, during, notices, over, restart, saves, stops
from holdfast.core.run.course import RunState
from holdfast.core.run.state import InvalidTransition, RunPolicy, State, StopIntent, Timer
from holdfast.core.save.flushing import TierFlushing
from holdfast.core.save.saving import Saving

__all__ = ["LATE", "TABLE", "InvalidTransition", "RunMachine", "RunPolicy", "State", "Timer"]


class RunMachine:
    """Feed events with `handle`; carry out the actions in order."""

    def __init__(self, policy: RunPolicy) -> None:
        self._run = RunState.start(policy)
        self._story: deque[tuple[type[ev.Event], State]] = deque(maxlen=20)

    @classmethod
    def of(cls, course: RunState) -> RunMachine:
        """One that goes on from what was remembered."""
        machine = cls.__new__(cls)
        machine._run, machine._story = course, deque(maxlen=20)
        return machine

    @property
    def course(self) -> RunState:
        """All that it remembers: copied, compared, or written down (`core.run.state_json`)."""
        return self._run

    def copy(self) -> RunMachine:
        """Another one, which goes on from here apart from this one."""
        return RunMachine.of(copied(self._run))

    def handle(self, event: ev.Event) -> tuple[act.Action, ...]:
        """The decision on one event. Raises InvalidTransition for one that cannot be."""
        run = self._run
        state, kind = run.state, type(event)
        handler = TABLE.get((state, kind))
        if handler is None:
            if kind in LATE and state is not State.NEW:
                return ()
            story = (f"{before.__name__} ({where})" for before, where in self._story)
            raise InvalidTransition(state, event, story)
        attempt = getattr(event, "attempt", None)
        if attempt is not None and attempt != run.attempt:
            return ()  # a dead attempt's last words
        answer = handler(run, event)
        answer += after.stand_by(run, answer, event.at_ns)
        self._story.append((kind, state))
        return tuple(answer)

    # --- what others want to know -----------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the run is in its life under this controller."""
        return self._run.state

    @property
    def attempt(self) -> int:
        """The newest attempt; -1 before the first."""
        return self._run.attempt

    @property
    def resume(self) -> ev.Resume:
        """What the newest attempt was started from."""
        return self._run.resume

    @property
    def high_water(self) -> int:
        """The highest step any attempt completed on all ranks."""
        return self._run.high_water

    @property
    def failures(self) -> tuple[restart.Failure, ...]:
        """Those that the next restart is judged by."""
        return self._run.failures

    @property
    def failures_seen(self) -> int:
        """All failures of the run, those under earlier controllers too."""
        return self._run.failures_seen

    @property
    def stop(self) -> StopIntent | None:
        """Who wants the run to stop; None: nobody."""
        return self._run.stop

    @property
    def attention(self) -> Attention:
        """How closely the ranks are to be looked at."""
        run = self._run
        stop = run.stopping.intent
        known = ATTENTION[run.saving.is_active, stop is not None]
        if stop is None or stop.deadline_ns is None:
            return known
        return known._replace(deadline_ns=stop.deadline_ns)

    @property
    def saving(self) -> Saving:
        """The saves of the newest attempt."""
        return self._run.saving

    @property
    def notices(self) -> NoticeWatch:
        """What is announced to the run, and when it acts on that."""
        return self._run.notices

    @property
    def flushing(self) -> TierFlushing:
        """What becomes of sets in memory."""
        return self._run.flushing

    @property
    def standby(self) -> StandbyOrder:
        """What the processes that wait for the next attempt are to do."""
        return self._run.standby

    @property
    def is_held(self) -> bool:
        """Whether all steps are done, and the store has not taken the last one yet."""
        run = self._run
        return run.holding.until_ns is not None and not run.saving.agreement.is_saved


Handler = Callable[[RunState, Any], list[act.Action]]

TABLE: dict[tuple[State, type[ev.Event]], Handler] = {
    (State.NEW, ev.Opened): before.on_opened,
    (State.NEW, ev.StopAsked): stops.on_stop_asked,
    (State.NEW, ev.StopNowAsked): stops.on_stop_now,
    (State.NEW, ev.Interrupted): stops.on_interrupted,
    (State.NEW, ev.Noticed): notices.on_noticed,
    (State.NEW, ev.RollbackAsked): stops.on_rollback_asked,
    (State.NEW, ev.TimerFired): before.on_deadline_timer,
    (State.CHOOSING, ev.SetsSeen): before.on_sets_seen,
    (State.CHOOSING, ev.Chosen): before.on_chosen,
    (State.CHOOSING, ev.ChoiceFailed): before.on_choice_failed,
    (State.CHOOSING, ev.StopAsked): stops.on_stop_asked,
    (State.CHOOSING, ev.StopNowAsked): stops.on_stop_now,
    (State.CHOOSING, ev.Interrupted): stops.on_interrupted,
    (State.CHOOSING, ev.Noticed): notices.on_noticed,
    (State.CHOOSING, ev.RollbackAsked): stops.on_rollback_asked,
    (State.LAUNCHING, ev.Joined): during.on_joined,
    (State.LAUNCHING, ev.Heard): saves.on_heard,
    (State.LAUNCHING, ev.SaveTook): saves.on_save_took,
    (State.LAUNCHING, ev.BuffersReady): saves.on_buffers_ready,
    (State.LAUNCHING, ev.SetRefused): before.on_set_refused,
    (State.LAUNCHING, ev.OnRecord): before.on_record,
    (State.LAUNCHING, ev.Launched): during.on_launched,
    (State.LAUNCHING, ev.LaunchFailed): before.on_launch_failed,
    (State.LAUNCHING, ev.StopAsked): stops.on_stop_asked,
    (State.LAUNCHING, ev.StopNowAsked): stops.on_stop_now,
    (State.LAUNCHING, ev.Interrupted): stops.on_interrupted,
    (State.LAUNCHING, ev.Noticed): notices.on_noticed,
    (State.LAUNCHING, ev.TimerFired): notices.or_notice(before.on_timer_while_launching),
    (State.LAUNCHING, ev.RollbackAsked): stops.on_rollback_asked,
    (State.LAUNCHING, ev.Suspended): stops.on_suspended_while_launching,
    (State.RUNNING, ev.Joined): during.on_joined,
    (State.RUNNING, ev.Heard): during.on_heard,
    (State.RUNNING, ev.SaveTook): saves.on_save_took,
    (State.RUNNING, ev.SaveAsked): saves.on_save_asked,
    (State.RUNNING, ev.RankExited): during.on_rank_exited,
    (State.RUNNING, ev.TreeGone): after.on_tree_gone,
    (State.RUNNING, ev.HostLost): after.on_host_lost,
    (State.RUNNING, ev.StopAsked): stops.on_stop_asked,
    (State.RUNNING, ev.StopNowAsked): stops.on_stop_now,
    (State.RUNNING, ev.Interrupted): stops.on_interrupted,
    (State.RUNNING, ev.Noticed): notices.on_noticed,
    (State.RUNNING, ev.RollbackAsked): stops.on_rollback_asked,
    (State.RUNNING, ev.TimerFired): notices.or_notice(during.on_timer),
    (State.RUNNING, ev.Examined): during.on_examined,
    (State.RUNNING, ev.StacksCollected): during.on_stacks_collected,
    (State.RUNNING, ev.Suspended): during.on_suspended,
    (State.RUNNING, ev.BuffersReady): saves.on_buffers_ready,
    (State.KILLING, ev.Heard): saves.on_heard_while_killing,
    (State.KILLING, ev.RankExited): during.on_rank_exited_while_killing,
    (State.KILLING, ev.TreeGone): after.on_tree_gone,
    (State.KILLING, ev.HostLost): after.on_host_lost,
    (State.KILLING, ev.StopAsked): stops.on_stop_asked,
    (State.KILLING, ev.StopNowAsked): stops.on_stop_now,
    (State.KILLING, ev.Interrupted): stops.on_interrupted,
    (State.KILLING, ev.Noticed): notices.on_noticed,
    (State.KILLING, ev.RollbackAsked): stops.on_rollback_asked,
    (State.KILLING, ev.TimerFired): notices.or_notice(notices.on_timer_while_killing),
    (State.CHOOSING, ev.TimerFired): notices.or_notice(before.on_seal_timer),
    (State.WAITING, ev.TimerFired): notices.or_notice(before.on_restart_timer),
    (State.WAITING, ev.StopAsked): stops.on_stop_asked,
    (State.WAITING, ev.StopNowAsked): stops.on_stop_now,
    (State.WAITING, ev.Interrupted): stops.on_interrupted,
    (State.WAITING, ev.Noticed): notices.on_noticed,
    (State.WAITING, ev.RollbackAsked): stops.on_rollback_asked,
    (State.FLUSHING, ev.TimerFired): over.on_flush_timer,
    (State.FLUSHING, ev.StopAsked): over.on_stop_asked_while_flushing,
    (State.FLUSHING, ev.Noticed): notices.on_noticed_while_flushing,
    (State.FLUSHING, ev.StopNowAsked): over.on_stop_now_while_flushing,
    (State.FLUSHING, ev.Interrupted): over.on_interrupted_while_flushing,
}

TIER_EVENTS: tuple[type[ev.Event], ...] = get_args(ev.TierEvent)
TABLE.update(
    ((state, kind), saves.on_tier)
    for state in State
    if state not in (State.NEW, State.OVER)
    for kind in TIER_EVENTS
)

# News that may cross with the end of what it is about; anything else outside TABLE is a bug.
LATE: frozenset[type[ev.Event]] = frozenset(
    {
        ev.SetRefused,
        ev.OnRecord,
        ev.Joined,
        ev.Heard,
        ev.SaveTook,
        ev.SaveAsked,
        ev.RankExited,
        ev.TreeGone,
        ev.HostLost,
        ev.StopAsked,
        ev.StopNowAsked,
        ev.Interrupted,
        ev.Noticed,
        ev.RollbackAsked,
        ev.TimerFired,
        ev.Examined,
        ev.StacksCollected,
        ev.Suspended,
        ev.SetsSeen,
        ev.Chosen,
        ev.ChoiceFailed,
        ev.BuffersReady,
        *TIER_EVENTS,
    }
)
