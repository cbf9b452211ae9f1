"""When a failed run starts again: small policies that compose with `|`.

    policy = HopelessCauses() | SameFailure(times=2) | Budget(failures=10) | BackOff() | CrashLoop()

Each part looks at the failures so far, oldest first, and answers with a decision and a reason.
Of several parts, one that gives up wins; else the longest delay does. Progress refills everything
but `CrashLoop`: what counts is the row of failures since a step was last completed that no attempt
had before.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.exits import ExitCause, may_pass
from holdfast.core.value import value


@value
class Failure:
    """An attempt that ended without being done.

    `completed_before` and `completed_after`: the highest step that any attempt had completed when
    this one began, and when it ended. `signature` as of `core.exits.signature`. `asked_rollback`:
    the script gave up and asked to go back; the attempts after it count from there.
    `is_from_script` as of `core.exits.is_from_script`. `is_earlier`: it was under an earlier
    supervisor, and counts for a crash loop alone.
    """

    attempt: int
    cause: ExitCause
    signature: str
    completed_before: int
    completed_after: int
    at_ns: int
    asked_rollback: bool = False
    is_from_script: bool = False
    is_earlier: bool = False

    @property
    def made_progress(self) -> bool:
        """Whether it completed a step that no attempt had completed before it."""
        return self.completed_after > self.completed_before

    @property
    def how(self) -> str:
        """Its signature without the cause, for people: `ValueError at train.py:41`."""
        return self.signature.partition(": ")[2] or self.signature


@value
class Restart:
    """Start the next attempt in `delay_ns` nanoseconds.

    `alike`: so many failures in the same way are a crash loop, that somebody should know of; 0: it
    is none.
    """

    delay_ns: int = 0
    alike: int = 0


@value
class GiveUp:
    """Do not start again: a person has to look."""


Decision = Restart | GiveUp
AT_ONCE = Restart()
NOTHING_AGAINST_IT = AT_ONCE, ""  # what a part says that has nothing to say

# Ends that the next attempt will most likely repeat, if it gets no further.
REPEATABLE = (
    ExitCause.USER_ERROR,
    ExitCause.EXITED_EARLY,
    ExitCause.OUT_OF_MEMORY,
    ExitCause.BAD_CHECKPOINT,
)
# Ends that the budget of failures is not charged for.
FREE = (ExitCause.PREEMPTED, ExitCause.STOPPED)


class RestartPolicy:
    """Base of the parts. `a | b` gives up if either does, and waits for the longer delay."""

    __slots__ = ()

    @property
    def looks_back_ns(self) -> int:
        """How old the failures with progress may be that it looks at; 0: at none of them."""
        return 0

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:
        """What to do after the last of `failures` (oldest first, not empty)."""
        raise NotImplementedError

    def __or__(self, other: RestartPolicy) -> RestartPolicy:
        return AllOf((*_parts(self), *_parts(other)))


@value
class AllOf(RestartPolicy):
    """Several policies in one, which is what `|` makes."""

    parts: tuple[RestartPolicy, ...]

    @property
    def looks_back_ns(self) -> int:
        """The longest time of any part."""
        return max([part.looks_back_ns for part in self.parts], default=0)

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:
        """The first part that gives up; else the longest delay, the earlier part's on a tie."""
        if not self.parts:
            return AT_ONCE, "nothing speaks against it"
        delay_ns, why, alike = 0, "", 0
        for part in self.parts:
            answer = decision, reason = part.decide(failures, now_ns)
            if answer is NOTHING_AGAINST_IT:
                continue
            if isinstance(decision, GiveUp):
                return answer
            if decision.delay_ns > delay_ns or (not why and decision.delay_ns == delay_ns):
                delay_ns, why = decision.delay_ns, reason
            if decision.alike > alike:
                alike = decision.alike
        return Restart(delay_ns, alike) if delay_ns or alike else AT_ONCE, why


def _parts(policy: RestartPolicy) -> tuple[RestartPolicy, ...]:
    return policy.parts if isinstance(policy, AllOf) else (policy,)


def without_progress(failures: Sequence[Failure]) -> Sequence[Failure]:
    """The row of failures at the end, under this supervisor, that completed no new step."""
    count = 0
    for failure in reversed(failures):
        if failure.made_progress or failure.is_earlier:
            break
        count += 1
    return failures[len(failures) - count :]


def still_judged(failures: Sequence[Failure], since_ns: int) -> tuple[Failure, ...]:
    """Those that any later decision may look at: the others need only be counted.

    They are the row without progress, the failure before it, which got as far as the place where
    all of them fail, those whose scripts asked to go back (`rollback.progress_from`), and the
    scripts' own since a moment.
    """
    first = len(failures) - len(without_progress(failures)) - 1
    return tuple(
        [
            one
            for n, one in enumerate(failures)
            if n >= first or one.asked_rollback or (one.is_from_script and one.at_ns > since_ns)
        ]
    )


@value
class HopelessCauses(RestartPolicy):
    """Give up at once where starting again cannot help."""

    causes: tuple[ExitCause, ...] = (ExitCause.CONFIGURATION,)

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """Look at the last failure alone."""
        if failures[-1].cause in self.causes:
            return GiveUp(), "starting again cannot help"
        return NOTHING_AGAINST_IT


