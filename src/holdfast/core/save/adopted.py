"""What an earlier controller has ordered last, of ranks that train on: this one goes on with it.

An order's step and flags never change once it is published, so to publish it again is to deliver it
late, which the protocol allows. The ranks' answers stand in their pages: whatever they come to, the
agreement judges it as if it had ordered that step itself. So a stop under way is completed,
and one of which some rank may know the end already comes to that same end.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.save.agree_moves import Actions, Agreement, AgreementPhase, end
from holdfast.core.save.events import PublishOrder, StopDue
from holdfast.core.save.word import MAX_EPOCH, Order, buffer_of, is_decided, unpack

WHY = "an earlier controller has ordered it"


def newest_words(words: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Of (order, verdict) as hosts have them in their ranks' pages: the newest, and its outcome.

    0: there is none.
    """
    known = list(words)
    epochs = [unpack(order).epoch for order, _ in known]
    newest = newest_epoch(epochs)
    if not newest:
        return 0, 0
    order = known[epochs.index(newest)][0]
    of_it = [v for _, v in known if unpack(v).epoch == newest]
    return order, max(of_it, key=lambda v: (is_decided(v, newest), v), default=0)


def newest_epoch(epochs: Iterable[int]) -> int:
    """They are a few apart, and begin again with 1 when their 16 bits are used up; 0: none."""
    known = [epoch for epoch in epochs if epoch]
    if not known:
        return 0
    half = MAX_EPOCH // 2
    if max(known) - min(known) > half:
        known = [epoch for epoch in known if epoch <= half]
    return max(known)


def go_on_with(state: Agreement, at_ns: int, order: int, verdict: int) -> Actions:
    """Go on with that order; before anything is heard of the ranks. `state` is a new one.

    One that is decided is over. What goes into buffers is forgotten: a stop that did is ordered
    anew, at a later step, so that ranks which wait for its outcome go on to that.
    """
    epoch, flags, step = unpack(order)
    state.epoch = epoch
    if not epoch:
        return ()
    if flags & Order.LEAVE:
        end(state, WHY)
        return (PublishOrder(epoch, step, flags, WHY),)
    is_stop, decided = bool(flags & Order.STOP), unpack(verdict)
    is_over = is_decided(verdict, epoch) and (not is_stop or bool(decided.flags & Order.ABORTED))
    if is_over or buffer_of(flags) is not None:
        state.step = step if is_stop else 0
        return ()
    state.phase, state.step, state.is_stop = AgreementPhase.COLLECTING, step, is_stop
    state.is_early, state.why = bool(flags & Order.EARLY), WHY
    state.stop = StopDue(at_ns, WHY) if is_stop else None
    state.ranks.ask(step)
    return (PublishOrder(epoch, step, flags, WHY),)
