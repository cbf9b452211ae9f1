"""A run's policy as plain data: its form in the journal.

    write_policy(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": …

What is read is trusted as little as any file.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.hang import deadline
from holdfast.core.notices import plan
from holdfast.core.plain_json import Parts
from holdfast.core.run import restart
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import policy as saves

POLICY = (
    RunPolicy,
    saves.Either, saves.Both, saves.Never, saves.EverySteps, saves.EverySeconds, saves.Optimal,
    restart.AllOf, restart.HopelessCauses, restart.SameFailure, restart.Budget,
    restart.BackOff, restart.CrashLoop,
    deadline.HangPolicy,
    plan.NoticePolicy,
)  # fmt: skip
_FORM = Parts("policy", POLICY)


def write_policy(policy: RunPolicy) -> Any:
    """The policy as plain data. TypeError for one with a part of somebody else's making."""
    return _FORM.write(policy)


def read_policy(data: object) -> RunPolicy:
    """The inverse. Raises ValueError for what is no policy, or a newer version's."""
    policy: RunPolicy = _FORM.read(RunPolicy, data)
    return policy
