"""What the edges tell of a run that may hang: how the ranks were found, and where they stand.

Times are integer nanoseconds on the run's clock; 0 means never.
"""

from __future__ import annotations

from holdfast.core.value import value

# What a rank is doing, as its session says. A command without a session says nothing.
NO_SESSION = ""
STARTING = "starting"
TRAINING = "training"
WAITING = "waiting"  # saved for a stop; waits for our verdict
LOOP_ENDED = "loop_ended"
FINISHED = "finished"
FAILING = "failing"


@value
class RankLook:
    """One rank as it was found: its words, its process, and its pace so far.

    `step` was dispatched at `step_ns`. `complete_ns`: a step was last seen complete on the device.
    `awaited_ns`: since then the device is waited for, `behind` steps after the last complete one.
    `span`: the kind of the span that is open, since `span_ns`; `span_ended_ns`: one was last
    closed. `process` is the kernel's letter for its state (R, S, D, T, t, Z), `kernel` the function
    in which it sleeps. Of the steps of this attempt: how many intervals were measured, their
    median, and the longest since the last look.
    """

    rank: int
    doing: str = NO_SESSION
    step: int = 0
    step_ns: int = 0
    complete_ns: int = 0
    awaited_ns: int = 0
    behind: int = 0
    span: str = ""
    span_ns: int = 0
    span_ended_ns: int = 0
    process: str = ""
    kernel: str = ""
    samples: int = 0
    median_ns: int = 0
    longest_ns: int = 0


@value
class RankStack:
    """Where a rank's main thread stands: `where` is its innermost frame that is the user's own.

    `waits_for_others`: it is inside a collective. `how`: by which means it was found out.
    """

    rank: int
    where: str = ""
    waits_for_others: bool = False
    how: str = ""


@value
class Examined:
    """All ranks of the attempt were looked at."""

    at_ns: int
    attempt: int
    ranks: tuple[RankLook, ...]


@value
class StacksCollected:
    """Every rank was asked where it stands; those that could not answer have an empty `where`."""

    at_ns: int
    attempt: int
    ranks: tuple[RankStack, ...]


@value
class Suspended:
    """For `gap_ns` before now the machine, or we on it, did not run: what waited has not hung."""

    at_ns: int
    gap_ns: int
