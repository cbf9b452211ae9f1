"""The agreement word: epoch, flags and step in one aligned 64-bit value.

One load or store moves it whole, so a reader never sees a step of one epoch with the flags of
another. Layout: step in bits 0..39, flags in 40..47, epoch in 48..63. Epoch 0 means "no order".
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

STEP_BITS = 40
MAX_STEP = (1 << STEP_BITS) - 1
MAX_EPOCH = 0xFFFF


class Order(IntEnum):
    """Flags of an order or a verdict; together they are a plain number.

    No IntFlag, whose `&` takes a microsecond: ranks ask at boundaries.
    """

    STOP = 1  # after the save, wait for the verdict and leave
    LEAVE = 2  # leave now: nothing more will be saved
    COMMITTED = 4  # verdict: the set is durable on all ranks
    ABORTED = 8  # verdict: this epoch will not be committed; go on
    EARLY = 16  # a rank that is still between two steps may answer with the one it has done
    BUFFER_1 = 32  # together with the next: which buffer of the memory tier the copy goes into
    BUFFER_2 = 64
    DURABLE = 128  # of a copy into a buffer: it is made durable at once, and a verdict follows


_BUFFER_SHIFT = 5
_BUFFER_BITS = Order.BUFFER_1 | Order.BUFFER_2
MAX_BUFFERS = _BUFFER_BITS >> _BUFFER_SHIFT


def buffer_of(flags: int) -> int | None:
    """Which buffer (0..2) an order's copy goes into; None: none, the rank writes it itself."""
    number = (flags & _BUFFER_BITS) >> _BUFFER_SHIFT
    return number - 1 if number else None


def with_buffer(flags: int, buffer: int | None) -> int:
    """The flags with that buffer in them instead of any other; raises ValueError beyond 0..2."""
    number = 0 if buffer is None else buffer + 1
    if not (buffer is not None) <= number <= MAX_BUFFERS:
        raise ValueError(f"there is no buffer {buffer}: they count from 0 to {MAX_BUFFERS - 1}")
    return flags & ~_BUFFER_BITS | number << _BUFFER_SHIFT


def is_durable(flags: int) -> bool:
    """Whether what is ordered is made durable at once, so that one may wait for it."""
    return bool(flags & Order.DURABLE) or buffer_of(flags) is None


def may_end_later(flags: int, *, is_last: bool) -> bool:
    """Whether a rank's copy may go on beside its next steps, as nobody waits for it.

    Never of a stop, of a save that is tagged or waited for (these are durable), or the last step.
    """
    return not (is_last or is_durable(flags) or flags & Order.STOP)


class Agreed(NamedTuple):
    """An unpacked agreement word."""

    epoch: int
    flags: int
    step: int

    @property
    def save(self) -> tuple[int, int]:
        """Which save it speaks of, whatever the flags say."""
        return self.epoch, self.step


def pack(epoch: int, step: int, flags: int = 0) -> int:
    """Pack; raises ValueError when a field does not fit."""
    if not 0 <= step <= MAX_STEP or not 0 <= epoch <= MAX_EPOCH or not 0 <= flags <= 0xFF:
        raise ValueError(f"epoch {epoch}, flags {flags}, step {step} do not fit in a word")
    return epoch << 48 | flags << 40 | step


def unpack(word: int) -> Agreed:
    """The inverse of `pack`."""
    return Agreed(word >> 48, word >> 40 & 0xFF, word & MAX_STEP)
