"""Where the sets of a simulated run lie: in the memory of its hosts, and in the run store."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save.choose import SealedSet, SeenSets, StoredSet
from holdfast.sim.clock import VirtualClock

Set = tuple[int, int]  # the attempt that wrote it, and the step


class Tiers:
    """The newest set of each tier that is on the lineage.

    Seals take no time, and manifests neither: what the edges do there is short.
    """

    def __init__(
        self, clock: VirtualClock, feed: Callable[[ev.Event], None], write_ns: int, *, peers: bool
    ) -> None:
        """`write_ns`: what a flush takes. `peers`: each host's memory is on another host too."""
        self._clock = clock
        self._feed = feed
        self._write_ns = write_ns
        self._peers = peers
        self._attempt = 0  # the newest
        self._limits: dict[int, int] = {}  # of its ancestors, the steps that later ones start from
        self._durable: Set | None = None
        self._memory: Set | None = None
        self._buffer = 0
        self._flush: act.Flush | None = None

    def seen(self) -> SeenSets:
        """What the next attempt may start from."""
        stored = () if self._durable is None else (StoredSet(*self._durable),)
        sealed = () if self._memory is None else (SealedSet(*self._memory, self._buffer),)
        attempts = sorted({one.attempt for one in (*stored, *sealed)}, reverse=True)
        chain = tuple([(attempt, None) for attempt in attempts])
        return SeenSets("", max(attempts, default=-1), chain, stored, sealed)

    def launched(self, action: act.Launch) -> None:
        """What is beyond the set that the attempt starts from is on no lineage any more."""
        parent, step = action.resume.parent, action.resume.step
        limits = {} if parent is None else {parent: step}
        limits |= {one: limit for one, limit in self._limits.items() if one < (parent or 0)}
        self._attempt, self._limits = action.attempt, limits

    def committed(self, attempt: int, step: int) -> None:
        """A set is durable; one that comes too late for the choice counts no more."""
        is_on_lineage = attempt == self._attempt or step <= self._limits.get(attempt, -1)
        if is_on_lineage and (self._durable is None or self._durable[1] < step):
            self._durable = attempt, step

    def lose_memory(self, *, together: bool = False) -> None:
        """A host took its part of every set in memory along, unless another one has a copy.

        Those that are lost `together`, with a rack or slice, take the copies along too.
        """
        if self._peers and not together:
            return
        self._memory = None
        flush, self._flush = self._flush, None
        if flush is not None:
            self._failed(flush, "its host is gone")

    def give_back_memory(self) -> None:
        """The run is over for a supervisor, and all that counts is durable."""
        self._memory = None

    # --- what the core says -----------------------------------------------------------------

    def seal(self, action: act.Seal) -> None:
        """A copy is whole."""
        self._memory, self._buffer = (action.attempt, action.step), action.buffer
        names = (action.attempt, action.epoch, action.step, action.buffer)
        self._feed(ev.Sealed(self._clock.now_ns, *names))

    def flush(self, action: act.Flush) -> None:
        """Write it to the run store; being hurried makes no difference here."""
        if self._flush is not None:
            return
        self._flush = action

        def flushed() -> None:
            if self._flush is action:
                self._flush = None
                names = (action.attempt, 0, action.epoch, action.step)
                self._feed(ev.Flushed(self._clock.now_ns, *names, of_ranks=1))

        self._clock.at(self._clock.now_ns + self._write_ns, flushed)

    def abandon(self, action: act.AbandonFlush) -> None:
        """Whatever is under way, nobody waits for it."""
        self._flush = None
        self._failed(action, action.why)

    def commit(self, action: act.CommitFlushed) -> None:
        """The manifest of a flushed set."""
        self.committed(action.attempt, action.step)
        names = (action.attempt, action.epoch, action.step)
        self._feed(ev.FlushCommitted(self._clock.now_ns, *names))

    def _failed(self, of: act.Flush | act.AbandonFlush, why: str) -> None:
        names = (of.attempt, of.epoch, of.step)
        self._feed(ev.FlushFailed(self._clock.now_ns, *names, why))
