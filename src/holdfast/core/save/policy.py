"""When a save is due: small policies that compose with `|` (either) and `&` (both).

    policy = EverySteps(1000) | EverySeconds(600)
    due, reason = policy.decide(view)

A policy sees one candidate boundary at a time and knows no more than the view. It is asked again
and again, and for later boundaries too: being due never ends by waiting.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS, in_words, seconds_in_words
from holdfast.core.plan.optimum import exact_interval_s
from holdfast.core.save.frequency import ONLY_WHEN_ASKED, SaveFrequency, steps_in_words
from holdfast.core.value import value

HOUR_S = 3600.0


class Tier(Enum):
    """The tier that a policy is asked about."""

    ALONE = "alone"
    MEMORY = "memory"
    DURABLE = "durable"


class SaveView(NamedTuple):
    """What is known when the question is asked. Times in nanoseconds; 0: not measured yet.

    `step`: the boundary at which the save would be, reached at `now_ns`. `last_committed_step` and
    `last_committed_ns`: the newest durable set, at first the step and time at which the attempt
    began. `save_blocked_ns`: how long the last save kept training from running; `save_total_ns`:
    from its order to its commit. `failures_seen` in `observed_ns` of running, the last of them
    `calm_ns` of running ago, or none yet; `recent_ns`: one in so long of running, of the last few;
    0: too few. `slowdown_ppm`: by how much writing beside training was
    seen to slow the steps; None: not measured. `taken_ns`: of processors' time, what a seal took
    from the training.

    Where there is a memory tier, each tier has its own view and policy. `tier` MEMORY: the sets in
    memory stand for durable ones, and `save_total_ns` is a copy with its seal. DURABLE: what is
    saved is flushed from memory, and a failure is one that took the memory along. ALONE: no memory
    tier.
    """

    now_ns: int
    step: int
    last_committed_step: int
    last_committed_ns: int
    step_time_ns: int = 0
    save_blocked_ns: int = 0
    save_total_ns: int = 0
    failures_seen: int = 0
    observed_ns: int = 0
    calm_ns: int | None = None
    recent_ns: int = 0
    slowdown_ppm: int | None = None
    taken_ns: int = 0
    tier: Tier = Tier.ALONE

    @property
    def steps_since(self) -> int:
        """Steps that the newest set does not hold."""
        return self.step - self.last_committed_step

    @property
    def since_ns(self) -> int:
        """Time since the newest set was committed."""
        return self.now_ns - self.last_committed_ns


class SavePolicy:
    """Base of the policies: each says when it holds, and why.

    Who looks for the first boundary that is due asks `is_due` of many, and `decide` of that one:
    finding the words takes longer than finding the answer.
    """

    __slots__ = ()

    def decide(self, view: SaveView) -> tuple[bool, str]:
        """Whether a save is due, and the rule that says so, in words."""
        if view.step <= view.last_committed_step:
            return False, f"step {view.step} is saved"
        return self.holds(view), self.why(view)

    def is_due(self, view: SaveView) -> bool:
        """Whether a save is due, without the words."""
        if view.step <= view.last_committed_step:
            return False
        return self.holds(view)

    def holds(self, view: SaveView) -> bool:
        """The policy's own part, when there is a step that is not saved."""
        raise NotImplementedError

    def why(self, view: SaveView) -> str:
        """The rule by which it holds, or does not."""
        raise NotImplementedError

    def pace(self, view: SaveView) -> SaveFrequency:
        """How often a save will be due, for people."""
        return SaveFrequency(self.why(view))

    def __or__(self, other: SavePolicy) -> SavePolicy:
        return Either(self, other)

    def __and__(self, other: SavePolicy) -> SavePolicy:
        return Both(self, other)


