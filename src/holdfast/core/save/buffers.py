"""The buffers of the memory tier: what lies in which, and into which an order may have copies go.

A set in a buffer is *copied* when all ranks say so, and *sealed* when it has its checksums: then it
restores. What must hold: the newest sealed set is never overwritten (but where there is only one
buffer), nor one that waits for its seal, nor one that is being flushed, nor one that ranks may
still be reading at their start. So there are three buffers: one to keep, one to flush or to seal,
one to copy into. With two, a flush pauses the saves.

An order that came too late leaves ranks that may still copy for it. Its buffer stays `opened`, and
the next order names it again: each rank writes its own shard there, and the copy for the newer
epoch comes after any for the older one.
"""

from __future__ import annotations

from typing import NamedTuple


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
