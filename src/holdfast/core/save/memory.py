"""The memory tier of one run: which sets lie in which buffers, and which of them is flushed.

`core.save.saving` asks it for a buffer and tells it what was ordered and copied, and
`core.run.flushing` what became of seals and flushes. It outlives the attempts.

A set in a buffer is *copied* when all ranks say so, and *sealed* when it has its checksums: then it
restores. What must hold: the newest sealed set is never overwritten (but where there is only one
buffer), nor one that waits for its seal, nor one that is being flushed, nor one that ranks may
still be reading at their start; with several hosts, nor the newest replicated one. So there are
three buffers: one to keep, one to flush or to seal, one to copy into. With two, a flush pauses the
saves.

An order that came too late leaves ranks that may still copy for it. Its buffer stays `opened`, and
the next order names it again: each rank writes its own shard there, and the copy for the newer
epoch comes after any for the older one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.copies import InMemory
from holdfast.core.save.flushes import Flushes, FlushOver
from holdfast.core.save.in_parts import Equality, InParts
from holdfast.core.save.pace import latest, median
from holdfast.core.save.ranks import Extremes
from holdfast.core.save.replicas import Replicas
from holdfast.core.save.tier_events import SetInBuffer
from holdfast.core.save.word import MAX_BUFFERS


class Buffers(NamedTuple):
    """The state of all buffers; every method gives the next one. Sets: the oldest first."""

    in_all: int = 0  # so many all ranks have; 0: there is no memory tier (yet)
    opened: int | None = None
    sealing: tuple[SetInBuffer, ...] = ()
    sealed: tuple[SetInBuffer, ...] = ()
    read: int | None = None  # the attempt is restored from this one

    def begin(self, restored: SetInBuffer | None) -> Buffers:
        """A new attempt starts from that set, or from none here: all later ones are void.

        A seal that is still under way keeps its buffer until it is over.
        """
        return Buffers(
            sealing=self.sealing,
            sealed=() if restored is None else (restored,),
            read=None if restored is None else restored.buffer,
        )

    @property
    def newest(self) -> SetInBuffer | None:
        """The newest sealed set."""
        return self.sealed[-1] if self.sealed else None

    def free(self, pinned: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Which an order may name, the best first; `pinned` are being flushed, or wait for it."""
        if self.opened is not None and self.opened < self.in_all:
            first: tuple[int, ...] = (self.opened,)
        else:
            first = ()
        taken = [*pinned, *first, *(kept.buffer for kept in self.sealing)]
        if self.read is not None:
            taken.append(self.read)
        if self.newest is not None and self.in_all > 1:
            taken.append(self.newest.buffer)
        return first + tuple(b for b in range(self.in_all) if b not in taken)

    def ordered(self, buffer: int) -> Buffers:
        """Ranks may write into it from now on: what lay there is no set any more."""
        return self._replace(
            opened=buffer, sealed=tuple(k for k in self.sealed if k.buffer != buffer)
        )

    def copied(self, kept: SetInBuffer) -> Buffers:
        """All ranks have copied into it; it waits for its checksums."""
        return self._replace(opened=None, sealing=(*self.sealing, kept))

    def lost(self, kept: SetInBuffer) -> Buffers:
        """That set is not in its buffer any more."""
        return self._replace(sealed=tuple(one for one in self.sealed if one != kept))

    def over(self, kept: SetInBuffer, *, is_sealed: bool) -> Buffers:
        """A seal is over. One that nobody here asked for changes nothing."""
        if kept not in self.sealing:
            return self
        sealing = tuple(other for other in self.sealing if other != kept)
        if not is_sealed:
            return self._replace(sealing=sealing)
        # A set may be sealed after one that was copied later: what is newest goes by the steps.
        sealed = sorted((*self.sealed, kept), key=lambda one: one.name)
        return self._replace(sealing=sealing, sealed=tuple(sealed))

    def restored(self) -> Buffers:
        """Every rank is past its start: none reads there any more."""
        return self._replace(read=None)


LONGEST_SEAL_NS = 30 * SECOND_NS


