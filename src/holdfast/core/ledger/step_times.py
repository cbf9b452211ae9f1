"""How long steps took: the usual time, the latest, its course over the run, and the slowest ones.

A step's time is its own: what a save or an input stall in it took is told as that. Within a row of
equal steps each took as long as the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holdfast.core.ledger.attempt import AttemptView
from holdfast.core.ledger.columns import Ints

BINS, STEPS_A_BIN = 160, 12  # at most so many, of so many steps on average at least
RECENT = 32  # so many of the latest steps say how long they take now
OUTLIER = 3  # times the usual
OUTLIERS = 12
LOW, HIGH = 0.05, 0.95


class Bin(NamedTuple):
    """So many steps that ended between two moments: their times in ns, quantiles by steps."""

    start_ns: int
    end_ns: int
    steps: int
    low_ns: int
    median_ns: int
    high_ns: int
    longest_ns: int


class Outlier(NamedTuple):
    """A step, or a row of steps on average, that took much longer than usual."""

    attempt: int
    step: int
    end_ns: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Of all completed steps; `usual_ns` is the median, `recent_ns` that of the latest.

    `outliers`: the slowest first, of the `slow` ones that took OUTLIER times the usual or more.
    """

    steps: int = 0
    usual_ns: int = 0
    recent_ns: int = 0
    last_step: int = 0
    last_end_ns: int | None = None
    slow: int = 0
    bins: tuple[Bin, ...] = ()
    outliers: tuple[Outlier, ...] = ()


def step_times(views: Sequence[AttemptView]) -> StepTimes:
    """Of attempts, by time."""
    views = [view for view in views if len(view.steps)]
    if not views:
        return StepTimes()
    count = np.concatenate([np.diff(view.steps.count.view, prepend=0) for view in views])
    own = np.concatenate([np.diff(view.steps.own.view, prepend=0) for view in views])
    end = np.concatenate([view.steps.end.view for view in views])
    took = own // np.maximum(count, 1)
    usual_ns = _quantile(took, count, 0.5)
    latest = slice(max(0, len(took) - RECENT), None)
    is_slow = took > OUTLIER * usual_ns
    last = views[-1].steps
    return StepTimes(
        steps=int(count.sum()),
        usual_ns=usual_ns,
        recent_ns=_quantile(took[latest], np.minimum(count[latest], RECENT), 0.5),
        last_step=last.last[len(last) - 1],
        last_end_ns=last.end[len(last) - 1],
        slow=int(count[is_slow].sum()),
        bins=tuple(_bins(end, took, count)),
        outliers=tuple(_outliers(views, took, end, np.flatnonzero(is_slow))),
    )


def _outliers(views: Sequence[AttemptView], took: Ints, end: Ints, slow: Ints) -> Iterator[Outlier]:
    starts = np.cumsum([0, *(len(view.steps) for view in views)])
    for row in slow[np.argsort(-took[slow], kind="stable")][:OUTLIERS].tolist():
        of = int(starts.searchsorted(row, "right")) - 1
        view = views[of]
        step = view.steps.last[row - int(starts[of])]
        yield Outlier(view.fact.attempt, step, int(end[row]), int(took[row]))


def _bins(end: Ints, took: Ints, count: Ints) -> Iterator[Bin]:
    """Of equal lengths of time; those in which no step ended are left out."""
    bins = min(BINS, max(1, int(count.sum()) // STEPS_A_BIN))
    low_ns, width = int(end[0]), max(1, -(-int(end[-1] - end[0] + 1) // bins))
    of = (end - low_ns) // width
    first = np.flatnonzero(np.diff(of, prepend=-1))
    for begin, stop in zip(first.tolist(), [*first[1:].tolist(), len(of)], strict=True):
        times, steps = took[begin:stop], count[begin:stop]
        low, median, high = (_quantile(times, steps, share) for share in (LOW, 0.5, HIGH))
        at = low_ns + int(of[begin]) * width
        yield Bin(at, at + width, int(steps.sum()), low, median, high, int(times.max()))


def _quantile(values: Ints, weights: Ints, share: float) -> int:
    """The value below which so large a share of the weights lies."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    at = int(sums.searchsorted(share * sums[-1], "left"))
    return int(values[order[min(at, len(order) - 1)]])
