"""When a failed run starts again: small policies that compose with `|`.

    policy = HopelessCauses() | SameFailure(times=2) | Budget(failures=10) | BackOff(cap_s=300)

Each part looks at the failures so far, oldest first, and answers with a decision and a reason.
Of several parts, one that gives up wins; else the longest delay does. Progress refills everything:
what counts is the row of failures since a step was last completed that no attempt had before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.exits import ExitCause

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that ended without being done.

    `completed_before` and `completed_after`: the highest step that any attempt had completed when
    this one began, and when it ended. `signature` as of `core.exits.signature`. `asked_rollback`:
    the script gave up and asked to go back; the attempts after it count from there.
    """

    attempt: int
    cause: ExitCause
    signature: str
    completed_before: int
    completed_after: int
    at_ns: int
    asked_rollback: bool = False

    @property
    def made_progress(self) -> bool:
        """Whether it completed a step that no attempt had completed before it."""
        return self.completed_after > self.completed_before


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the next attempt in `delay_ns` nanoseconds."""

    delay_ns: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start again: a person has to look."""


Decision = Restart | GiveUp
NOTHING_AGAINST_IT = Restart(), ""  # what a part says that has nothing to say

# Ends that somebody else brings about: they say nothing about the program.
FROM_OUTSIDE = (
    ExitCause.PREEMPTED,
    ExitCause.STOPPED,
    ExitCause.HOST_LOST,
    ExitCause.KILLED,
    ExitCause.PEER_LOST,
)
# Ends that the next attempt will most likely repeat, if it gets no further.
REPEATABLE = (
    ExitCause.USER_ERROR,
    ExitCause.EXITED_EARLY,
    ExitCause.OUT_OF_MEMORY,
    ExitCause.BAD_CHECKPOINT,
)


FREE = (ExitCause.PREEMPTED, ExitCause.STOPPED)


class RestartPolicy:
    """Base of the parts. `a | b` gives up if either does, and waits for the longer delay."""

    __slots__ = ()

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:
        """What to do after the last of `failures` (oldest first, not empty)."""
        raise NotImplementedError

    def __or__(self, other: RestartPolicy) -> RestartPolicy:
        return AllOf((*_parts(self), *_parts(other)))


@dataclass(frozen=True, slots=True)
class AllOf(RestartPolicy):
    """What `|` makes."""

    parts: tuple[RestartPolicy, ...]

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:
        """The first part that gives up; else the longest delay, the earlier part's on a tie."""
        best: tuple[Restart, str] | None = None
        for part in self.parts:
            decision, reason = part.decide(failures, now_ns)
            if isinstance(decision, GiveUp):
                return decision, reason
            better = best is None or decision.delay_ns > best[0].delay_ns
            if better or (best and not best[1] and decision.delay_ns == best[0].delay_ns):
                best = decision, reason
        return best or (Restart(), "nothing speaks against it")


def _parts(policy: RestartPolicy) -> tuple[RestartPolicy, ...]:
    return policy.parts if isinstance(policy, AllOf) else (policy,)


def without_progress(failures: Sequence[Failure]) -> Sequence[Failure]:
    """The row of failures at the end that completed no new step."""
    count = 0
    for failure in reversed(failures):
        if failure.made_progress:
            break
        count += 1
    return failures[len(failures) - count :]


def still_judged(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Those that any later decision may look at: the others need only be counted.

    They are the row without progress, the failure before it, which got as far as the place where
    all of them fail, and those whose scripts asked to go back (`rollback.progress_from`).
    """
    first = len(failures) - len(without_progress(failures)) - 1
    return tuple([one for n, one in enumerate(failures) if n >= first or one.asked_rollback])


@dataclass(frozen=True, slots=True)
class HopelessCauses(RestartPolicy):
    """Give up at once where starting again cannot help."""

    causes: tuple[ExitCause, ...] = (ExitCause.CONFIGURATION,)

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """Look at the last failure alone."""
        if failures[-1].cause in self.causes:
            return GiveUp(), f"starting again cannot help: {failures[-1].signature}"
        return NOTHING_AGAINST_IT


@dataclass(frozen=True, slots=True)
class SameFailure(RestartPolicy):
    """Give up when the program fails in the same way `times` times and gets no further.

    Only ends of the program's own making count (`causes`), and ends from outside in between
    (a preemption, a SIGKILL) neither count nor clear the count. The first of them may have made
    progress: it got as far as the place where all of them fail.
    """

    times: int = 2
    causes: tuple[ExitCause, ...] = REPEATABLE

    def __post_init__(self) -> None:
        if self.times < 2:
            raise ValueError(f"times is {self.times}; the same failure needs at least two")

    def decide(self, failures: Sequence[Failure], now_ns: int) -> tuple[Decision, str]:  # noqa: ARG002 - the protocol
        """Count the last failure's likes since the attempt that last made progress, it included."""
        last = failures[-1]
        if last.cause not in self.causes:
            return NOTHING_AGAINST_IT
        row = without_progress(failures)
        if not row:
            return NOTHING_AGAINST_IT
        first = max(0, len(failures) - len(row) - 1)
        same = [f for f in failures[first:] if f.signature == last.signature]
        if len(same) < self.times:
            return NOTHING_AGAINST_IT
        attempts = ", ".join(str(f.attempt) for f in same)
        return GiveUp(), (
            f"attempts {attempts} failed in the same way ({last.signature}) "
            f"and none got past step {last.completed_after}"
        )


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        if count == 0:
            last = failures[-1]
            done = last.completed_after - last.completed_before
            return Restart(), f"at once, since attempt {last.attempt} completed {done} new steps"
        if failures[-1].cause is ExitCause.BAD_CHECKPOINT:
            return Restart(), "at once, from another checkpoint"
        # The exponent is bounded so that a float never overflows; the cap is long reached then.
        delay_s = min(self.cap_s, self.first_s * self.factor ** min(count - 1, 60))
        ordinal = "" if count == 1 else f", {count} times in a row"
        return Restart(round(delay_s * SECOND_NS)), f"no new step was completed{ordinal}"


# A deadlock of the program's own comes back at the same place; so does a network that is away for
# an hour. A hang therefore gets one chance more than a bug, and each time a longer deadline.
SAME_HANG = SameFailure(times=3, causes=(ExitCause.HANG,))

DEFAULT: RestartPolicy = HopelessCauses() | SameFailure() | SAME_HANG | Budget() | BackOff()
