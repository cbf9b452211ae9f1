"""What the edges tell of the memory tier: of its buffers, and of the sets that lie in them.

It is about a set in a buffer, not about an attempt that must still be there. Times are integer
nanoseconds on one monotonic clock.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.save.corruption import ReplicaDifference
from holdfast.core.value import value

AlikeDigests = tuple[tuple[str, str], ...]
"""Of each section (a path of the tree that belongs to the run), what ranks hold alike below it."""


class SetInBuffer(NamedTuple):
    """A set that lies in a buffer: who wrote it, under which epoch, and of which step it is."""

    attempt: int
    epoch: int
    step: int
    buffer: int

    @property
    def name(self) -> tuple[int, int]:
        """What makes it a set: copies of one step in one attempt are alike."""
        return self.attempt, self.step


@value
class BuffersReady:
    """A rank has so many buffers of the memory tier allocated and touched, or says so."""

    at_ns: int
    attempt: int
    rank: int
    buffers: int


@value
class Sealed:
    """Every rank's shard in a buffer has its checksum, and the set its manifest: it restores.

    `of_attempt` wrote it; it need not run any more. The same holds for the events below. `alike`:
    with several hosts, what all of them hold alike.

    `is_compared`: on one host, that what the framework keeps equal on all ranks was whole on each
    of them; `differing`: what of it was not the same. `taken_ns`: of processors' time, that the
    training would have had.
    """

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    buffer: int
    alike: AlikeDigests = ()
    is_compared: bool = False
    differing: tuple[ReplicaDifference, ...] = ()
    taken_ns: int = 0


@value
class Compared:
    """The same of a set that the ranks of one host have written to the store, in place of a buffer.

    It is durable. `differing`: what the framework keeps equal on all ranks, and is not in this set.
    """

    at_ns: int
    of_attempt: int
    step: int
    differing: tuple[ReplicaDifference, ...] = ()


@value
class SealFailed:
    """What is in the buffer is no set, and will be none. `is_lost`: one of its hosts is gone."""

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    buffer: int
    why: str
    is_lost: bool = False


@value
class Replicated:
    """Each part of a sealed set is in the memory of another host, too.

    `differing`: arrays that were the same on these hosts before, and are not in this set.
    """

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    differing: tuple[ReplicaDifference, ...] = ()


@value
class NotReplicated:
    """Some host could not copy the part of its neighbour."""

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    why: str


@value
class Flushing:
    """A flush is under way still, and has given the store so many bytes; reported now and then."""

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    nbytes: int


@value
class Flushed:
    """One rank's shard of a set in memory is durable, its receipt written.

    `of_ranks`: how many shards the set has; another number of ranks than run now may have made it.
    """

    at_ns: int
    of_attempt: int
    rank: int
    epoch: int
    step: int
    of_ranks: int


@value
class FlushFailed:
    """A set in memory could not be written to the durable tier; it is still in its buffer.

    `is_gone`: it is not, or not as it was sealed.
    """

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    why: str
    is_gone: bool = False


@value
class FlushCommitted:
    """The manifest of a flushed set is durable: it restores from the durable tier too."""

    at_ns: int
    of_attempt: int
    epoch: int
    step: int


@value
class FlushCommitFailed:
    """The manifest of a flushed set could not be written."""

    at_ns: int
    of_attempt: int
    epoch: int
    step: int
    why: str


# Those that are taken in every state: they may be of an attempt that is long over.
TierEvent = (
    Sealed
    | SealFailed
    | Replicated
    | NotReplicated
    | Flushing
    | Flushed
    | FlushFailed
    | FlushCommitted
    | FlushCommitFailed
)
