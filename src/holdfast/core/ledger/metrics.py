"""Reliability figures of a run: MTBF, MTTR, ETTR, and goodput estimated from mean times.

The field uses these names with different denominators; each docstring here states its own. None
means that the denominator is zero: there is nothing to average yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.ledger.account import NS_PER_S, Account, Disruption
from holdfast.core.ledger.kinds import Level, level_of


@dataclass(frozen=True, slots=True)
class Cost:
    """What one disruption cost, in wall nanoseconds.

    `tch_ns`: progress lost since the last checkpoint. `tre_ns`: waiting for resources. `trm_ns`:
    all other time until training went on (detect, drain, back off, start, restore, compile).
    """

    tch_ns: int
    trm_ns: int
    tre_ns: int


def cost_of(disruption: Disruption) -> Cost | None:
    """Tch, trm and tre of a disruption; None while no later attempt has completed a step.

    trm + tre is the disruption's downtime.
    """
    if disruption.downtime_ns is None:
        return None
    tre_ns = sum(
        ns for kind, ns in disruption.waterfall_ns.items() if level_of(kind) is Level.SCHEDULING
    )
    return Cost(disruption.lost_ns, disruption.downtime_ns - tre_ns, tre_ns)


def price_chip_ns(disruption: Disruption, chips: int) -> int:
    """What a disruption cost: (lost steps' own time + downtime so far) × chips."""
    down = disruption.downtime_ns
    if down is None:  # not over: its waterfall runs to the end of the time line
        down = sum(disruption.waterfall_ns.values())
    return (disruption.lost_ns + down) * chips


def mtbf_s(account: Account) -> float | None:
    """Mean time between failures, in seconds.

    Time in which the run's resources were there (elapsed − queued − reschedule; of an elastic run,
    in full-capacity seconds), divided by the number of disruptions, planned ones included. Waiting
    for hardware does not make hardware look reliable, so it does not count.
    """
    failures = len(account.disruptions)
    return account.available / (account.chips * NS_PER_S) / failures if failures else None


def mttr_s(account: Account) -> float | None:
    """Mean time to recover, in seconds.

    The downtimes (last completed activity → end of the first step completed later, less that step)
    divided by the number of disruptions that the run has recovered from; the others are left out,
    not counted as zero.
    """
    downtimes = [d.downtime_ns for d in account.disruptions if d.downtime_ns is not None]
    return sum(downtimes) / len(downtimes) / NS_PER_S if downtimes else None


def ettr(account: Account) -> float | None:
    """Effective training time ratio: productive time / wall time from the request on.

    The denominator contains waiting in the queue, at first and after each disruption, as in
    A. Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
    2024 (arXiv:2410.21680); so it equals goodput without its program factor. Numerator and
    denominator are chip time.
    """
    return account.goodput


def estimated_scheduling_goodput(tre_s: Sequence[float], elapsed_s: float) -> float | None:
    """1 − Σ tre / elapsed: the denominator is all time, from the request on."""
    return 1 - sum(tre_s) / elapsed_s if elapsed_s > 0 else None


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
