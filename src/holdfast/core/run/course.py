"""What the run's machine (`core.run`) remembers between two events, over all its attempts."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.hang.watch import HangWatch
from holdfast.core.hosts.standby import Standby
from holdfast.core.notices.watch import NoticeWatch
from holdfast.core.run import restart, rollback
from holdfast.core.run.absence import Absence
from holdfast.core.run.ending import Ending
from holdfast.core.run.holding import Holding
from holdfast.core.run.state import RunPolicy, State, StopIntent
from holdfast.core.run.stopping import Stopping
from holdfast.core.save import agree_events
from holdfast.core.save.choose import Rejected
from holdfast.core.save.keeping import Keeping
from holdfast.core.save.saving import Saving
from holdfast.errors import EXIT_DONE


class Course:
    """The course of one run so far. The handlers in `core.run_*` read it and move it on."""

    def __init__(self, policy: RunPolicy) -> None:
        self.policy = policy
        self.state = State.NEW

        # Of the run.
        self.high_water = 0  # the highest step any attempt completed on all ranks
        self.failures: tuple[restart.Failure, ...] = ()
        self.failures_before = self.losses_before = 0  # all others, of earlier controllers too
        self.rollbacks = rollback.Rollbacks()
        self.rejected = Rejected()  # by ranks that read them
        self.saving = Saving(
            policy.ranks,
            policy.save,
            memory_policy=policy.save_in_memory,
            hold_ns=policy.hold_finished_ns,
        )
        self.holding = Holding(policy.hold_finished_ns)
        patience_ns = policy.store_patience_ns // 2
        self.keeping = Keeping(self.saving, self.carry_out, patience_ns=patience_ns)
        self.hangs = HangWatch(policy.hang, policy.ranks)
        self.stopping = Stopping(policy.leave_limit_ns, policy.margin_ns)
        self.notices = NoticeWatch(policy.notice, self.saving, self.stopping, policy.margin_ns)
        self.absence = Absence(policy.store_patience_ns)

        # Of the newest attempt.
        self.attempt = -1
        self.resume = ev.Resume(None, 0, None)
        self.high_water_at_launch = 0
        self.launch_failure: ev.LaunchFailed | None = None
        self.saves_wake_ns: int | None = None  # what the saves' timer is set to
        self.is_relayed = False  # it was told to stop by a signal, for want of sessions
        self.is_leaving = False  # its ranks were told to leave
        self.ending = Ending()
        self.ended_ns: int | None = None
        self.standby = Standby.AS_IS
        self.done_ns: int | None = None  # its ranks ended as done, which is not on record yet

        # Of what comes next.
        self.next_attempt = 0
        self.choice_waits = False  # for a set in memory that is being sealed
        self.finish = act.Finish(EXIT_DONE, "")  # for when nothing in memory is ahead of the disk

    @property
    def stop(self) -> StopIntent | None:
        """Who wants the run to stop; None: nobody."""
        return self.stopping.intent

    @property
    def is_told_to_leave(self) -> bool:
        """Whether every rank knows by now that it is to stop."""
        return self.stop is not None and (self.is_relayed or self.saving.is_over)

    @property
    def failures_seen(self) -> int:
        """All failures of the run, under whichever controller."""
        return self.failures_before + len(self.failures)

    @property
    def losses_seen(self) -> int:
        """Of them, those that took the memory of their host along."""
        return self.losses_before + _losses(self.failures)

    def judge_by(self, failures: tuple[restart.Failure, ...]) -> None:
        """The next restart is judged by these of the failures; the others are only counted."""
        self.failures_before += len(self.failures) - len(failures)
        self.losses_before += _losses(self.failures) - _losses(failures)
        self.failures = failures

    def carry_out(self, actions: tuple[agree_events.Action, ...]) -> list[act.Action]:
        """The run's actions for those of its saves."""
        answer: list[act.Action] = []
        for action in actions:
            answer += self._carry_out(action)
        return answer

    def _carry_out(self, what: agree_events.Action) -> list[act.Action]:
        match what:
            case agree_events.Seal():
                return [act.Seal(self.attempt, what.epoch, what.step, what.buffer)]
            case agree_events.MakeRoom():
                return [act.MakeRoom(self.attempt, what.step)]
            case agree_events.Hold():
                return self.holding.failed(what.at_ns, what.step, what.why, until_ns=what.until_ns)
            case agree_events.Release():
                held = self.holding.failed(what.at_ns, what.step, what.why)
                return [act.PublishCommitted(what.step), *held]
        return [act.CarryOut(self.attempt, what, self.stopping.deadline_ns)]


def _losses(failures: Iterable[restart.Failure]) -> int:
    return len([one for one in failures if one.cause is exits.ExitCause.HOST_LOST])
