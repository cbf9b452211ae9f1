"""Which host the others wait for, step after step. Pure.

    stragglers = Stragglers(StragglerPolicy())
    stragglers.heard(index=1, attempt=0, ranks=report.ranks)
    behind = stragglers.judge(at_ns, indices)  # by index

Ranks that train in step are all as slow as the slowest one: how long a step takes says nothing.
What tells is what a rank does by itself. That is known of a script that marks its collectives
(`run.collective`): the rest of the step is its own. Of any other it is known as far as spans go
(`run.data`, `run.span`): a slow disk shows, a slow processor does not. Durations on one clock are
compared, never two clocks.

Of each host the median of its last samples counts, which a pause now and then does not move; what
it has above the median host is how far it is behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.hosts.report import Pace, RankState

WINDOW = 64  # samples of each host: one a report that tells of steps
LEAST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class StragglerPolicy:
    """Chronic is who is behind by more than `percent` of a step, for that many steps and so long.

    `replaces`: a spare takes the place of such a host.
    """

    percent: int = 10
    steps: int = 100
    for_ns: int = 600 * SECOND_NS
    replaces: bool = False


class Behind(NamedTuple):
    """How far a host is behind the median host, in each step of `step_ns`.

    `late_ns`: for how long that has been more than the policy allows; None: it is not.
    """

    ns: int
    step_ns: int
    late_ns: int | None = None
    is_chronic: bool = False

    @property
    def words(self) -> str:
        """For people."""
        percent = round(100 * self.ns / max(1, self.step_ns))
        return f"{in_words(self.ns)} of each step ({percent} %)"


@dataclass(slots=True)
class _Late:
    """What was heard of one host in one attempt. Samples: nanoseconds a step."""

    attempt: int
    seen: list[tuple[int, Pace]] = field(default_factory=list)  # of each rank
    own: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    step: int = 0
    late_since: tuple[int, int] | None = None  # when, and at which step


class Stragglers:
    """For one run. A report costs the same, however many hosts there are."""

    def __init__(self, policy: StragglerPolicy | None = None) -> None:
        self.policy = policy or StragglerPolicy()
        self._hosts: dict[int, _Late] = {}

    def heard(self, index: int, attempt: int, ranks: Sequence[RankState]) -> None:
        """A host has said how its ranks stand."""
        host = self._hosts.get(index)
        now = [(one.answers.step, one.pace) for one in ranks]
        if host is None or host.attempt != attempt or len(host.seen) != len(now):
            self._hosts[index] = _Late(attempt, now)
            return
        samples = []
        for number, (before, after) in enumerate(zip(host.seen, now, strict=True)):
            if after[0] > before[0] and after[1].at_ns > before[1].at_ns:
                host.seen[number] = after
                if before[1].at_ns:  # the first step has no beginning
                    samples.append(_sample(before, after))
        if samples:
            own_ns, step_ns = max(samples)  # the host is as late as its last rank
            host.own.append(own_ns)
            host.steps.append(step_ns)
            host.step = max(step for step, _ in now)

    def judge(self, at_ns: int, indices: Collection[int]) -> dict[int, Behind]:
        """How far each of these hosts is behind; nothing where it is not known yet."""
        for index in [one for one in self._hosts if one not in indices]:
            del self._hosts[index]
        known = {n: one for n, one in self._hosts.items() if len(one.own) >= LEAST_SAMPLES}
        if len(known) < 2 or len({one.attempt for one in known.values()}) > 1:
            return {}
        medians = {index: _middle(host.own) for index, host in known.items()}
        if not any(medians.values()):
            return {}  # the script shows nothing of what its ranks do by themselves
        step_ns = _middle([_middle(host.steps) for host in known.values()])
        middle_ns = _middle(medians.values())
        return {
            index: self._behind(at_ns, known[index], own_ns, own_ns - middle_ns, step_ns)
            for index, own_ns in medians.items()
        }

    def _behind(self, at_ns: int, host: _Late, own_ns: int, behind_ns: int, step_ns: int) -> Behind:
        """More than the policy allows, and than what its own steps differ by."""
        policy = self.policy
        spread_ns = _middle([abs(one - own_ns) for one in host.own])
        is_late = 100 * behind_ns > policy.percent * step_ns and behind_ns > 2 * spread_ns
        if not is_late:
            host.late_since = None
            return Behind(max(0, behind_ns), step_ns)
        host.late_since = host.late_since or (at_ns, host.step)
        since_ns, since_step = host.late_since
        late_ns, steps = at_ns - since_ns, host.step - since_step
        is_chronic = late_ns >= policy.for_ns and steps >= policy.steps
        return Behind(behind_ns, step_ns, late_ns, is_chronic)


def _sample(before: tuple[int, Pace], after: tuple[int, Pace]) -> tuple[int, int]:
    """A rank's own time of a step, and the whole step."""
    (first, was), (last, now) = before, after
    steps = last - first
    step_ns = (now.at_ns - was.at_ns) // steps
    if now.together_ns:
        return max(0, step_ns - (now.together_ns - was.together_ns) // steps), step_ns
    return (now.spans_ns - was.spans_ns) // steps, step_ns


def _middle(values: Collection[int]) -> int:
    """The lower median: of two hosts the faster one is the measure."""
    return sorted(values)[(len(values) - 1) // 2]


def chronic(found: Mapping[int, Behind]) -> dict[int, Behind]:
    """Those that are behind for so long that somebody should know, or do something."""
    return {index: one for index, one in found.items() if one.is_chronic}
