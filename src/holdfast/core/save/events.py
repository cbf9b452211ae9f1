"""What the edges tell of saves (past facts), and what the agreement answers (imperatives).

The edge reads each rank's words, turns what changed into events with `core.save.ranks.changes`, and
feeds them to `core.save.agree.step`. Times are integer nanoseconds on one monotonic clock.
"""

from __future__ import annotations

from holdfast.core.value import value

DEFAULT_ANSWER_LIMIT_NS = 1_000_000_000


@value
class SaveDue:
    """The policy or a person wants a save; training goes on.

    `lead` is how many boundaries ahead of the fastest rank it is ordered (see `lead_steps`).
    `in_memory`: copies in a buffer are all that is wanted, so it is over when all ranks have them.
    `in_step`: a step is known to be under way, so there will be something new to save.
    """

    at_ns: int
    why: str
    lead: int = 1
    in_memory: bool = False
    in_step: bool = False


@value
class StopDue:
    """Save and leave. `leave_by_ns`: when leaving must begin, saved or not; None: no deadline.

    `answer_limit_ns` is how long a rank that has reached the step may go without a snapshot while
    others wait for it: above the time of a copy.
    """

    at_ns: int
    why: str
    leave_by_ns: int | None = None
    lead: int = 1
    answer_limit_ns: int = DEFAULT_ANSWER_LIMIT_NS


@value
class StopMoved:
    """What a stop was asked for comes at another time: leaving must begin by then; None: never."""

    at_ns: int
    leave_by_ns: int | None


@value
class Progress:
    """A rank has published boundary `step`."""

    at_ns: int
    rank: int
    step: int


@value
class LoopEnded:
    """A rank's loop is over; `step` was its last, and answers every later order.

    `until`: the last one that the script wanted; 0: nobody knows.
    """

    at_ns: int
    rank: int
    step: int
    until: int = 0


@value
class Taken:
    """A rank answers `epoch` with `step`, and its copy is under way: into that buffer, or none.

    `waits`: it begins when all have taken the step.
    """

    at_ns: int
    rank: int
    epoch: int
    step: int
    buffer: int | None = None
    waits: bool = False


@value
class Snapped:
    """A rank has copied `step` in answer to `epoch`: the copy that it took is there."""

    at_ns: int
    rank: int
    epoch: int
    step: int


@value
class Durable:
    """A rank's shard of `step` is durable, its receipt written."""

    at_ns: int
    rank: int
    epoch: int
    step: int


@value
class SaveFailed:
    """A rank could not copy or write its shard."""

    at_ns: int
    rank: int
    epoch: int
    step: int


@value
class RankGone:
    """A rank's process is no more, or its host is not."""

    at_ns: int
    rank: int


@value
class Committed:
    """The set of `step` is complete: its manifest is durable."""

    at_ns: int
    epoch: int
    step: int


@value
class CommitFailed:
    """The manifest could not be written."""

    at_ns: int
    epoch: int
    step: int
    why: str


@value
class NotWritten:
    """What all ranks had copied into a buffer could not be sealed, or not be made durable.

    `is_sealed`: it is in its buffer still, and restores from there.
    """

    at_ns: int
    epoch: int
    step: int
    why: str
    is_sealed: bool = False


@value
class DurableBeside:
    """A set of this lineage became durable beside the agreement: one of memory was flushed."""

    at_ns: int
    step: int


@value
class Tick:
    """Nothing but time has passed; due at `core.save.agree.wake_at_ns`."""

    at_ns: int


Event = (
    SaveDue
    | StopDue
    | StopMoved
    | Progress
    | LoopEnded
    | Taken
    | Snapped
    | Durable
    | SaveFailed
    | RankGone
    | Committed
    | CommitFailed
    | NotWritten
    | DurableBeside
    | Tick
)


@value
class PublishOrder:
    """Store the ORDER word of every rank."""

    epoch: int
    step: int
    flags: int
    reason: str


@value
class PublishVerdict:
    """Store the VERDICT word of every rank; with COMMITTED, first the COMMITTED word."""

    epoch: int
    step: int
    flags: int
    reason: str


@value
class Commit:
    """Every rank's shard is durable: write the manifest; answer Committed or CommitFailed."""

    epoch: int
    step: int


@value
class SealBuffer:
    """Every rank has copied that step into the buffer: it may be sealed.

    Where a save is to be durable, answer Committed or NotWritten when that is decided.
    """

    epoch: int
    step: int
    buffer: int


@value
class Abort:
    """Nothing will come of this epoch: shards already written for it may be collected."""

    epoch: int
    step: int
    reason: str


@value
class MakeRoom:
    """That step could not be saved: delete now what retention would delete once it is."""

    step: int


@value
class Hold:
    """The last step could not be saved: wait; it is tried again until `until_ns`."""

    at_ns: int
    step: int
    why: str
    until_ns: int


@value
class LetRanksLeave:
    """The last step is sealed in memory, and the store takes no save: the ranks may leave.

    Store the COMMITTED word of every rank. Who holds the memory makes the step durable.
    """

    at_ns: int
    step: int
    why: str


@value
class Refuse:
    """A request was not taken up; ask again later if it still matters."""

    reason: str


Action = (
    PublishOrder
    | PublishVerdict
    | Commit
    | SealBuffer
    | Abort
    | MakeRoom
    | Hold
    | LetRanksLeave
    | Refuse
)
