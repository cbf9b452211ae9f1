"""What the run's machine (`core.run`) remembers between two events, over all its attempts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.hang.watch import HangWatch
from holdfast.core.hosts.placement import NOWHERE, Placement
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.notices.watch import NoticeWatch
from holdfast.core.run import restart, rollback
from holdfast.core.run.ending import EndEvidence
from holdfast.core.run.holding import Absence, Holding
from holdfast.core.run.state import RunPolicy, State
from holdfast.core.run.stopping import StopIntent, Stopping
from holdfast.core.save import events as news
from holdfast.core.save.choose import Rejected
from holdfast.core.save.frequency import SaidFrequency
from holdfast.core.save.saving import Saving


@dataclass(slots=True)
class RunState:
    """The course of one run so far. The handlers in `core.run` read it and move it on.

    All that the core remembers of a run is here, in plain parts that do not know one another.
    """

    policy: RunPolicy
    saving: Saving
    holding: Holding
    hangs: HangWatch
    stopping: Stopping
    notices: NoticeWatch
    absence: Absence
    state: State = State.NEW

    # Of the run.
    high_water: int = 0  # the highest step any attempt completed on all ranks
    is_recorded: bool = False  # a recorder has told steps, where there was no session
    failures: tuple[restart.Failure, ...] = ()
    failures_before: int = 0  # all others, of earlier controllers too
    losses_before: int = 0  # of them, those that took the memory of their host along
    rollbacks: rollback.Rollbacks = field(default_factory=rollback.Rollbacks)
    rejected: Rejected = field(default_factory=Rejected)  # by ranks that read them

    said_frequency: SaidFrequency = field(default_factory=SaidFrequency)
    said_failure: str = ""  # of the last flush that failed

    # Of the newest attempt.
    attempt: int = -1
    resume: ev.Resume = ev.SCRATCH
    placement: Placement = NOWHERE
    high_water_at_launch: int = 0
    is_on_record: bool = False
    is_adopted: bool = False  # an earlier controller has launched it
    launch_failure: ev.LaunchFailed | None = None
    until: int = 0  # the last step that the script wanted, told when its loop is over
    is_end_told: bool = False  # that it has ended its loop before that step
    saves_wake_ns: int | None = None  # what the saves' timer is set to
    is_relayed: bool = False  # it was told to stop by a signal, for want of sessions
    is_leaving: bool = False  # its ranks were told to leave
    ending: EndEvidence = field(default_factory=EndEvidence)
    ended_ns: int | None = None
    standby: StandbyOrder = StandbyOrder.AS_IS
    said_replica: str | None = None  # why a set is on its own hosts alone; "": it is not
    done_ns: int | None = None  # its ranks ended as done, which is not on record yet

    # Of what comes next.
    next_attempt: int = 0
    hosts: tuple[int, ...] = ()  # that it has; none: all of them
    choice_waits: bool = False  # for a set in memory that is being sealed
    finish: act.Finish = act.DONE  # for when nothing in memory is ahead of the disk

    @classmethod
    def start(cls, policy: RunPolicy) -> RunState:
        """The state of a run of which nothing is known yet."""
        saving = Saving(
            policy.ranks,
            policy.save,
            memory_policy=policy.save_in_memory,
            request_reaction_ns=policy.request_reaction_ns,
            hold_ns=policy.hold_finished_ns,
            flush_patience_ns=policy.store_patience_ns // 2,
            replicates=policy.replicates,
        )
        return cls(
            policy,
            saving,
            Holding(policy.hold_finished_ns),
            HangWatch(policy.hang),
            Stopping(policy.leave_limit_ns, policy.margin_ns),
            NoticeWatch(policy.notice, policy.margin_ns),
            Absence(policy.store_patience_ns),
        )

    @property
    def stop(self) -> StopIntent | None:
        """Who wants the run to stop; None: nobody."""
        return self.stopping.intent

    @property
    def is_told_to_leave(self) -> bool:
        """Whether every rank knows by now that it is to stop."""
        return self.stop is not None and (self.is_relayed or self.saving.agreement.is_over)

    @property
    def failures_seen(self) -> int:
        """All failures of the run, under whichever controller."""
        return self.failures_before + len(self.failures)

    @property
    def losses_seen(self) -> int:
        """All failures that took the memory of their host along."""
        return self.losses_before + _losses(self.failures)

    def judge_by(self, failures: tuple[restart.Failure, ...]) -> None:
        """The next restart is judged by these of the failures; the others are only counted."""
        if len(failures) < len(self.failures):
            self.failures_before += len(self.failures) - len(failures)
            self.losses_before += _losses(self.failures) - _losses(failures)
            self.failures = failures

    def look_at_notices(self, at_ns: int) -> list[act.Action]:
        """What is planned on account of notices may be another matter by now."""
        return self.notices.look_again(self.saving, at_ns, is_stopping=self.stop is not None)

    def carry_out(self, wanted: Iterable[news.Action]) -> list[act.Action]:
        """The run's actions for what the agreement answers."""
        answer: list[act.Action] = []
        for one in wanted:
            answer += self._carry_out(one)
        return answer

    def _carry_out(self, what: news.Action) -> list[act.Action]:
        match what:
            case news.SealBuffer():
                return [act.Seal(self.attempt, what.epoch, what.step, what.buffer)]
            case news.Hold():
                return self.holding.failed(what.at_ns, what.step, what.why, until_ns=what.until_ns)
            case news.LetRanksLeave():
                held = self.holding.failed(what.at_ns, what.step, what.why)
                return [act.PublishCommitted(what.step), *held]
        return [act.CarryOut(self.attempt, what, self.stopping.deadline_ns)]


def _losses(failures: Iterable[restart.Failure]) -> int:
    return [one.cause for one in failures].count(exits.ExitCause.HOST_LOST)
