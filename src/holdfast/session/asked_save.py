"""A save that the script has just asked for: the step waits until it is ordered, but not for ever.

It is then of this very step. Where no order comes in time, it becomes one of a later step.
"""

from __future__ import annotations

import time

from holdfast.core.save.word import Order, is_decided, is_durable, unpack
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.writer import JournalWriter

WAIT_STEP_S = 0.001
# Its order takes several looks of a supervisor at this rank's page where another save may be in
# the way, and longer where nothing is but a supervisor that waits for a slow disk itself.
LIMIT_NS = 500_000_000
PATIENCE_NS = 5_000_000_000


class AskedSave:
    """Waits for orders, for one rank."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer, self._page = writer, writer.page
        self.is_answered = True  # the last save that was asked for was ordered in time

    def await_order(self, before: int, step: int, *, until_durable: bool) -> bool:
        """Whether a save of that step, or what stands for it, is ordered in time.

        `before`: the order that was there when it was asked for. `until_durable`: who has asked
        waits for the save's commit anyway.
        """
        page, asked_ns = self._page, now_ns()
        token = self._writer.open_span("save")
        try:
            while True:
                order = page.load(Word.ORDER)
                if _answers(order, before, step):
                    self.is_answered = True
                    return True
                verdict = page.load(Word.VERDICT)
                limit_ns = self._limit_ns(order, verdict, step, until_durable=until_durable)
                if now_ns() - asked_ns > limit_ns:
                    self.is_answered = False
                    return False
                time.sleep(WAIT_STEP_S)
        finally:
            self._writer.close_span(token)

    def _limit_ns(self, order: int, verdict: int, step: int, *, until_durable: bool) -> int:
        ordered = unpack(order)
        if not self.is_answered:
            return LIMIT_NS  # who did not answer once must not slow every step
        if ordered.step > step:
            return LIMIT_NS  # other ranks may need this one to come to that step
        is_under_way = ordered.epoch != 0 and not is_decided(verdict, ordered.epoch)
        # Who waits for the commit waits for the save in its way as well.
        return LIMIT_NS if is_under_way and not until_durable else PATIENCE_NS


def _answers(order: int, before: int, step: int) -> bool:
    """Whether a save of this step is ordered, or since then one of a later step, or to leave.

    One of a later step that was ordered before gives way, unless a rank has answered it.
    """
    ordered = unpack(order)
    if ordered.flags & (Order.STOP | Order.LEAVE):
        return True
    is_new = order != before
    return is_durable(ordered.flags) and (ordered.step == step or (is_new and ordered.step > step))
