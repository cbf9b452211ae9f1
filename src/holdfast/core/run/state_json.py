"""All that the core remembers of a run, as plain data: it can be written down and read back.

A policy in it has the form that `core.run.policy_json` gives it, but for the key.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.actions import Finish
from holdfast.core.events import LaunchFailed, RankExited, Resume, StopNowAsked
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import events as hang_events
from holdfast.core.hang import watch as hang
from holdfast.core.hosts.placement import Placement
from holdfast.core.notices import board, watch
from holdfast.core.plain_json import Parts
from holdfast.core.run import ending, holding, policy_json, restart, rollback, stopping
from holdfast.core.run.course import RunState
from holdfast.core.run.state import StopIntent
from holdfast.core.save import agree_moves, choose, flushes, flushing, memory, pace, ranks, saving
from holdfast.core.save import events as news

_FORM = Parts(
    "part",
    (
        *policy_json.PARTS,
        RunState, StopIntent, Placement,
        saving.Saving, agree_moves.Agreement, ranks.Ranks, news.StopDue,
        ranks.Extremes, pace.SavePace, memory.MemoryTier, flushes.Flushes, Resume,
        flushing.TierFlushing, flushes.FlushWatch, flushing.Announced, choose.Rejected,
        hang.HangWatch, hang.Suspicion, hang_events.RankStack,
        stopping.Stopping, StopNowAsked, holding.Holding, holding.Absence,
        watch.NoticeWatch, board.Board, board.Announcement, board.Telling, board.Notice,
        rollback.Rollbacks, rollback.Wish, restart.Failure,
        ending.EndEvidence, RankExited, Exit, RankReport, LaunchFailed, Finish,
    ),
)  # fmt: skip


def encode(course: RunState) -> Any:
    """As plain JSON-able data."""
    return _FORM.write(course)


def decode(data: object) -> RunState:
    """The inverse of `encode`. Raises ValueError for what is none, or a newer version's."""
    course: RunState = _FORM.read(RunState, data)
    return course
