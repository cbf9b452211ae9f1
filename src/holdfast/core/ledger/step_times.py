"""How long steps took: the usual time, the latest, its course over the run, and the slowest ones.

A step's time is its own: what a save or an input stall in it took is told as that. Within a row of
equal steps each took as long as the others.

A script may run ahead of its device: then steps seem to take no time, until it waits for all of
them in one. Such steps are looked at so many at a time (`together`) that half of these rows take no
less than half of what they take on average; within a row each took as long as the others.
"""

from __future__ import annotations

import math
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
TOGETHER = 256  # no more steps than these are looked at as one row
ROWS = 4  # and no fewer rows than these are left


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
    `together`: so many steps are one row, at least, since the script runs ahead of its device.
    """

    steps: int = 0
    usual_ns: int = 0
    recent_ns: int = 0
    last_step: int = 0
    last_end_ns: int | None = None
    slow: int = 0
    together: int = 1
    bins: tuple[Bin, ...] = ()
    outliers: tuple[Outlier, ...] = ()


class _Rows(NamedTuple):
    """Steps in a row of one attempt; `last` is the index of what ends it among all rows."""

    steps: Ints
    own: Ints
    end: Ints
    of: Ints
    last: Ints

    @property
    def took(self) -> Ints:
        """How long each step of a row took."""
        return self.own // np.maximum(self.steps, 1)


def step_times(views: Sequence[AttemptView]) -> StepTimes:
    """The step times of attempts, by time."""
    views = [view for view in views if len(view.steps)]
    if not views:
        return StepTimes()
    together, rows = _together(_rows(views))
    took, count = rows.took, rows.steps
    usual_ns = _quantile(took, count, 0.5)
    is_slow = took > OUTLIER * usual_ns
    last = views[-1].steps
    return StepTimes(
        steps=int(count.sum()),
        usual_ns=usual_ns,
        recent_ns=_recent_ns(rows, together),
        last_step=last.last[len(last) - 1],
        last_end_ns=last.end[len(last) - 1],
        slow=int(count[is_slow].sum()),
        together=together,
        bins=tuple(_bins(rows.end, took, count)),
        outliers=tuple(_outliers(views, rows, np.flatnonzero(is_slow))),
    )


def _recent_ns(rows: _Rows, together: int) -> int:
    """How long a step takes now: the median of the latest, or the mean where rows hold many."""
    latest = slice(-max(3, RECENT // together), None)
    steps, took = rows.steps[latest], rows.took[latest]
    if together > 1:
        return int(rows.own[latest].sum()) // int(steps.sum())
    return _quantile(took, np.minimum(steps, RECENT), 0.5)


def _rows(views: Sequence[AttemptView]) -> _Rows:
    lengths = [len(view.steps) for view in views]
    return _Rows(
        np.concatenate([np.diff(view.steps.count.view, prepend=0) for view in views]),
        np.concatenate([np.diff(view.steps.own.view, prepend=0) for view in views]),
        np.concatenate([view.steps.end.view for view in views]),
        np.repeat(np.arange(len(views)), lengths),
        np.arange(sum(lengths)),
    )


def _together(rows: _Rows) -> tuple[int, _Rows]:
    """The rows, or so many steps in one that a usual row is no mere moment of dispatching."""
    steps, own_ns = int(rows.steps.sum()), int(rows.own.sum())
    grouped, many = rows, 1
    while 2 * steps * _quantile(grouped.took, grouped.steps, 0.5) < own_ns:
        many *= 2
        grouped = _merged(rows, many)
        if many > TOGETHER or len(grouped.steps) < ROWS:
            return 1, rows  # a few steps took most of the time: that is how it was
    if many == 1:
        return many, grouped
    # Most rows hold a wait for the device now; with twice as many steps their times are alike.
    wider = _merged(rows, 2 * many)
    return (2 * many, wider) if len(wider.steps) >= ROWS else (many, grouped)


def _merged(rows: _Rows, many: int) -> _Rows:
    """So many steps of one attempt in each row; what is left over of an attempt is one more."""
    before = np.cumsum(rows.steps) - rows.steps
    first = np.flatnonzero(np.diff(rows.of, prepend=-1))
    before -= np.repeat(before[first], np.diff([*first.tolist(), len(before)]))
    starts = np.flatnonzero(np.diff(rows.of, prepend=-1) | np.diff(before // many, prepend=-1))
    ends = np.append(starts[1:], len(before)) - 1
    return _Rows(
        np.add.reduceat(rows.steps, starts),
        np.add.reduceat(rows.own, starts),
        rows.end[ends],
        rows.of[starts],
        rows.last[ends],
    )


def _outliers(views: Sequence[AttemptView], rows: _Rows, slow: Ints) -> Iterator[Outlier]:
    took = rows.took
    starts = np.cumsum([0, *(len(view.steps) for view in views)])
    for row in slow[np.argsort(-took[slow], kind="stable")][:OUTLIERS].tolist():
        view = views[int(rows.of[row])]
        step = view.steps.last[int(rows.last[row] - starts[rows.of[row]])]
        yield Outlier(view.fact.attempt, step, int(rows.end[row]), int(took[row]))


def _bins(end: Ints, took: Ints, count: Ints) -> Iterator[Bin]:
    """Bins of equal lengths of time, but for those in which no step ended."""
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
    if weights.max() == 1 == weights.min():  # as nearly always: no need to sort them all
        place = max(0, math.ceil(share * len(values)) - 1)
        return int(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    at = int(sums.searchsorted(share * sums[-1], "left"))
    return int(values[order[min(at, len(order) - 1)]])
