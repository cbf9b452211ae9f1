"""Flushes: sets on their way from memory to the durable tier, one at a time.

A flush outlives the attempt that made its set. While one is under way, one more may wait; a newer
set takes the place of the one that waits. What fails is told, and the set is still in memory.

A flush gives way to the training. On a host that is busy all the time, what gives way may wait for
ever. So a flush that is late gives way no longer: one that takes much longer than they usually do,
or beside which the next one has become due. Once that has happened, the next few flushes do not
even begin by giving way, and each time that one is late all the same, twice as many. A store can
also hang and never say so. A flush that writes nothing for far longer than a whole one usually
takes is given up, and the set is tried again by another process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.save.pace import latest, median
from holdfast.core.save.tier_events import AlikeDigests, SetInBuffer
from holdfast.core.save.word import MAX_BUFFERS

PATIENCE_NS = 300 * SECOND_NS
LEAST_NS = SECOND_NS  # no flush is late before, whatever is due
SLOW = 4  # times what a flush usually takes: then it is late
SLOW_NS = 5 * SECOND_NS  # but not before
UNKNOWN_NS = 30 * SECOND_NS  # the same for the first one
FEWEST_AT_HAND, MOST_AT_HAND = 4, 64  # flushes that do not give way, after one that was late
SILENT = 20  # times what a flush usually takes, without a byte: it hangs
LONGEST_LOOK_NS = 60 * SECOND_NS  # between two looks; where it is more, the machine was asleep
DOUBLINGS = 4  # of the limit: a store that is only slow has its set in the end
FIRST_RETRY_NS = SECOND_NS
LAST_RETRY_NS = 60 * SECOND_NS

FlushOver = ev.FlushFailed | ev.FlushCommitted | ev.FlushCommitFailed


class Wanted(NamedTuple):
    """A set that is to become durable. `is_urgent`: somebody waits for it."""

    kept: SetInBuffer
    why: str
    is_urgent: bool = False


@dataclass(slots=True)
class Flushes:
    """Those of one run, one after the other.

    `patience_ns`: so long a store may be silent, unless flushes are known to take longer.
    `again_ns`: after one that has failed, when to try another if nobody waits for it.
    """

    patience_ns: int = PATIENCE_NS
    under_way: Wanted | None = None
    waiting: Wanted | None = None
    again_ns: int = 0

    # Of the one under way, or the last one.
    began_ns: int = 0
    shards: int | None = None  # None: nobody has said yet how many there are
    durable: set[int] = field(default_factory=set)  # of them, by rank
    _nbytes: int = 0  # that the store has taken
    _looked_ns: int = 0
    _silent_ns: int = 0

    # Of the run.
    begun: int = 0
    _alike: tuple[tuple[tuple[int, int], AlikeDigests], ...] = ()  # of the newest sets, by name
    _took_ns: tuple[int, ...] = ()  # the last few
    _failed: int = 0  # in a row
    _given_up: int = 0  # likewise
    _at_hand: int = 0
    _left_at_hand: int = 0

    @property
    def pinned(self) -> tuple[int, ...]:
        """Buffers that must stay as they are."""
        wanted = (self.under_way, self.waiting)
        return tuple(one.kept.buffer for one in wanted if one is not None)

    @property
    def is_committing(self) -> bool:
        """Whether every shard is durable and the manifest is being written."""
        return len(self.durable) == self.shards

    @property
    def took_ns(self) -> int:
        """What a flush takes, from its start to its commit; 0: there was none yet."""
        return median(self._took_ns)

    # --- which one is next ------------------------------------------------------------------

    def want(self, at_ns: int, wanted: Wanted) -> tuple[act.Action, ...]:
        """Flush it now, or next; or faster, if it is under way and has become urgent.

        A copy of the same step elsewhere in memory is as good as the one under way.
        """
        now = self.under_way
        if now is None:
            return self._begin(at_ns, wanted)
        if now.kept.name == wanted.kept.name:
            if now.is_urgent or not wanted.is_urgent:
                return ()
            self.under_way = now._replace(why=wanted.why, is_urgent=True)
            # Once all shards are written there is nothing left to be faster with.
            return () if self.is_committing else (self._flush(self.under_way),)
        waits = self.waiting
        if waits is None or waits.kept != wanted.kept or not waits.is_urgent:
            self.waiting = wanted
        return ()

    def want_as_due(self, at_ns: int, kept: SetInBuffer, why: str) -> tuple[act.Action, ...]:
        """Flush it now: the policy says so. It gives way, unless one was late a short while ago."""
        gives_way = not self._left_at_hand
        if not gives_way:
            self._left_at_hand -= 1
        return self.want(at_ns, Wanted(kept, why, is_urgent=not gives_way))

    def _begin(self, at_ns: int, wanted: Wanted) -> tuple[act.Action, ...]:
        self.under_way, self.began_ns, self.shards, self.durable = wanted, at_ns, None, set()
        self.begun += 1
        self._looked_ns, self._silent_ns, self._nbytes = at_ns, 0, 0
        return (self._flush(wanted),)

    def note_alike(self, kept: SetInBuffer, alike: AlikeDigests) -> None:
        """A set is sealed, and all its hosts hold that alike."""
        if alike:
            self._alike = (*self._alike, (kept.name, alike))[-MAX_BUFFERS:]

    def _flush(self, wanted: Wanted) -> act.Flush:
        kept = wanted.kept
        of = kept.attempt, kept.epoch, kept.step, kept.buffer
        alike = dict(self._alike).get(kept.name, ())
        return act.Flush(*of, wanted.why, wanted.is_urgent, alike)

    def forget(self) -> None:
        """What waits is wanted no more: another attempt begins."""
        self.waiting = None

    # --- what becomes of the one under way --------------------------------------------------

    def flushed(self, event: ev.Flushed) -> tuple[act.Action, ...]:
        """One rank's shard is durable; after the last, the manifest is due."""
        if not self._is_of(event) or event.rank in self.durable:
            return ()
        self.shards = event.of_ranks
        self.durable.add(event.rank)
        if not self.is_committing:
            return ()
        return (act.CommitFlushed(event.of_attempt, event.epoch, event.step, event.of_ranks),)

    def ended(self, event: FlushOver) -> tuple[SetInBuffer | None, tuple[act.Action, ...]]:
        """The set whose flush is over, as the event says; the one that waits begins.

        None: it is news of another one. After a failure the policy's have to wait.
        """
        if self.under_way is None or not self._is_of(event):
            return None, ()
        if isinstance(event, ev.FlushCommitted):
            self._took_ns = latest(self._took_ns, max(1, event.at_ns - self.began_ns))
            self._failed = self._given_up = self.again_ns = 0
        else:
            self.again_ns = event.at_ns + min(FIRST_RETRY_NS << min(self._failed, 6), LAST_RETRY_NS)
            self._failed += 1
        kept, next_one = self.under_way.kept, self.waiting
        self.under_way = self.shards = self.waiting = None
        self.durable = set()
        return kept, () if next_one is None else self._begin(event.at_ns, next_one)

    def late(self, at_ns: int, is_next_due: Callable[[], bool]) -> str:
        """Why the flush under way should give way no longer; empty: it may, or does not."""
        now, since_ns = self.under_way, at_ns - self.began_ns
        if now is None or now.is_urgent or self.is_committing or since_ns < LEAST_NS:
            return ""
        usual_ns = self.took_ns
        limit_ns = max(SLOW_NS, SLOW * usual_ns) if usual_ns else UNKNOWN_NS
        is_late = since_ns >= limit_ns
        if not is_late and not is_next_due():
            return ""
        self._at_hand = min(max(FEWEST_AT_HAND, 2 * self._at_hand), MOST_AT_HAND)
        self._left_at_hand = self._at_hand
        return f"not done after {in_words(since_ns)}" if is_late else "the next checkpoint is due"

    def hangs(self, event: ev.Flushing) -> str:
        """Why to give up the flush under way; empty: it gets on."""
        if not self._is_of(event):
            return ""
        self._silent_ns += min(max(0, event.at_ns - self._looked_ns), LONGEST_LOOK_NS)
        self._looked_ns = event.at_ns
        if event.nbytes != self._nbytes:
            self._nbytes, self._silent_ns = event.nbytes, 0
        limit_ns = max(self.patience_ns, SILENT * self.took_ns) << min(self._given_up, DOUBLINGS)
        if self._silent_ns < limit_ns:
            return ""
        self._given_up += 1
        silent = in_words(self._silent_ns)
        return f"the run store has taken nothing for {silent} and does not say why"

    def _is_of(self, event: ev.Flushing | ev.Flushed | FlushOver) -> bool:
        if self.under_way is None:
            return False
        kept = self.under_way.kept
        of = (kept.attempt, kept.epoch, kept.step)
        return of == (event.of_attempt, event.epoch, event.step)
