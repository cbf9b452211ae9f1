"""A run's policy, and all that the core remembers of the run, as plain data.

    write_policy(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": …

The policy's form is the journal's. A policy in what is remembered has the same, but for the key.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.actions import Finish
from holdfast.core.events import LaunchFailed, RankExited, RestartAsked, Resume, StopNowAsked
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import deadline, watch
from holdfast.core.hang import events as hang_events
from holdfast.core.hosts.placement import Placement
from holdfast.core.notices import board
from holdfast.core.notices import plan as notice_plan
from holdfast.core.notices import watch as notice_watch
from holdfast.core.plain_json import Parts
from holdfast.core.run import ending, holding, restart, rollback, stopping
from holdfast.core.run.course import RunState
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import (
    agree_moves,
    choose,
    flushes,
    frequency,
    in_parts,
    memory,
    pace,
    ranks,
    replicas,
    saving,
)
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves

POLICY = (
    RunPolicy,
    saves.Either, saves.Both, saves.Never, saves.EverySteps, saves.EverySeconds, saves.Optimal,
    restart.AllOf, restart.HopelessCauses, restart.SameFailure, restart.Budget,
    restart.BackOff, restart.CrashLoop,
    deadline.HangPolicy,
    notice_plan.NoticePolicy,
)  # fmt: skip
STATE = (
    *POLICY,
    RunState, stopping.StopIntent, Placement,
    saving.Saving, agree_moves.Agreement, ranks.Ranks, news.StopDue,
    ranks.Extremes, pace.SavePace, pace.FailureRate, memory.MemoryTier, flushes.Flushes,
    replicas.Replicas, in_parts.InParts, Resume,
    frequency.SaidFrequency, choose.Rejected,
    watch.HangWatch, watch.Suspicion, hang_events.RankStack,
    stopping.Stopping, StopNowAsked, holding.Holding, holding.Absence,
    notice_watch.NoticeWatch, board.Board, board.Announcement, board.Telling, board.Notice,
    rollback.Rollbacks, rollback.Wish, restart.Failure,
    ending.EndEvidence, RankExited, RestartAsked, Exit, RankReport, LaunchFailed, Finish,
)  # fmt: skip
_POLICY, _STATE = Parts("policy", POLICY), Parts("part", STATE)


def write_policy(policy: RunPolicy) -> Any:
    """The policy as plain data. TypeError for one with a part of somebody else's making."""
    return _POLICY.write(policy)


def read_policy(data: object) -> RunPolicy:
    """The inverse. Raises ValueError for what is no policy, or a newer version's."""
    policy: RunPolicy = _POLICY.read(RunPolicy, data)
    return policy


def write_state(state: RunState) -> Any:
    """All that is remembered, as plain data."""
    return _STATE.write(state)


def read_state(data: object) -> RunState:
    """The inverse. Raises ValueError for what is none, or a newer version's."""
    state: RunState = _STATE.read(RunState, data)
    return state
