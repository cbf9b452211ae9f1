"""The agreement word, and the rank's side of an agreed save: what one load of the word means.

The word is epoch, flags and step in one aligned 64-bit value. One load or store moves it whole, so
a reader never sees a step of one epoch with the flags of another. Layout: step in bits 0..39, flags
in 40..47, epoch in 48..63. Epoch 0 means "no order".

A rank calls `at_boundary` after it has published step n, `between_steps` where it can be stopped
before the next one, `while_waiting` between its snapshot for a stop and the verdict, and
`after_loop` once its last step is done. They are pure functions of words that the rank has just
loaded; the protocol is explained in docs/explanation/agreement.md.

A rank answers with three words. TAKEN is the order with the step that it takes, stored before the
next step is published; COPIED, or FAILED, is stored when the bytes are there, or will never be.
That is at the same boundary, or later where `may_end_later` allows it. A rank has one copy under
way at a time: it waits for its end before it stores the next TAKEN.

The trainer's hot path does not call anything. It inlines one comparison:

    words[Word.STEP] = n
    order = words[Word.ORDER]
    if order != settled:                 # a word that this rank has not dealt with
        answer, reason = at_boundary(n, order, answered_epoch)
        ...                              # SNAPSHOT: copy, answered_epoch = epoch
        if is_settled(n, order):
            settled = order

Only a rank's own loads decide; a stale load makes it miss an order, never answer a wrong one.
"""

from __future__ import annotations

from enum import Enum, IntEnum
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


IN_PARTS = 4
"""Of an order alone (a verdict's is COMMITTED): of what all ranks hold alike, each copies its part.

Only for a copy into a buffer that nobody waits for.
"""

WAITS = 8
"""Of a rank's TAKEN alone (a verdict's is ABORTED): it waits there until all have taken the step.

A save that the ranks make together, as a framework's, may only begin then.
"""

AGREED = 16
"""Of a verdict alone (an order's is EARLY): all ranks have taken the step, and none is to wait."""

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


def is_in_parts(flags: int) -> bool:
    """Whether an order asks each rank for its part alone of what all of them hold alike."""
    return bool(flags & IN_PARTS) and not is_durable(flags) and not flags & Order.STOP


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


# --- the rank's side ---

TOLD_TO_LEAVE = "told to leave: nothing more will be saved"


class Answer(Enum):
    """What the rank does now."""

    GO_ON = "go on"
    SNAPSHOT = "snapshot"  # take the state of this boundary: TAKEN, then COPIED or FAILED
    WAIT = "wait"  # nothing is decided yet: load the words again
    LEAVE_SAVED = "leave: saved"  # this rank's last boundary is durable on all ranks
    LEAVE_UNSAVED = "leave: not saved"  # nothing more will be saved


def at_boundary(
    n: int, order: int, answered_epoch: int, at_loop_end: bool = False
) -> tuple[Answer, str]:
    """Decide at boundary `n`, after n was published; `order` was loaded after that.

    GO_ON, SNAPSHOT or LEAVE_UNSAVED. `answered_epoch` is the epoch this rank answered last (0:
    none). `at_loop_end`: n is the last step there will be, so it answers an order for any step.
    """
    epoch, flags, step = unpack(order)
    if flags & Order.LEAVE:
        return Answer.LEAVE_UNSAVED, TOLD_TO_LEAVE
    if epoch in (0, answered_epoch):
        return Answer.GO_ON, "no new order"
    if step == n:
        return Answer.SNAPSHOT, f"ordered at step {n}"
    if at_loop_end:
        return Answer.SNAPSHOT, f"step {n} is the last: it answers the order for step {step}"
    if step < n:
        return Answer.GO_ON, f"the order for step {step} came too late: this is step {n}"
    return Answer.GO_ON, f"ordered at step {step}, not yet"


def between_steps(n: int, order: int, answered_epoch: int) -> tuple[Answer, str]:
    """Decide after boundary `n`, while step n + 1 has not begun (an evaluation that polls).

    GO_ON, SNAPSHOT (of boundary n: nothing has changed since) or LEAVE_UNSAVED. The next boundary
    may be far away, so a stop is answered now, if its order allows that.
    """
    epoch, flags, step = unpack(order)
    if flags & Order.LEAVE:
        return Answer.LEAVE_UNSAVED, TOLD_TO_LEAVE
    if epoch in (0, answered_epoch) or not flags & Order.EARLY:
        return Answer.GO_ON, "no order that can be answered between steps"
    if step < n:
        return Answer.GO_ON, f"the order for step {step} came too late: this is step {n}"
    return Answer.SNAPSHOT, f"ordered at step {step}; step {n} is done, and the next has not begun"


