"""The run's state machine: what the controller does about each event, as one table.

    machine = RunMachine(RunPolicy(ranks=2))
    for action in machine.handle(event): ...

`TABLE` is the whole of it: what is heard in which state, what is done about it, and to which
states that may lead; else the state stays. An event that is not there is a bug, and raises
InvalidTransition with the story so far, unless it is in `LATE`: what a dying attempt may still say
after its fate is settled. The agent, the simulator and the replay of a journal drive this very
class. Deterministic: integers in, no clock, no randomness.

The handlers stand by when they are wanted, and none knows of those after it: `over`,
`before` (an attempt), `saves`, `stops`, `replicas`, `notices`, `during`, `after`. What they share
is `course.RunState`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_args

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.order import CALM, SAVING, Attention
from holdfast.core.notices.watch import NoticeWatch
from holdfast.core.plain_json import copied
from holdfast.core.run import (
    after,
    before,
    during,
    notices,
    over,
    replicas,
    restart,
    saves,
    stops,
)
from holdfast.core.run.course import RunState
from holdfast.core.run.state import RunPolicy, State, Timer
from holdfast.core.run.stopping import StopIntent
from holdfast.core.save.saving import Saving

__all__ = ["LATE", "TABLE", "InvalidTransition", "RunMachine", "RunPolicy", "State", "Timer"]


class InvalidTransition(Exception):  # noqa: N818 - the field's name for it
    """An event that cannot happen in this state; carries the story."""

    def __init__(self, state: State, event: ev.Event, story: Iterable[str]) -> None:
        super().__init__(f"{type(event).__name__} in state {state}; before it: {' → '.join(story)}")


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
        """All that it remembers: plain parts, which can be copied and compared."""
        return self._run

    def copy(self) -> RunMachine:
        """Another one, which goes on from here apart from this one."""
        return RunMachine.of(copied(self._run))

    def handle(self, event: ev.Event) -> tuple[act.Action, ...]:
        """The decision on one event. Raises InvalidTransition for one that cannot be."""
        run = self._run
        state, kind = run.state, type(event)
        row = TABLE[state].get(kind)
        if row is None:
            if kind in LATE and state is not State.NEW:
                return ()
            story = (f"{before.__name__} ({where})" for before, where in self._story)
            raise InvalidTransition(state, event, story)
        attempt = getattr(event, "attempt", None)
        if attempt is not None and attempt != run.attempt:
            return ()  # a dead attempt's last words
        answer = row.handle(run, event)
        if run.policy.has_standbys:
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
        stop, is_saving = run.stopping.intent, run.saving.agreement.is_active
        if stop is None:
            return SAVING if is_saving else CALM
        is_notice = stop.notice and not run.stopping.is_by_person
        return Attention(is_saving, True, stop.deadline_ns, stop.source, is_notice)

    @property
    def saving(self) -> Saving:
        """The saves of the newest attempt."""
        return self._run.saving

    @property
    def notices(self) -> NoticeWatch:
        """What is announced to the run, and when it acts on that."""
        return self._run.notices

    @property
    def saving_words(self) -> str:
        """How often is saved to which tier, and why, as last said; empty: only to one."""
        return self._run.said_frequency.words

    @property
    def is_held(self) -> bool:
        """Whether all steps are done, and the store has not taken the last one yet."""
        run = self._run
        return run.holding.until_ns is not None and not run.saving.agreement.is_saved


TIER_EVENTS: tuple[type[ev.Event], ...] = get_args(ev.TierEvent)

NEW, CHOOSING, LAUNCHING, RUNNING, KILLING, WAITING, FLUSHING, OVER = State
ENDS = (FLUSHING, OVER)
AFTER = (CHOOSING, WAITING, *ENDS)  # an attempt


class Transition(NamedTuple):
    """What is done about an event in a state, and where that may lead, if anywhere else."""

    handle: Callable[[RunState, Any], list[act.Action]]
    to: tuple[State, ...] = ()


TIER = dict.fromkeys(TIER_EVENTS, Transition(saves.on_tier))
COMPARED: dict[type[ev.Event], Transition] = {
    ev.Sealed: Transition(replicas.on_sealed),
    ev.Compared: Transition(replicas.on_compared),
}
TABLE: dict[State, dict[type[ev.Event], Transition]] = {
    NEW: {
        ev.Opened: Transition(before.on_opened, (CHOOSING, LAUNCHING, OVER)),
        ev.SaveAsked: Transition(saves.on_save_asked_in_a_gap),
        ev.StopAsked: Transition(stops.on_stop_asked),
        ev.StopNowAsked: Transition(stops.on_stop_now, (OVER,)),
        ev.Interrupted: Transition(stops.on_interrupted, (OVER,)),
        ev.Noticed: Transition(notices.on_noticed),
        ev.RollbackAsked: Transition(stops.on_rollback_asked),
        ev.TimerFired: Transition(before.on_deadline_timer, (OVER,)),
    },
    CHOOSING: {
        ev.Placed: Transition(before.on_placed),
        ev.SetsSeen: Transition(before.on_sets_seen, (LAUNCHING, *ENDS)),
        ev.Chosen: Transition(before.on_chosen, (LAUNCHING,)),
        ev.ChoiceFailed: Transition(before.on_choice_failed, (WAITING, *ENDS)),
        ev.TimerFired: Transition(notices.or_notice(before.on_seal_timer), ENDS),
        ev.SaveAsked: Transition(saves.on_save_asked_in_a_gap),
        ev.StopAsked: Transition(stops.on_stop_asked, ENDS),
        ev.StopNowAsked: Transition(stops.on_stop_now, (OVER,)),
        ev.Interrupted: Transition(stops.on_interrupted, ENDS),
        ev.Noticed: Transition(notices.on_noticed, ENDS),
        ev.RollbackAsked: Transition(stops.on_rollback_asked),
        **TIER,
        **COMPARED,
    },
    LAUNCHING: {
        ev.OnRecord: Transition(before.on_record),
        ev.Adopted: Transition(before.on_adopted),
        ev.NotAdopted: Transition(before.on_not_adopted, (CHOOSING, *ENDS)),
        ev.SetRefused: Transition(before.on_set_refused, (CHOOSING,)),
        ev.Launched: Transition(during.on_launched, (RUNNING, KILLING)),
        ev.LaunchFailed: Transition(before.on_launch_failed, (KILLING,)),
        ev.Joined: Transition(during.on_joined),
        ev.StepsRecorded: Transition(during.on_steps_recorded),
        ev.Heard: Transition(saves.on_heard),
        ev.SaveTook: Transition(saves.on_save_took),
        ev.BuffersReady: Transition(saves.on_buffers_ready),
        ev.Suspended: Transition(stops.on_suspended_while_launching),
        ev.TimerFired: Transition(notices.or_notice(before.on_timer_while_launching), ENDS),
        ev.SaveAsked: Transition(saves.on_save_asked_in_a_gap),
        ev.StopAsked: Transition(stops.on_stop_asked),
        ev.StopNowAsked: Transition(stops.on_stop_now, (OVER,)),
        ev.Interrupted: Transition(stops.on_interrupted, (OVER,)),
        ev.Noticed: Transition(notices.on_noticed),
        ev.RollbackAsked: Transition(stops.on_rollback_asked),
        ev.RestartAsked: Transition(stops.on_restart_asked),
        **TIER,
    },
    RUNNING: {
        ev.Joined: Transition(during.on_joined, (KILLING,)),
        ev.StepsRecorded: Transition(during.on_steps_recorded),
        ev.Heard: Transition(during.on_heard),
        ev.SaveTook: Transition(saves.on_save_took),
        ev.SaveAsked: Transition(saves.on_save_asked),
        ev.ProfileAsked: Transition(during.on_profile_asked),
        ev.HostsAnswered: Transition(saves.on_hosts_answered),
        ev.BuffersReady: Transition(saves.on_buffers_ready),
        ev.RankExited: Transition(during.on_rank_exited, (KILLING,)),
        ev.TreeGone: Transition(after.on_tree_gone, ENDS),  # after a failure it is KILLING
        ev.HostLost: Transition(after.on_host_lost, AFTER),
        ev.Examined: Transition(during.on_examined, (KILLING,)),
        ev.StacksCollected: Transition(during.on_stacks_collected),
        ev.Suspended: Transition(during.on_suspended),
        ev.TimerFired: Transition(notices.or_notice(during.on_timer), (KILLING,)),
        ev.StopAsked: Transition(stops.on_stop_asked, (KILLING,)),
        ev.StopNowAsked: Transition(stops.on_stop_now, (KILLING,)),
        ev.Interrupted: Transition(stops.on_interrupted, (KILLING,)),
        ev.Noticed: Transition(notices.on_noticed, (KILLING,)),
        ev.RollbackAsked: Transition(stops.on_rollback_asked, (KILLING,)),
        ev.RestartAsked: Transition(stops.on_restart_asked, (KILLING,)),
        **TIER,
        ev.Replicated: Transition(replicas.on_replicated, (KILLING,)),
        ev.Sealed: Transition(replicas.on_sealed, (KILLING,)),
        ev.Compared: Transition(replicas.on_compared, (KILLING,)),
    },
    KILLING: {
        ev.StepsRecorded: Transition(during.on_steps_recorded),
        ev.Heard: Transition(saves.on_heard_while_killing),
        ev.RankExited: Transition(during.on_rank_exited_while_killing),
        ev.TreeGone: Transition(after.on_tree_gone, AFTER),
        ev.HostLost: Transition(after.on_host_lost, AFTER),
        ev.TimerFired: Transition(notices.or_notice(notices.on_timer_while_killing)),
        ev.SaveAsked: Transition(saves.on_save_asked_in_a_gap),
        ev.StopAsked: Transition(stops.on_stop_asked),
        ev.StopNowAsked: Transition(stops.on_stop_now),
        ev.Interrupted: Transition(stops.on_interrupted),
        ev.Noticed: Transition(notices.on_noticed),
        ev.RollbackAsked: Transition(stops.on_rollback_asked),
        **TIER,
        **COMPARED,
    },
    WAITING: {
        ev.TimerFired: Transition(notices.or_notice(before.on_restart_timer), (CHOOSING, *ENDS)),
        ev.SaveAsked: Transition(saves.on_save_asked_in_a_gap),
        ev.StopAsked: Transition(stops.on_stop_asked, ENDS),
        ev.StopNowAsked: Transition(stops.on_stop_now, (OVER,)),
        ev.Interrupted: Transition(stops.on_interrupted, ENDS),
        ev.Noticed: Transition(notices.on_noticed, ENDS),
        ev.RollbackAsked: Transition(stops.on_rollback_asked, (CHOOSING,)),
        **TIER,
        ev.Sealed: Transition(replicas.on_sealed, (CHOOSING,)),
        ev.Compared: Transition(replicas.on_compared, (CHOOSING,)),
    },
    FLUSHING: {
        ev.TimerFired: Transition(over.on_flush_timer, (OVER,)),
        ev.StopAsked: Transition(over.on_stop_asked_while_flushing, (OVER,)),
        ev.StopNowAsked: Transition(over.on_stop_now_while_flushing, (OVER,)),
        ev.Interrupted: Transition(over.on_interrupted_while_flushing, (OVER,)),
        ev.Noticed: Transition(notices.on_noticed_while_flushing, (OVER,)),
        **dict.fromkeys(TIER_EVENTS, Transition(saves.on_tier, (OVER,))),
        **dict.fromkeys((ev.Flushing, ev.Flushed), Transition(saves.on_tier)),
    },
    OVER: {},
}

# News that may cross with the end of what it is about; anything else outside TABLE is a bug.
LATE = frozenset(get_args(ev.Event)) - {ev.Opened, ev.Launched, ev.LaunchFailed}
