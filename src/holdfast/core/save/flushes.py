"""Flushes: sets on their way from memory to the durable tier, one at a time.

A flush outlives the attempt that made its set. While one is under way, one more may wait; a newer
set takes the place of the one that waits. What fails is told, and the set is still in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save.buffers import SetInBuffer


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
