"""Drains: sets on their way from memory to the durable tier, one at a time.

A drain outlives the attempt that made its set. While one is under way, one more may wait; a newer
set takes the place of the one that waits. What fails is told, and the set is still in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.buffers import Kept


class Wanted(NamedTuple):
    """A set that is to become durable. `is_urgent`: somebody waits for it."""

    kept: Kept
    why: str
    is_urgent: bool = False


class Over(NamedTuple):
    """How a drain ended: `why_not` is empty when its set is durable."""

    kept: Kept
    why_not: str = ""


class Drains(NamedTuple):
    """The state of them all; every method gives the next one."""

    ranks: int
    under_way: Wanted | None = None
    durable: tuple[int, ...] = ()  # ranks whose shard is
    waiting: Wanted | None = None

    @property
    def pinned(self) -> tuple[int, ...]:
        """Buffers that must stay as they are."""
        wanted = (self.under_way, self.waiting)
        return tuple(one.kept.buffer for one in wanted if one is not None)

    @property
    def is_committing(self) -> bool:
        """Whether every shard is durable and the manifest is being written."""
        return len(self.durable) == self.ranks

    def want(self, wanted: Wanted) -> tuple[Drains, tuple[act.Action, ...]]:
        """Drain it now, or next; or faster, if it is under way and has become urgent.

        A copy of the same step elsewhere in memory is as good as the one under way.
        """
        now = self.under_way
        if now is None:
            return self._replace(under_way=wanted, durable=()), (_drain(wanted),)
        if now.kept.name == wanted.kept.name:
            if now.is_urgent or not wanted.is_urgent:
                return self, ()
            faster = now._replace(why=wanted.why, is_urgent=True)
            state = self._replace(under_way=faster)
            # Once all shards are written there is nothing left to be faster with.
            return state, () if self.is_committing else (_drain(faster),)
        waits = self.waiting
        if waits is not None and waits.kept == wanted.kept and waits.is_urgent:
            return self, ()
        return self._replace(waiting=wanted), ()

    def forget(self) -> Drains:
        """What waits is wanted no more: another attempt begins."""
        return self if self.waiting is None else self._replace(waiting=None)

    def drained(self, event: ev.Drained) -> tuple[Drains, tuple[act.Action, ...]]:
        """One rank's shard is durable; after the last, the manifest is due."""
        if not self.is_of(event) or event.rank in self.durable:
            return self, ()
        state = self._replace(durable=(*self.durable, event.rank))
        if not state.is_committing:
            return state, ()
        return state, (act.CommitDrained(event.of_attempt, event.epoch, event.step),)

    def ended(
        self, event: ev.DrainFailed | ev.DrainCommitted | ev.DrainCommitFailed
    ) -> tuple[Drains, Over | None, tuple[act.Action, ...]]:
        """The one under way is over, as the event says, and the one that waits begins."""
        if self.under_way is None or not self.is_of(event):
            return self, None, ()
        why_not = "" if isinstance(event, ev.DrainCommitted) else event.why
        over = Over(self.under_way.kept, why_not)
        state = self._replace(under_way=None, durable=(), waiting=None)
        if self.waiting is None:
            return state, over, ()
        state, actions = state.want(self.waiting)
        return state, over, actions

    def is_of(
        self,
        event: ev.Draining | ev.Drained | ev.DrainFailed | ev.DrainCommitted | ev.DrainCommitFailed,
    ) -> bool:
        """Whether that is news of the one under way."""
        if self.under_way is None:
            return False
        kept = self.under_way.kept
        of = (kept.attempt, kept.epoch, kept.step)
        return of == (event.of_attempt, event.epoch, event.step)


def _drain(wanted: Wanted) -> act.Drain:
    kept = wanted.kept
    return act.Drain(kept.attempt, kept.epoch, kept.step, kept.buffer, wanted.why, wanted.is_urgent)