def is_settled(n: int, order: int) -> bool:
    """Whether, once boundary n has dealt with `order`, later boundaries may skip this word.

    Not at the loop's end, where a missed order is answered after all: there, ask `after_loop`.
    """
    return order & MAX_STEP <= n and not order >> 40 & Order.LEAVE


def while_waiting(
    order: int, verdict: int, my_epoch: int, my_step: int, supervisor_lost: bool = False
) -> tuple[Answer, str]:
    """Decide between this rank's snapshot (my_epoch, my_step) for a stop and the verdict.

    WAIT, GO_ON, LEAVE_SAVED or LEAVE_UNSAVED. `supervisor_lost`: nobody is there to commit, and
    nothing else can end the wait.
    """
    decided = unpack(verdict)
    if decided.epoch == my_epoch:
        if decided.flags & Order.COMMITTED:
            return Answer.LEAVE_SAVED, f"step {decided.step} is durable on all ranks"
        if decided.flags & Order.ABORTED:
            return Answer.GO_ON, f"the save at step {my_step} was called off"
    newer = unpack(order)
    if newer.flags & Order.LEAVE:
        return Answer.LEAVE_UNSAVED, TOLD_TO_LEAVE
    if newer.epoch != my_epoch and newer.step > my_step:
        return Answer.GO_ON, f"a rank missed step {my_step}: now ordered at step {newer.step}"
    if supervisor_lost:
        return Answer.LEAVE_UNSAVED, "the supervisor has ended, so the save cannot be committed"
    return Answer.WAIT, f"step {my_step} is not yet durable on all ranks"


def while_agreeing(
    order: int, verdict: int, my_epoch: int, my_step: int, supervisor_lost: bool = False
) -> tuple[Answer, str]:
    """Decide between this rank's TAKEN that says WAITS and the save that all are to begin together.

    WAIT, SNAPSHOT, LEAVE_UNSAVED, or GO_ON: nothing comes of it, and another order may be there. A
    verdict counts before what was ordered after it: others may have begun by it.
    """
    decided = unpack(verdict)
    if decided.epoch == my_epoch:
        if decided.flags & Order.ABORTED:
            return Answer.GO_ON, f"the save at step {my_step} was called off"
        return Answer.SNAPSHOT, f"all ranks have taken step {my_step}"
    newer = unpack(order)
    if newer.flags & Order.LEAVE:
        return Answer.LEAVE_UNSAVED, TOLD_TO_LEAVE
    if newer.epoch != my_epoch:
        return Answer.GO_ON, f"a rank missed step {my_step}: now ordered at step {newer.step}"
    if supervisor_lost:
        return Answer.GO_ON, "the supervisor has ended, so nobody can tell what the others do"
    return Answer.WAIT, f"step {my_step} is not yet taken by all ranks"


def is_decided(verdict: int, epoch: int) -> bool:
    """Whether that verdict says what became of the epoch."""
    decided = unpack(verdict)
    over = Order.COMMITTED | Order.ABORTED
    return decided.epoch == epoch and bool(decided.flags & over)


def after_loop(
    n: int,
    order: int,
    verdict: int,
    committed_step: int,
    answered_epoch: int,
    supervisor_lost: bool = False,
) -> tuple[Answer, str]:
    """Decide after the loop's last step `n`: answer every new order with it, until it is safe.

    SNAPSHOT, WAIT, LEAVE_SAVED or LEAVE_UNSAVED. `committed_step` is the newest durable set that
    this rank knows of: the COMMITTED word, or the step it was restored from.
    """
    if committed_step == n:
        return Answer.LEAVE_SAVED, f"the last step, {n}, is durable on all ranks"
    answer, reason = at_boundary(n, order, answered_epoch, at_loop_end=True)
    if answer is not Answer.GO_ON:
        return answer, reason
    answer, reason = while_waiting(order, verdict, answered_epoch, n, supervisor_lost)
    if answer is Answer.LEAVE_SAVED and unpack(verdict).step != n:
        return Answer.WAIT, f"an earlier step was saved; the last one, {n}, is not yet"
    if answer is Answer.GO_ON:
        return Answer.WAIT, f"{reason}; the last step, {n}, waits for the next order"
    return answer, reason
