"""The journal's form of a run's policy.

encode(RunPolicy(ranks=2)) == {"policy": "RunPolicy", "ranks": 2, "save": {"policy": "Optimal", …
"""

from __future__ import annotations

from typing import Any

from holdfast.core.hang import deadline as hang
from holdfast.core.notices import plan as notice_plan
from holdfast.core.plain_json import Parts
from holdfast.core.run import restart
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import policy as saves

PARTS = (
    RunPolicy,
    saves.Either, saves.Both, saves.Never, saves.EverySteps, saves.EverySeconds, saves.Optimal,
    restart.AllOf, restart.HopelessCauses, restart.SameFailure, restart.Budget,
    restart.BackOff, restart.CrashLoop,
    hang.HangPolicy,
    notice_plan.NoticePolicy,
)  # fmt: skip
_FORM = Parts("policy", PARTS)


def encode(policy: RunPolicy) -> Any:
    """The policy as plain data. TypeError for one with a part of somebody else's making."""
    return _FORM.write(policy)


def decode(data: object) -> RunPolicy:
    """The inverse of `encode`. Raises ValueError for what is no policy, or a newer version's."""
    policy: RunPolicy = _FORM.read(RunPolicy, data)
    return policy
