"""How long a run may go without a step before it counts as hung: the deadline, and its reason.

The deadline is learned from the run itself. The median of its recent steps says how fast it is;
the longest pause that ended well says what it does now and then (an evaluation that nobody
declared, a checkpoint of its own, the end of an epoch). A quantile or a deviation would not do in
its place: a pause that comes every 500 steps lies beyond any that is robust, and would be taken for
a hang each time it comes.

All integers. `core.hang.judge` applies this to what was found; `core.hang.watch` remembers.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.value import value

MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS


@value
class HangPolicy:
    """What the user decides (`is_watched`, `step_ns`), and how the rest is learned. Nanoseconds.

    `step_ns`: a deadline of the user's own for a step; None: learned. `untried_ns`: from launch to
    the first step as long as no attempt came that far, `start_floor_ns`: at least that afterwards.
    `wait_ns`: for data, for a save and for a restore, which are not ours to call slow.
    """

    is_watched: bool = True
    step_ns: int | None = None
    floor_ns: int = 5 * MINUTE_NS  # a false alarm costs more than a few minutes of a true one
    ceiling_ns: int = HOUR_NS
    untried_ns: int = HOUR_NS
    start_floor_ns: int = 5 * MINUTE_NS
    wait_ns: int = 30 * MINUTE_NS
    median_factor: int = 10
    longest_factor: int = 4
    start_factor: int = 10
    samples: int = 5  # intervals of this attempt before its own pace counts


OFF = HangPolicy(is_watched=False)


class Limit(NamedTuple):
    """How long may pass, and why that long."""

    ns: int
    why: str


@value
class Experience:
    """What is known of the run: the longest pause that ended well, the longest way to a first step.

    `patience` doubles with each hang that no new step followed: a deadline that was too short for
    what this run does at this place must not end it there for ever.
    """

    longest_ns: int = 0
    start_ns: int = 0
    patience: int = 1


def step_limit(policy: HangPolicy, known: Experience, median_ns: int) -> Limit:
    """The limit of a step of a run with this pace: max(10 × median, 4 × longest), within bounds."""
    if policy.step_ns is not None:
        return Limit(policy.step_ns, "as set")
    by_median = policy.median_factor * median_ns
    by_longest = policy.longest_factor * known.longest_ns
    best = max(by_median, by_longest)
    if best <= policy.floor_ns:
        limit = Limit(policy.floor_ns, "the least there is")
    elif best > policy.ceiling_ns:
        # The ceiling never goes below what slow steps need.
        most_ns = max(policy.ceiling_ns, policy.longest_factor * median_ns)
        limit = Limit(min(best, most_ns), "the most there is")
    elif by_longest > by_median:
        limit = Limit(best, f"{policy.longest_factor} × the longest pause so far")
    else:
        limit = Limit(best, f"{policy.median_factor} × the median step")
    return _patient(limit, known)


def start_limit(policy: HangPolicy, known: Experience) -> Limit:
    """The limit until the first step, and of the first steps, which may compile once more."""
    if not known.start_ns:
        limit = Limit(policy.untried_ns, "no attempt has come to a step yet")
    else:
        learned_ns = policy.start_factor * known.start_ns
        ns = min(max(learned_ns, policy.start_floor_ns), policy.untried_ns)
        limit = Limit(ns, "from how long earlier attempts took to their first step")
    if policy.step_ns is not None:
        return Limit(max(limit.ns, policy.step_ns), limit.why)
    return _patient(limit, known)


def wait_limit(policy: HangPolicy, known: Experience) -> Limit:
    """The limit of a declared wait: data, a save, a restore."""
    return _patient(Limit(max(policy.wait_ns, policy.step_ns or 0), "the limit of a wait"), known)


def _patient(limit: Limit, known: Experience) -> Limit:
    if known.patience == 1:
        return limit
    return Limit(limit.ns * known.patience, f"{limit.why}, × {known.patience} after a hang here")


RECENT = 256


class StepIntervals:
    """One rank's intervals from step to step, as its words show them; declared spans left out.

    Fed at every look at the words, which may miss steps: an interval over several steps is as long
    as all of them together, and so never shorter than the longest of them.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._longest_ns = 0
        self._step = 0
        self._step_ns = 0
        self._spans_ns = 0

    def look(self, step: int, step_ns: int, spans_ns: int) -> None:
        """The rank's last step, its time, and the time spent in declared spans since it began."""
        if step == self._step or not step_ns:
            return
        if self._step_ns:
            interval_ns = step_ns - self._step_ns - (spans_ns - self._spans_ns)
            self.samples += 1
            self._recent.append(max(0, interval_ns))
            self._longest_ns = max(self._longest_ns, interval_ns)
        self._step, self._step_ns, self._spans_ns = step, step_ns, spans_ns

    def forget(self) -> None:
        """The machine was suspended: the interval under way means nothing."""
        self._step = self._step_ns = 0

    @property
    def median_ns(self) -> int:
        """The median of the recent intervals; 0: none was measured."""
        return sorted(self._recent)[(len(self._recent) - 1) // 2] if self._recent else 0

    def take_longest_ns(self) -> int:
        """The longest interval since the last call."""
        longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns
