"""What one virtual host does with its memory: it seals buffers, and flushes sealed sets."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.order import Hurry
from holdfast.core.hosts.report import HostReport
from holdfast.sim.clock import SECOND
from holdfast.sim.virtual.broken import require
from holdfast.sim.virtual.loop import Inputs, Source
from holdfast.sim.virtual.memory import CopiedShard
from holdfast.sim.virtual.shared import Shared

LOOK_NS = 1 * SECOND  # at a flush under way
SEALING, FLUSHING = "it is being sealed", "it is being flushed"


class MemoryWork:
    """The seals and flushes of the host of that number. `note`: something has come of one."""

    def __init__(
        self,
        world: Shared,
        number: int,
        heard: Inputs,
        report: HostReport,
        note: Callable[[ev.Event], None],
    ) -> None:
        self.is_lost = False  # with its host
        self._world = world
        self._number = number
        self._ranks = world.placement[number]
        self._heard = heard
        self._report = report
        self._note = note
        self._seal_free_ns = 0
        self._flush: act.Flush | None = None
        self._began: tuple[int, int, int] | None = None  # the last flush
        self._is_alone = len(world.placement) == 1

    @property
    def _is_over(self) -> bool:
        return self.is_lost or self._world.is_over

    def seal(self, action: act.Seal) -> None:
        """Seal sets one after the other, as one thread does."""
        world, memory = self._world, self._world.memory
        shard, buffer = CopiedShard(action.attempt, action.epoch, action.step), action.buffer
        memory.pin(self._number, buffer, SEALING)
        names = (action.attempt, action.epoch, action.step, buffer)

        def sealed() -> None:
            if self._is_over:
                return  # it ends with the supervisor that it is a child of
            memory.unpin(self._number, buffer, SEALING)
            may_be_gone = memory.has_vanished or not self._is_alone
            is_gone = may_be_gone and not memory.holds(self._number, buffer, shard)
            if world.seals_fail or is_gone:
                outcome: ev.Event = ev.SealFailed(world.now_ns, *names, "no space left")
            else:
                memory.seal(self._number, buffer, shard)
                outcome = ev.Sealed(world.now_ns, *names)
            self._heard.give(Source.MEMORY, lambda: self._note(outcome))

        self._seal_free_ns = max(world.now_ns, self._seal_free_ns) + world.taking.next_ns(
            "seal_ns", world.shape.seal_ns
        )
        world.clock.at(self._seal_free_ns, sealed)

    def flush(self, action: act.Flush) -> None:
        """The shards of this host's ranks, one after the other."""
        world, memory = self._world, self._world.memory
        if self._is_alone:
            require(self._flush is None, "two flushes at a time")
        self._end()  # it has failed on another host
        self._began = (action.attempt, action.epoch, action.step)
        here = memory.seals.get((self._number, action.buffer))
        if here is None and (memory.has_vanished or not self._is_alone):
            self._report.begin_flush()
            gone = self._gone(action)
            self._heard.give(Source.MEMORY, lambda: self._note(gone))
            return
        is_it = here is not None and (here.attempt, here.step) == (action.attempt, action.step)
        require(is_it, f"{action}: {here} is sealed there")
        require(action.epoch in (0, here.epoch if here else 0), f"{action}: {here} is sealed there")
        self._report.begin_flush()
        memory.pin(self._number, action.buffer, FLUSHING)
        self._flush = action
        world.clock.later(LOOK_NS, lambda: self._flushing(action))
        if not world.flush_starves or action.urgent:
            self._write_on(action, 0)

    def replicate(self, action: act.Replicate) -> None:
        """The part of the host before this one comes here, if it is there by then."""
        world, memory = self._world, self._world.memory
        of = (action.attempt, action.epoch, action.step)

        def done() -> None:
            if self._is_over:
                return
            name = (action.attempt, action.step)
            is_done = memory.replicate(self._number, action.buffer, name, action.kept)
            failed = ev.NotReplicated(world.now_ns, *of, "it is not there any more")
            outcome = ev.Replicated(world.now_ns, *of) if is_done else failed
            self._heard.give(Source.MEMORY, lambda: self._note(outcome))

        world.clock.later(world.shape.peers_ns, done)

    def _gone(self, action: act.Flush) -> ev.FlushFailed:
        of = (action.attempt, action.epoch, action.step)
        return ev.FlushFailed(self._world.now_ns, *of, "it is gone", is_gone=True)

    def hurry(self, action: Hurry) -> None:
        """It goes on, faster; one that had no turn gets one."""
        flush = self._flush
        if flush is not None and flush.step == action.step and self._world.flush_starves:
            self._write_on(flush, 0)

    def abandon(self, action: act.AbandonFlush) -> None:
        """If it is not over yet; it may never have begun here."""
        of = (action.attempt, action.epoch, action.step)
        if self._flush is None and self._began == of:
            return
        self._end()
        self._note(ev.FlushFailed(self._world.now_ns, *of, action.why))

    def _end(self) -> None:
        flush, self._flush = self._flush, None
        if flush is not None and not self.is_lost:
            self._world.memory.unpin(self._number, flush.buffer, FLUSHING)

    def _flushing(self, action: act.Flush) -> None:
        world, flush = self._world, self._flush
        of = (action.attempt, action.epoch, action.step)
        if flush is not None and (flush.attempt, flush.epoch, flush.step) == of:
            world.clock.later(LOOK_NS, lambda: self._flushing(action))
            look = lambda: self._note(ev.Flushing(world.now_ns, *of, 0))  # noqa: E731
            self._heard.give(Source.MEMORY, look)

    def _write_on(self, action: act.Flush, place: int) -> None:
        """The shard of the rank in that place among those here."""
        self._world.clock.later(self._world.shape.flush_ns, lambda: self._written(action, place))

    def _written(self, action: act.Flush, place: int) -> None:
        world, store = self._world, self._world.store
        if action is not self._flush or self._is_over:
            return
        if store.is_hung:
            store.waiting.append(lambda: self._written(action, place))
            return
        names = (action.epoch, action.step)
        if (self._number, action.buffer) not in world.memory.seals:
            self._tell(action, self._gone(action), is_over=True)
            return
        if store.is_full or store.is_away:
            why = "no space left" if store.is_full else "the run store cannot be reached"
            failed = ev.FlushFailed(world.now_ns, action.attempt, *names, why)
            self._tell(action, failed, is_over=True)
            return
        rank = self._ranks[place]
        store.shards.add((action.attempt, action.step, rank))
        is_last = place + 1 == len(self._ranks)
        if not is_last:
            self._write_on(action, place + 1)
        done = ev.Flushed(world.now_ns, action.attempt, rank, *names, of_ranks=world.shape.ranks)
        self._tell(action, done, is_over=is_last)

    def _tell(self, action: act.Flush, event: ev.Event, *, is_over: bool) -> None:
        def hear() -> None:
            if action is self._flush and not self._is_over:
                if is_over:
                    self._end()
                self._note(event)

        self._heard.give(Source.MEMORY, hear)