@value
class Either(SavePolicy):
    """What `|` makes: due when one of the two is."""

    first: SavePolicy
    second: SavePolicy

    def holds(self, view: SaveView) -> bool:
        """Whether one of the two holds."""
        return self.first.holds(view) or self.second.holds(view)

    def why(self, view: SaveView) -> str:
        """The first that is due gives the reason."""
        for one in (self.first, self.second):
            if one.holds(view):
                return one.why(view)
        return f"{self.first.why(view)}, or {self.second.why(view)}"

    def pace(self, view: SaveView) -> SaveFrequency:
        """That of both, whichever is due now."""
        return _both_paces(self.first.pace(view), "or", self.second.pace(view))


@value
class Both(SavePolicy):
    """What `&` makes: due when both are."""

    first: SavePolicy
    second: SavePolicy

    def holds(self, view: SaveView) -> bool:
        """Whether both hold."""
        return self.first.holds(view) and self.second.holds(view)

    def why(self, view: SaveView) -> str:
        """The first that is not due gives the reason."""
        for one in (self.first, self.second):
            if not one.holds(view):
                return one.why(view)
        return f"{self.first.why(view)}, and {self.second.why(view)}"

    def pace(self, view: SaveView) -> SaveFrequency:
        """That of both, whichever is due now."""
        return _both_paces(self.first.pace(view), "and", self.second.pace(view))


def _both_paces(first: SaveFrequency, word: str, second: SaveFrequency) -> SaveFrequency:
    known = [one.interval_s for one in (first, second) if one.interval_s is not None]
    because = ", and ".join(one.because for one in (first, second) if one.because)
    return SaveFrequency(f"{first.words}, {word} {second.words}", because, min(known, default=None))


@value
class Never(SavePolicy):
    """Only when somebody asks; a stop and the last step are saved all the same."""

    def holds(self, view: SaveView) -> bool:  # noqa: ARG002 - the protocol
        """Never due."""
        return False

    def why(self, view: SaveView) -> str:  # noqa: ARG002 - the protocol
        """Always the same."""
        return ONLY_WHEN_ASKED


@value
class EverySteps(SavePolicy):
    """Due at every multiple of `steps`, or at the next boundary if that one was missed."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"saving every {self.steps} steps: at least every 1 step")

    def holds(self, view: SaveView) -> bool:
        """Whether a multiple of `steps` lies after the newest set."""
        return view.step // self.steps > view.last_committed_step // self.steps

    def why(self, view: SaveView) -> str:  # noqa: ARG002 - the protocol
        """Always the same."""
        return steps_in_words(self.steps)


@value
class EverySeconds(SavePolicy):
    """Due when the newest set is `seconds` old."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"saving every {self.seconds} s: the time must be positive")

    def holds(self, view: SaveView) -> bool:
        """Whether that time has passed."""
        return view.now_ns - view.last_committed_ns >= self.seconds * SECOND_NS

    def why(self, view: SaveView) -> str:  # noqa: ARG002 - the protocol
        """Always the same."""
        return f"every {seconds_in_words(self.seconds)}"


