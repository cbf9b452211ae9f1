"""What disruptions cost, and the published estimate of runtime goodput."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.ledger.account import Disruption


def price_chip_ns(disruption: Disruption, chips: int) -> int:
    """What a disruption cost: (lost steps' own time + downtime so far) × chips."""
    down = disruption.downtime_ns
    if down is None:  # not over: its waterfall runs to the end of the time line
        down = sum(disruption.waterfall_ns.values())
    return (disruption.lost_ns + down) * chips


def estimated_runtime_goodput(
    tch_s: Sequence[float], trm_s: Sequence[float], tre_s: Sequence[float], elapsed_s: float
) -> float | None:
    """1 − Σ (tch + trm) / (elapsed − Σ tre): the share of the time that resources were there.

    The estimate by which ML Productivity Goodput is explained (Google Cloud, "Introducing ML
    Productivity Goodput", April 2024): each disruption costs the progress since its last checkpoint
    and the time to resume; time to reschedule belongs to scheduling goodput and leaves the
    denominator. It knows no first start-up, no compile, no input stall and no blocking save: where
    an account exists, its `runtime_goodput` is the measurement.
    """
    available_s = elapsed_s - sum(tre_s)
    return 1 - (sum(tch_s) + sum(trm_s)) / available_s if available_s > 0 else None
