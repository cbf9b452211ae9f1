"""Replica groups that go on when one of them fails.

Each group holds all of the model and works on a part of the batch. A failure of one discards the
step that is in flight on all of them, and the others go on with the next one; the failed group
comes back by itself meanwhile, and takes its state from a healthy one.
"""

from __future__ import annotations

from math import exp, isfinite


def step_efficiency(step_s: float, mtbf_s: float) -> float:
    """e^(−s/M): the share of steps that is committed, of those that were begun.

    Assumptions: failures of any group come every M seconds at random; a step into which one falls
    is discarded whole, and found out at its end, when the groups meet; the next begins at once. It
    says nothing of the smaller batch while a group is away: that is `groups_present`.
    """
    _check("a step", step_s, zero=True)
    _check("a time between failures", mtbf_s)
    return exp(-step_s / mtbf_s)


def groups_present(groups: int, mtbf_s: float, away_s: float) -> float:
    """1/(1 + w/(GM)): the mean share of the groups that is there.

    Each group fails every G·M seconds of its own time there, and is then away for w, however many
    others are away; M is the time between failures of all groups when all are there.
    """
    if groups < 1:
        raise ValueError(f"{groups} groups: a run needs at least one")
    _check("a time between failures", mtbf_s)
    _check("a time away", away_s, zero=True)
    return 1 / (1 + away_s / (groups * mtbf_s))


def _check(what: str, value_s: float, *, zero: bool = False) -> None:
    if not ((value_s >= 0 if zero else value_s > 0) and isfinite(value_s)):
        raise ValueError(f"{what} of {value_s} s is impossible")