@value
class Optimal(SavePolicy):
    """The interval that loses least, from the measured cost of a save and the failures seen.

    Failure rate: the mean of a Gamma posterior, (prior_weight + failures) / (prior_weight ×
    prior_failure_every_s + time observed). The prior is one failure in four hours, which counts as
    much as one real failure: a run that never fails earns long intervals slowly, and a run that
    fails often gets short ones after its second failure. Behind a memory tier what counts is what
    takes the memory along, and the prior is one in `prior_loss_every_s`. With `burst_s`, the mean
    is never taken to be longer than the time since the last failure (or since the run began) plus
    that, nor than the mean over the time since the last few: failures are likeliest in young runs
    and soon after others. It costs little where copies are cheap: over a time T without failure,
    twice the copies of one who expects one failure in T.

    Cost of a failure: the steps lost, counted `loss_weight` times. The optimum is flat: with 2,
    saves cost 1.4 times and losses 0.7 times what they would, in sum 6 % more than the least.

    Cost of a save: the time it blocks training, what its checksums take from processors that are
    busy with it, and `background_share` of the time it writes beside training, which takes
    processors, memory bandwidth and disk from it. Not less than
    `max_duty` allows: writing is at most that share of the time, however cheap it looks.

    As long as no save was measured, the first one is due `first_s` after the attempt began, or
    after `first_steps` steps, whichever is first: it measures the cost on which all later ones
    depend, and gives a young run, whose failures are likeliest, something to come back to. Not
    after the first step, which holds the compilation.
    """

    prior_failure_every_s: float = 4 * HOUR_S
    prior_loss_every_s: float = 24 * HOUR_S
    prior_weight: float = 1.0
    burst_s: float | None = None
    loss_weight: float = 1.0
    background_share: float = 0.05
    max_duty: float = 0.25
    min_s: float = 1.0
    max_s: float = HOUR_S
    first_s: float = 30.0
    first_steps: int = 20

    def __post_init__(self) -> None:
        if not (min(self.prior_failure_every_s, self.prior_loss_every_s, self.prior_weight) > 0):
            raise ValueError(
                f"a prior of {self.prior_weight} failures, one every "
                f"{self.prior_failure_every_s} s, says nothing: both must be positive"
            )
        if not (0 <= self.background_share <= 1 and 0 < self.max_duty <= 1):
            raise ValueError(
                f"shares of time lie between 0 and 1: background_share is "
                f"{self.background_share}, max_duty is {self.max_duty}"
            )
        if not self.loss_weight >= 1:
            raise ValueError(f"a loss that counts {self.loss_weight} times: at least once")
        if not 0 < self.min_s <= self.max_s:
            raise ValueError(f"no interval lies between {self.min_s} s and {self.max_s} s")
        if not (self.first_s >= 0 and self.first_steps >= 1):
            raise ValueError(
                f"a first save after {self.first_s} s or {self.first_steps} steps is impossible"
            )

    def holds(self, view: SaveView) -> bool:
        """Whether the newest set is as old as the best interval is long."""
        if view.save_total_ns <= 0:
            return view.steps_since >= self.first_steps or (
                view.since_ns >= self.first_s * SECOND_NS and view.steps_since > 1
            )
        return view.now_ns - view.last_committed_ns >= self.interval_s(view) * SECOND_NS

    def mtbf_s(self, view: SaveView) -> float:
        """The mean time between failures that prior and observation make likely."""
        is_behind = view.tier is Tier.DURABLE
        prior_s = self.prior_loss_every_s if is_behind else self.prior_failure_every_s
        observed_s = self.prior_weight * prior_s + view.observed_ns / SECOND_NS
        mean_s = observed_s / (self.prior_weight + view.failures_seen)
        if self.burst_s is None or view.calm_ns is None:
            return mean_s
        mean_s = min(mean_s, view.calm_ns / SECOND_NS + self.burst_s)
        if not view.recent_ns:
            return mean_s
        return min(
            mean_s, max(view.recent_ns / SECOND_NS, self.burst_s)
        )  # not wild in a crash loop

    def interval_s(self, view: SaveView) -> float:
        """The interval now."""
        return self._between(*self._bounds_s(view))

    def _between(self, best_s: float, floor_s: float) -> float:
        """The floor wins over the ceiling: a store that takes an hour cannot be written hourly."""
        return max(min(best_s, self.max_s), floor_s)

    def _bounds_s(self, view: SaveView) -> tuple[float, float]:
        """The interval that would be best, and the least that can be kept up."""
        blocked_s = view.save_blocked_ns / SECOND_NS
        total_s = max(view.save_total_ns / SECOND_NS, blocked_s)
        share = self.background_share
        if view.slowdown_ppm is not None:
            share = max(LEAST_SHARE, view.slowdown_ppm / 1e6)
        taken_s = view.taken_ns / SECOND_NS
        cost_s = blocked_s + taken_s + share * (total_s - blocked_s)
        best_s = exact_interval_s(cost_s, self.mtbf_s(view) / self.loss_weight)
        return best_s, max(self.min_s, total_s / self.max_duty)

    def why(self, view: SaveView) -> str:
        """The interval now, and what it follows from."""
        if view.save_total_ns <= 0:
            return (
                f"the first save, after {seconds_in_words(self.first_s)} or {self.first_steps} "
                "steps: it measures what a save costs"
            )
        best_s, floor_s = self._bounds_s(view)
        interval_s = self._between(best_s, floor_s)
        blocked_ns, total_ns = view.save_blocked_ns, max(view.save_blocked_ns, view.save_total_ns)
        why = (
            f"every {seconds_in_words(interval_s)}: a save blocks {in_words(blocked_ns)} and takes "
            f"{in_words(total_ns)}, failures every {seconds_in_words(self.mtbf_s(view))}"
        )
        if interval_s > best_s:
            limit = "writing would not keep up" if floor_s > self.min_s else "more would not help"
            why += f" ({seconds_in_words(best_s)} would be best, but {limit})"
        elif interval_s < best_s:
            why += f" ({seconds_in_words(best_s)} would be best, but that is much to lose)"
        return why

    def pace(self, view: SaveView) -> SaveFrequency:
        """How often: in steps for the memory tier, where a step's time is known, else in time."""
        if view.save_total_ns <= 0:
            return SaveFrequency(
                f"first after {seconds_in_words(self.first_s)} or {self.first_steps} steps"
            )
        interval_s = self.interval_s(view)
        total, mtbf = in_words(view.save_total_ns), seconds_in_words(self.mtbf_s(view))
        if view.tier is Tier.MEMORY:
            because = f"a copy blocks {in_words(view.save_blocked_ns)}"
            if view.taken_ns * TOLD_FROM >= view.save_blocked_ns > 0:
                because += f", its checksums take {in_words(view.taken_ns)} of busy processors"
            because += f" and {self._failures_in_words(view)}"
        elif view.tier is Tier.DURABLE:
            slows = view.slowdown_ppm or 0
            how = f", slowing the steps by {slows / 1e4:.1f} %," if slows >= TOLD_PPM else ""
            lost = "is lost" if view.failures_seen else "may be lost"
            because = f"a write to disk takes {total}{how} and memory {lost} every {mtbf}"
        else:
            because = f"a save takes {total} and failures come every {mtbf}"
        if view.tier is not Tier.MEMORY or view.step_time_ns <= 0:
            return SaveFrequency(f"every {seconds_in_words(interval_s)}", because, interval_s)
        step_s = view.step_time_ns / SECOND_NS
        steps = max(1, round(interval_s / step_s))
        return SaveFrequency(steps_in_words(steps), because, steps * step_s)

    def _failures_in_words(self, view: SaveView) -> str:
        mtbf_s = self.mtbf_s(view)
        if self.burst_s is None or view.calm_ns is None:
            return f"failures come every {seconds_in_words(mtbf_s)}"
        calm_s = view.calm_ns / SECOND_NS
        if mtbf_s < calm_s + self.burst_s:
            return f"failures come every {seconds_in_words(mtbf_s)}"
        since = "the last failure was" if view.failures_seen else "the run began"
        return f"{since} {seconds_in_words(calm_s)} ago"


LEAST_SHARE = 0.005  # of a flush's time: what no measurement of steps can tell from nothing

TOLD_PPM = 500  # 0.1 %: less is told as nothing

TOLD_FROM = 4  # what costs a quarter of the copy is worth a word

# Copies are cheap and failures of processes come in bursts. No copy is made twice in 5 ms, which is
# about what an order takes. What a seal takes is measured; where seals do not keep up, no buffer is
# free, which is bound enough. A lost step is done again by people who wait for it, on data that
# were seen: it counts twice.
IN_MEMORY = Optimal(
    burst_s=15.0,
    loss_weight=2.0,
    background_share=LEAST_SHARE,
    max_duty=1.0,
    min_s=0.005,
    max_s=600.0,
    first_s=1.0,
    first_steps=2,
)
