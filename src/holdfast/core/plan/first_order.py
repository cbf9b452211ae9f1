"""The published first-order forms: what a spreadsheet says, and where it stops being true.

All of them add up what each cause wastes, as if wastes never overlapped: a failure every M seconds
costs its restart R in full, and half an interval. That is right while (τ + δ + R) / M is small.
Beyond, failures strike restarts and one another's repeated work, each such failure costs only what
had been done until then, and the sums charge more time than there is: the linear form is too low,
and negative from R > M on. `optimum.efficiency` and `pattern.shares` are exact there.

- J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
- N. H. Vaidya, "A case for two-level distributed recovery schemes", SIGMETRICS 1995.
- A. Moody, G. Bronevetsky, K. Mohror, B. R. de Supinski, "Design, modeling, and evaluation of a
  scalable multi-level checkpointing system", SC 2010.
- S. Di, L. Bautista-Gomez, F. Cappello, "Optimization of a multilevel checkpoint model with
  uncertain execution scales", SC 2014.
- G. Aupy, Y. Robert, F. Vivien, D. Zaidouni, "Checkpointing algorithms and fault prediction",
  Journal of Parallel and Distributed Computing 74(2), 2014 (arXiv:1302.3752).
"""

from __future__ import annotations

from math import inf, isfinite, sqrt
from typing import NamedTuple


class TwoIntervals(NamedTuple):
    """The training between copies to memory, and between durable saves."""

    memory_s: float
    durable_s: float


def linear_efficiency(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """τ/(τ+δ) · (1 − (R + (τ+δ)/2) / M), 0 at the least: half a period and a restart each time."""
    _times(interval_s, save_s, restart_s)
    _mean(mtbf_s)
    period_s = interval_s + save_s
    return max(0.0, interval_s / period_s * (1 - (restart_s + period_s / 2) / mtbf_s))


def two_level_intervals(
    copy_s: float, save_s: float, mtbf_process_s: float, mtbf_host_s: float
) -> TwoIntervals:
    """Each level by Young's rule with its own cost and its own failures: √(2cM₁) and √(2δM₂).

    A copy to memory costs c and insures against what leaves the memory alone (every M₁); a durable
    save costs δ and insures against the loss of a host (every M₂, `inf`: never). The wastes
    c/τ₁ + τ₁/2M₁ + δ/τ₂ + τ₂/2M₂ have no term in common, so that each is least on its own: the
    first order of Vaidya's, Moody's and Di's models, for τ₁ ≪ τ₂ ≪ M₂.
    """
    _times(copy_s, save_s)
    return TwoIntervals(_young_s(copy_s, mtbf_process_s), _young_s(save_s, mtbf_host_s))


def two_level_waste(
    intervals: TwoIntervals,
    copy_s: float,
    save_s: float,
    restart_s: float,
    mtbf_process_s: float,
    mtbf_host_s: float,
) -> float:
    """c/τ₁ + τ₁/2M₁ + δ/τ₂ + τ₂/2M₂ + R/M₁ + R/M₂: the share of time that is wasted."""
    _times(*intervals, copy_s, save_s, restart_s)
    return sum(
        cost_s / interval_s + (interval_s / 2 + restart_s) / mtbf_s
        for cost_s, interval_s, mtbf_s in (
            (copy_s, intervals.memory_s, mtbf_process_s),
            (save_s, intervals.durable_s, mtbf_host_s),
        )
    )


def predicted_interval_s(save_s: float, mtbf_s: float, recall: float) -> float:
    """√(2δM/(1−r)): failures that are announced in time need no periodic save (Aupy et al.).

    `inf` where all of them are.
    """
    _times(save_s)
    _mean(mtbf_s)
    _recall(recall)
    return sqrt(2 * save_s * mtbf_s / (1 - recall)) if recall < 1 else inf


def predicted_waste(
    interval_s: float,
    save_s: float,
    notice_save_s: float,
    restart_s: float,
    mtbf_s: float,
    recall: float,
    precision: float,
) -> float:
    """δ/τ + [(1−r)·τ/2 + (r/p)·δₙ + R] / M: Aupy et al., every prediction trusted.

    Of all failures a share r is announced in time to save on demand, for δₙ; of all announcements
    a share p comes true, so that there are r/p of them for each failure.
    """
    _times(interval_s, save_s, notice_save_s, restart_s)
    _mean(mtbf_s)
    _recall(recall)
    if not 0 < precision <= 1:
        raise ValueError(
            f"a precision of {precision} is not a share: give more than 0, and 1 at most"
        )
    per_failure_s = (1 - recall) * interval_s / 2 + recall / precision * notice_save_s + restart_s
    return save_s / interval_s + per_failure_s / mtbf_s


def _young_s(save_s: float, mtbf_s: float) -> float:
    """Young's √(2δM), and `inf` where failures never come."""
    if not mtbf_s > 0:
        raise ValueError(f"a time between failures of {mtbf_s} s is not positive")
    return inf if mtbf_s == inf else sqrt(2 * save_s * mtbf_s)


def _times(*values_s: float) -> None:
    for value_s in values_s:
        if not value_s >= 0:
            raise ValueError(f"{value_s} s is not a time")


def _mean(mtbf_s: float) -> None:
    if not (mtbf_s > 0 and isfinite(mtbf_s)):
        raise ValueError(f"a time between failures of {mtbf_s} s is not positive and finite")


def _recall(recall: float) -> None:
    if not 0 <= recall <= 1:
        raise ValueError(f"a recall of {recall} is not a share: give a number from 0 to 1")
