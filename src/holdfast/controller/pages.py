"""A rank's page: what a host reports of it, and what a host stores in it for the rank."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.hosts.report import Pace, RankState
from holdfast.core.save import events as news
from holdfast.core.save import word
from holdfast.core.save.ranks import RankAnswers
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.rank_page import PageValues, RankPage


@dataclass(slots=True)
class Orders:
    """What the controller has last said to the ranks of an attempt, as words of their pages."""

    order: int = 0
    verdict: int = 0
    deadline_ns: int = 0
    committed: int = 0

    def give_order(self, order: news.PublishOrder, deadline_ns: int | None) -> None:
        """Another order, and until when the ranks have time."""
        self.order = word.pack(order.epoch, order.step, order.flags)
        self.deadline_ns = deadline_ns or 0

    def give_verdict(self, verdict: news.PublishVerdict) -> None:
        """The outcome of an epoch."""
        self.verdict = word.pack(verdict.epoch, verdict.step, verdict.flags)
        if verdict.flags & word.Order.COMMITTED:
            self.give_committed(verdict.step)

    def give_committed(self, step: int) -> None:
        """What is durable; no verdict goes with it."""
        self.committed = max(self.committed, step)

    def store(self, page: RankPage) -> None:
        """Store them in the order in which a rank needs them."""
        page.store(Word.DEADLINE_AT, self.deadline_ns)
        page.store(Word.COMMITTED, self.committed)
        page.store(Word.VERDICT, self.verdict)
        page.store(Word.ORDER, self.order)


def rank_state(values: PageValues, reported: RankState, *, with_progress: bool) -> RankState:
    """What the page says, as it is reported to the controller; `reported`: the last time.

    Without `with_progress` a rank that only took steps is left for a later call: answers are news
    at once, progress a few times a second.
    """
    before = reported.answers
    has_ended = values.phase in (RankPhase.LOOP_ENDED, RankPhase.FINISHED)
    # Until its first step the rank's word is 0, whatever it was restored from.
    step = max(values.step, before.step) if with_progress or has_ended else before.step
    return RankState(
        has_session=True,
        answers=RankAnswers(
            step=step,
            loop_ended=before.loop_ended or has_ended,
            copied=values.copied,
            durable=values.durable,
            failed=values.failed,
            taken=values.taken,
            until=values.until if has_ended else 0,
        ),
        blocked_ns=values.save_blocked_ns
        if values.copied != before.copied
        else reported.blocked_ns,
        buffers=values.buffers,
        saves_asked=values.save_asked,
        sigterms=values.sigterms,
        pace=reported.pace if step == before.step else _pace(values),
    )


def _pace(values: PageValues) -> Pace:
    return Pace(values.step_at_ns, values.spans_ns, values.together_ns)