@value
class SameFailure(RestartPolicy):
    """Give up when the program fails in the same way `times` times and gets no further.

    Only ends of the program's own making count (`causes`), and ends from outside in between
    (a preemption, a SIGKILL) neither count nor clear the count. The first of them may have made
    progress: it got as far as the place where all of them fail. What `may_pass` is waited for.
    """

    times: int = 2
    causes: tuple[ExitCause, ...] = REPEATABLE

    def __post_init__(self) -> None:
        if self.times < 2:
            raise ValueError(f"times is {self.times}; the same failure needs at least two")

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """Count the last failure's likes since the attempt that last made progress, it included."""
        last = failures[-1]
        if last.cause not in self.causes or may_pass(last.signature):
            return NOTHING_AGAINST_IT
        row = without_progress(failures)
        if not row:
            return NOTHING_AGAINST_IT
        first = max(0, len(failures) - len(row) - 1)
        same = [
            one
            for one in failures[first:]
            if one.signature == last.signature and not one.is_earlier
        ]
        if len(same) < self.times:
            return NOTHING_AGAINST_IT
        attempts = ", ".join(str(f.attempt) for f in same)
        return GiveUp(), (
            f"attempts {attempts} failed in the same way ({last.how}) "
            f"and none got past step {last.completed_after}"
        )


@value
class Budget(RestartPolicy):
    """Give up after `failures` failures in a row without progress. Preemptions are free."""

    failures: int = 10

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"a budget of {self.failures} failures never lets a run start")

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """Count the row at the end."""
        row = without_progress(failures)
        count = len(row)
        if count >= self.failures:
            count = sum(failure.cause not in FREE for failure in row)
        if count >= self.failures:
            return GiveUp(), (
                f"{count} failures in a row without a new step: the budget of "
                f"{self.failures} is spent"
            )
        return NOTHING_AGAINST_IT


@value
class BackOff(RestartPolicy):
    """At once after progress; else `first_s`, times `factor` for each more in a row, to `cap_s`.

    A bad checkpoint is no reason to wait: the next attempt starts from another one.
    """

    first_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 300.0

    def __post_init__(self) -> None:
        if not (0 <= self.first_s <= self.cap_s and self.factor >= 1):
            raise ValueError(
                f"a back-off from {self.first_s} s by a factor of {self.factor} "
                f"up to {self.cap_s} s does not grow"
            )

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """The delay follows from the row's length alone."""
        count = len(without_progress(failures))
        last = failures[-1]
        if count == 0:
            done = last.completed_after - last.completed_before
            steps = "1 new step" if done == 1 else f"{done} new steps"
            return AT_ONCE, f"attempt {last.attempt} made {steps}"
        if last.cause is ExitCause.BAD_CHECKPOINT:
            return AT_ONCE, "the next attempt starts from another checkpoint"
        who = f"attempt {last.attempt}" if count == 1 else f"the last {count} attempts"
        delay_ns = _grown_ns(self.first_s, self.factor, count - 1, self.cap_s)
        return Restart(delay_ns), f"{who} made no new step"


@value
class CrashLoop(RestartPolicy):
    """Wait longer and longer while the script fails in the same way, however far it gets each time.

    `times` such failures within `within_s` are a crash loop. Ends from outside in between neither
    count nor clear the count. It never gives up: the run makes progress, at a price.
    """

    times: int = 5
    within_s: float = 3600.0
    first_s: float = 15.0
    factor: float = 2.0
    cap_s: float = 300.0

    def __post_init__(self) -> None:
        if self.times < 2:
            raise ValueError(f"times is {self.times}; a crash loop needs at least two failures")

    @property
    def looks_back_ns(self) -> int:
        """Older failures do not count."""
        return round(self.within_s * SECOND_NS)

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:
        """Count the last failure's likes of late, it included."""
        last = failures[-1]
        if not last.is_from_script:
            return NOTHING_AGAINST_IT
        alike = [
            one
            for one in failures
            if one.is_from_script
            and one.signature == last.signature
            and one.at_ns > now_ns - self.looks_back_ns
        ]
        more = len(alike) - self.times
        if more < 0:
            return NOTHING_AGAINST_IT
        delay_ns = _grown_ns(self.first_s, self.factor, more, self.cap_s)
        span = in_words(now_ns - alike[0].at_ns)
        return Restart(delay_ns, len(alike)), (
            f"the script failed {len(alike)} times in {span} in the same way ({last.how})"
        )


def _grown_ns(first_s: float, factor: float, times: int, cap_s: float) -> int:
    """The first wait, grown so often, and no longer than the cap."""
    # The exponent is bounded so that a float never overflows; the cap is long reached then.
    return round(min(cap_s, first_s * factor ** min(times, 60)) * SECOND_NS)


# A deadlock of the program's own comes back at the same place; so does a network that is away for
# an hour. A hang therefore gets one chance more than a bug, and each time a longer deadline.
SAME_HANG = SameFailure(times=3, causes=(ExitCause.HANG,))

DEFAULT: RestartPolicy = (
    HopelessCauses() | SameFailure() | SAME_HANG | Budget() | BackOff() | CrashLoop()
)