@dataclass(slots=True)
class MemoryTier:
    """Which sets are in memory, and which of them is on its way to the durable tier."""

    ranks: int
    flushes: Flushes = field(default_factory=Flushes)
    replicas: Replicas = field(default_factory=Replicas)
    in_parts: InParts = field(default_factory=InParts)
    buffers: Buffers = field(default_factory=Buffers)
    is_there: bool = False  # whether every rank has a buffer
    is_lost: bool = False  # whether it had one in this attempt, and has none now
    attempt: int = -1
    copied_step: int = 0  # the newest step that all ranks have copied, or resumed from
    copied_ns: int = 0
    apart_ns: int = 0  # the newest two copies of the attempt; 0: there are not so many
    resume: ev.Resume = ev.SCRATCH
    lost_step: int = 0  # the newest that it did not hold any more when it was to be flushed
    _ready: list[int] = field(init=False)  # how many buffers each has
    _extremes: Extremes = field(init=False)  # of these numbers
    _seals_ns: tuple[int, ...] = ()  # the last few
    _taken_ns: tuple[int, ...] = ()  # by them, of processors' time
    _sealing_ns: tuple[tuple[SetInBuffer, int], ...] = ()
    _free: tuple[int, ...] = ()
    _free_by: tuple[Buffers, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        """No rank has told of a buffer yet."""
        self._no_buffers()

    def _no_buffers(self) -> None:
        self._ready, self._extremes = [0] * self.ranks, Extremes.start(0, self.ranks)
        self.is_there = self.is_lost = False

    def begin(self, at_ns: int, attempt: int, resume: ev.Resume, ranks: int) -> None:
        """A new attempt starts from there; nothing in memory that is newer is of its lineage."""
        self.attempt, self.resume, self.ranks = attempt, resume, ranks
        self.copied_step, self.copied_ns, self.apart_ns = resume.step, at_ns, 0
        restored = None
        if resume.buffer is not None and resume.parent is not None:
            restored = SetInBuffer(resume.parent, 0, resume.step, resume.buffer)
            for kept in self.buffers.sealed:  # one of ours, then its epoch is known
                if kept._replace(epoch=0) == restored:
                    restored = kept
        self.buffers = self.buffers.begin(restored)
        self.replicas.begin(restored, resume.step)
        self.in_parts.begin()
        self._no_buffers()
        self.flushes.forget()

    def adopt(self, memory: InMemory, ordered: int | None) -> None:
        """The attempt has begun under another controller, which has left that in memory.

        Ranks may still write into the buffer that it has `ordered` last.
        """
        resumed = (self.resume.parent, self.resume.step)
        sealed = [
            SetInBuffer(one.attempt, 0, one.step, one.buffer)
            for one in memory.sealed
            if one.attempt == self.attempt or (one.attempt, one.step) == resumed
        ]
        self.buffers = self.buffers._replace(sealed=tuple(sorted(sealed, key=lambda s: s.name)))
        if ordered is not None:
            self.buffers = self.buffers.ordered(ordered)
        newest, self.replicas.is_known = memory.replicated, True
        if newest is not None:
            kept = SetInBuffer(newest.attempt, 0, newest.step, newest.buffer)
            self.replicas.newest = kept if kept in self.buffers.sealed else None

    @property
    def seal_ns(self) -> int:
        """What a seal takes; 0: there was none yet."""
        return median(self._seals_ns)

    @property
    def taken_ns(self) -> int:
        """What a seal takes from the training, of processors' time."""
        return median(self._taken_ns)

    @property
    def seal_limit_ns(self) -> int:
        """How long to wait for one: far beyond what they take, where that is known."""
        known_ns = SECOND_NS + 8 * self.seal_ns if self.seal_ns else LONGEST_SEAL_NS
        return min(known_ns, LONGEST_SEAL_NS)

    @property
    def free(self) -> tuple[int, ...]:
        """Buffers that an order may name now, the best first."""
        if self.replicas.spares_all:
            return ()
        by = self.buffers, (*self.flushes.pinned, *self.replicas.pinned)
        if self._free_by != by:  # each news of each rank asks, and hardly one changes it
            self._free_by, self._free = by, self.buffers.free(by[1])
        return self._free

    @property
    def is_sealing(self) -> bool:
        """Whether a set of the newest attempt waits for its checksums."""
        return any(kept.attempt == self.attempt for kept in self.buffers.sealing)

    def has(self, rank: int, count: int) -> None:
        """A rank has so many buffers."""
        before, after = self._ready[rank], min(max(0, count), MAX_BUFFERS)
        self._ready[rank] = after
        self._extremes.move(before, after)
        self.buffers = self.buffers._replace(in_all=self._extremes.least)
        was_there, self.is_there = self.is_there, self.buffers.in_all > 0
        self.is_lost = not self.is_there and (was_there or self.is_lost)

    # --- what the agreement does ------------------------------------------------------------

    def ordered(self, buffer: int) -> None:
        """Ranks may write into that buffer."""
        self.buffers = self.buffers.ordered(buffer)

    @property
    def may_split(self) -> bool:
        """Whether the ranks may each copy a part of the next set."""
        return self.in_parts.may(self.flushes.begun)

    def copied(
        self, at_ns: int, epoch: int, step: int, buffer: int, *, is_split: bool = False
    ) -> None:
        """All ranks have copied that step into it, or each a part of it."""
        self.in_parts.copied(self.flushes.begun, in_parts=is_split)
        kept = SetInBuffer(self.attempt, epoch, step, buffer)
        self.buffers = self.buffers.copied(kept)
        self._sealing_ns = (*self._sealing_ns, (kept, at_ns))
        if self.copied_step > self.resume.step:
            self.apart_ns = at_ns - self.copied_ns
        self.copied_step, self.copied_ns = max(self.copied_step, step), at_ns

    def host_lost(self) -> None:
        """No set is whole any more, unless another host has copies: the next look tells."""
        self.buffers = self.buffers._replace(sealed=())

    def give_up_seals(self) -> None:
        """Nobody waits for them any longer; their buffers stay untouched until they are over."""
        self.attempt = -1

    # --- what becomes of it -----------------------------------------------------------------

    def seal_over(self, event: ev.Sealed | ev.SealFailed) -> bool:
        """Take in the outcome of a seal; whether its set counts from now on."""
        kept = SetInBuffer(event.of_attempt, event.epoch, event.step, event.buffer)
        for known, since_ns in self._sealing_ns:
            if known == kept:
                self._seals_ns = latest(self._seals_ns, max(1, event.at_ns - since_ns))
                if isinstance(event, ev.Sealed):
                    self._taken_ns = latest(self._taken_ns, event.taken_ns)
        self._sealing_ns = tuple(pair for pair in self._sealing_ns if pair[0] != kept)
        # A set of an attempt that is over came too late for the choice: it is off the lineage.
        counts = isinstance(event, ev.Sealed) and event.of_attempt == self.attempt
        counts = counts and kept in self.buffers.sealing
        if counts and isinstance(event, ev.Sealed):
            self.flushes.note_alike(kept, event.alike)
        elif event.of_attempt == self.attempt:
            self.in_parts.not_sealed()
        self.buffers = self.buffers.over(kept, is_sealed=counts)
        return counts

    def compare(self, event: ev.Sealed | ev.Compared) -> Equality:
        """Take in whether the ranks of the one host are equal, in a set of which that was seen."""
        if event.of_attempt != self.attempt:
            return Equality.NOTHING
        if not event.differing:
            self.replicas.compared_step = event.step
        return self.in_parts.compared(is_equal=not event.differing)

    @property
    def compared_step(self) -> int | None:
        """Of the newest set in which replicas were equal; None: nothing is compared."""
        is_compared = self.replicas.is_on or not self.in_parts.is_off
        return self.replicas.compared_step if is_compared else None

    @property
    def newest(self) -> SetInBuffer | None:
        """The newest sealed set of this lineage."""
        return self.buffers.newest

    def to_flush(self, at_ns: int, committed_step: int) -> SetInBuffer | None:
        """The newest set, if it is not durable and nothing speaks against flushing it now."""
        sealed, flushes = self.buffers.sealed, self.flushes
        if not sealed or sealed[-1].step <= committed_step or at_ns < flushes.again_ns:
            return None
        return sealed[-1] if flushes.under_way is None else None

    def to_replicate(self, at_ns: int) -> act.Replicate | None:
        """The newest set, once no rank reads it any more at its start."""
        if self.buffers.read is not None:
            return None
        # Then it rests for as long: both must be over when the next set is sealed, though a copy
        # is there later than it is to be. One that misses its turn comes an interval later.
        aim_ns = self.apart_ns * 3 // 8
        within_ns = max(aim_ns // 2, self.copied_ns + aim_ns - at_ns)
        return self.replicas.next(at_ns, self.newest, within_ns)

    def flush_over(self, event: FlushOver) -> tuple[SetInBuffer | None, tuple[act.Action, ...]]:
        """The set whose flush has ended, if it was under way; it may not be in its buffer."""
        kept, actions = self.flushes.ended(event)
        if kept is not None and isinstance(event, ev.FlushFailed) and event.is_gone:
            self.buffers = self.buffers.lost(kept)
            self.lost_step = max(self.lost_step, kept.step)
        return kept, actions

    def is_pending(self, committed_step: int) -> bool:
        """Whether something that is newer than all that is durable is on its way."""
        wanted = (self.flushes.under_way, self.flushes.waiting)
        return self.is_sealing or any(
            one.kept.step > committed_step and self.is_on_lineage(one.kept)
            for one in wanted
            if one is not None
        )

    def is_ahead(self, committed_step: int) -> bool:
        """Whether memory holds a newer set than the durable tier."""
        return self.newest is not None and self.newest.step > committed_step

    def is_on_lineage(self, kept: SetInBuffer) -> bool:
        """Whether the newest attempt comes from it: its own, or up to where it resumed."""
        return kept.attempt == self.attempt or kept.step <= self.resume.step
