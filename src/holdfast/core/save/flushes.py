"""Flushes: sets on their way from memory to the durable tier, one at a time.

A flush outlives the attempt that made its set. While one is under way, one more may wait; a newer
set takes the place of the one that waits. What fails is told, and the set is still in memory.

A flush gives way to the training (`FlushWatch`). On a host that is busy all the time, what gives
way may wait for ever. So a flush that is late gives way no longer: one that takes much longer than
they usually do, or beside which the next one has become due. Once that has happened, the next few
flushes do not even begin by giving way, and each time that one is late all the same, twice as many.
A store can also hang and never say so. A flush that writes nothing for far longer than a whole one
usually takes is given up, and the set is tried again by another process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import in_words
from holdfast.core.save.events import SetInBuffer

SECOND_NS = 1_000_000_000
LEAST_NS = SECOND_NS  # no flush is late before, whatever is due
SLOW = 4  # times what a flush usually takes: then it is late
SLOW_NS = 5 * SECOND_NS  # but not before
UNKNOWN_NS = 30 * SECOND_NS  # the same for the first one
FEWEST_AT_HAND, MOST_AT_HAND = 4, 64  # flushes that do not give way, after one that was late
SILENT = 20  # times what a flush usually takes, without a byte: it hangs
LONGEST_LOOK_NS = 60 * SECOND_NS  # between two looks; where it is more, the machine was asleep
DOUBLINGS = 4  # of the limit: a store that is only slow has its set in the end


class Wanted(NamedTuple):
    """A set that is to become durable. `is_urgent`: somebody waits for it."""

    kept: SetInBuffer
    why: str
    is_urgent: bool = False


class Over(NamedTuple):
    """How a flush ended: `why_not` is empty when its set is durable."""

    kept: SetInBuffer
    why_not: str = ""


@dataclass(slots=True)
class Flushes:
    """The state of them all."""

    under_way: Wanted | None = None
    shards: int | None = None  # of the one under way; None: nobody has said yet
    durable: set[int] = field(default_factory=set)  # of them, by rank
    waiting: Wanted | None = None

    @property
    def pinned(self) -> tuple[int, ...]:
        """Buffers that must stay as they are."""
        wanted = (self.under_way, self.waiting)
        return tuple(one.kept.buffer for one in wanted if one is not None)

    @property
    def is_committing(self) -> bool:
        """Whether every shard is durable and the manifest is being written."""
        return len(self.durable) == self.shards

    def want(self, wanted: Wanted) -> tuple[act.Action, ...]:
        """Flush it now, or next; or faster, if it is under way and has become urgent.

        A copy of the same step elsewhere in memory is as good as the one under way.
        """
        now = self.under_way
        if now is None:
            self.under_way, self.shards, self.durable = wanted, None, set()
            return (_flush(wanted),)
        if now.kept.name == wanted.kept.name:
            if now.is_urgent or not wanted.is_urgent:
                return ()
            self.under_way = now._replace(why=wanted.why, is_urgent=True)
            # Once all shards are written there is nothing left to be faster with.
            return () if self.is_committing else (_flush(self.under_way),)
        waits = self.waiting
        if waits is None or waits.kept != wanted.kept or not waits.is_urgent:
            self.waiting = wanted
        return ()

    def forget(self) -> None:
        """What waits is wanted no more: another attempt begins."""
        self.waiting = None

    def flushed(self, event: ev.Flushed) -> tuple[act.Action, ...]:
        """One rank's shard is durable; after the last, the manifest is due."""
        if not self.is_of(event) or event.rank in self.durable:
            return ()
        self.shards = event.of_ranks
        self.durable.add(event.rank)
        if not self.is_committing:
            return ()
        return (act.CommitFlushed(event.of_attempt, event.epoch, event.step, event.of_ranks),)

    def ended(
        self, event: ev.FlushFailed | ev.FlushCommitted | ev.FlushCommitFailed
    ) -> tuple[Over | None, tuple[act.Action, ...]]:
        """The one under way is over, as the event says, and the one that waits begins."""
        if self.under_way is None or not self.is_of(event):
            return None, ()
        why_not = "" if isinstance(event, ev.FlushCommitted) else event.why
        over, next_one = Over(self.under_way.kept, why_not), self.waiting
        self.under_way = self.shards = self.waiting = None
        self.durable = set()
        return over, () if next_one is None else self.want(next_one)

    def is_of(
        self,
        event: ev.Flushing | ev.Flushed | ev.FlushFailed | ev.FlushCommitted | ev.FlushCommitFailed,
    ) -> bool:
        """Whether that is news of the one under way."""
        if self.under_way is None:
            return False
        kept = self.under_way.kept
        of = (kept.attempt, kept.epoch, kept.step)
        return of == (event.of_attempt, event.epoch, event.step)


def _flush(wanted: Wanted) -> act.Flush:
    kept = wanted.kept
    return act.Flush(kept.attempt, kept.epoch, kept.step, kept.buffer, wanted.why, wanted.is_urgent)


@dataclass(slots=True)
class FlushWatch:
    """Of one run's flushes, one after the other.

    `patience_ns`: so long a store may be silent, unless flushes are known to take longer.
    `began_ns`: when the flush under way began, or the last one.
    """

    patience_ns: int
    began_ns: int = 0
    _of: SetInBuffer | None = None
    _looked_ns: int = 0
    _silent_ns: int = 0
    _nbytes: int = 0
    _given_up: int = 0  # in a row
    _at_hand: int = 0
    _left_at_hand: int = 0

    def begin(self, at_ns: int, kept: SetInBuffer) -> None:
        """Another one is under way, or the same still."""
        if kept != self._of:
            self._of, self.began_ns = kept, at_ns
            self._looked_ns, self._silent_ns, self._nbytes = at_ns, 0, 0

    def over(self, *, is_durable: bool) -> None:
        """It has ended."""
        self._of = None
        if is_durable:
            self._given_up = 0

    def late(self, at_ns: int, usual_ns: int, is_next_due: Callable[[], bool]) -> str:
        """Why the flush under way should give way no longer; empty: it may."""
        since_ns = at_ns - self.began_ns
        if since_ns < LEAST_NS:
            return ""
        limit_ns = max(SLOW_NS, SLOW * usual_ns) if usual_ns else UNKNOWN_NS
        is_late = since_ns >= limit_ns
        if not is_late and not is_next_due():
            return ""
        self._at_hand = min(max(FEWEST_AT_HAND, 2 * self._at_hand), MOST_AT_HAND)
        self._left_at_hand = self._at_hand
        return f"not done after {in_words(since_ns)}" if is_late else "the next checkpoint is due"

    def may_give_way(self) -> bool:
        """Whether the flush that begins now should: not if one was late a short while ago."""
        if not self._left_at_hand:
            return True
        self._left_at_hand -= 1
        return False

    def hangs(self, event: ev.Flushing, usual_ns: int) -> str:
        """Why to give up the flush under way; empty: it gets on."""
        self._silent_ns += min(max(0, event.at_ns - self._looked_ns), LONGEST_LOOK_NS)
        self._looked_ns = event.at_ns
        if event.nbytes != self._nbytes:
            self._nbytes, self._silent_ns = event.nbytes, 0
        limit_ns = max(self.patience_ns, SILENT * usual_ns) << min(self._given_up, DOUBLINGS)
        if self._silent_ns < limit_ns:
            return ""
        self._given_up += 1
        silent = in_words(self._silent_ns)
        return f"the run store has taken nothing for {silent} and does not say why"
