"""What is announced to a run, over all its attempts, and when something is to be done about it.

Joins `core.notices.board` (what is announced) and `core.notices.plan` (what follows from it). The
plan is made anew whenever something changes that it goes by: a notice, or the measured time of a
save. What it says for later is done when Timer.NOTICE fires, by the plan of that moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast.core import actions as act
from holdfast.core.notices.board import Announcement, Board, News, Notice
from holdfast.core.notices.plan import (
    Identity,
    NoticePlan,
    NoticePolicy,
    NoticeView,
    What,
    identity,
    plan,
)
from holdfast.core.run.state import Timer
from holdfast.core.save.saving import Saving

REMEMBERED = 100  # of the saves that were ordered for what is announced, the last so many


@dataclass(slots=True)
class NoticeWatch:
    """Of one run, whose `saving` comes with each question.

    `leaving_ns`: what the ranks get to leave, once all is saved. `acts_at_ns`: when something will
    be done about what is announced, as things stand; None: nothing is planned.
    """

    policy: NoticePolicy
    leaving_ns: int
    board: Board = field(default_factory=Board)
    acts_at_ns: int | None = None  # what the timer is set to
    _served: tuple[Identity, ...] = ()
    _begun: tuple[Identity, ...] = ()

    @property
    def announcements(self) -> tuple[Announcement, ...]:
        """All that is announced, in the order in which it was heard of."""
        return self.board.announcements

    def take(self, notice: Notice) -> News:
        """Take in a notice; what is new in it."""
        self.board, news = self.board.take(notice)
        return news

    def decide(self, saving: Saving, at_ns: int) -> tuple[NoticePlan, str]:
        """What is to be done about all that is announced."""
        is_saved = saving.agreement.is_saved
        time = replace(saving.save_time, leaving_ns=self.leaving_ns)
        view = NoticeView(at_ns, time, is_saved, self._served, self._begun)
        return plan(self.policy, self.announcements, view)

    def served(self, one: Announcement, deadline_ns: int | None) -> None:
        """The save that it asks for, by that deadline, is ordered."""
        self._served = (*self._served, identity(one, deadline_ns))[-REMEMBERED:]

    def begun(self, one: Announcement, deadline_ns: int | None) -> None:
        """A save ahead of that one is ordered."""
        self._begun = (*self._begun, identity(one, deadline_ns))[-REMEMBERED:]

    def fired(self) -> None:
        """The timer has come due."""
        self.acts_at_ns = None

    def look_again(self, saving: Saving, at_ns: int, *, is_stopping: bool) -> list[act.Action]:
        """Set the timer right; where something is due now, it fires at once."""
        if is_stopping or not self.announcements:
            return self.wake(saving, None)
        decided, _ = self.decide(saving, at_ns)
        nothing = decided.what is What.NOTHING
        return self.wake(saving, None if nothing else max(at_ns, decided.at_ns))

    def wake(self, saving: Saving, at_ns: int | None) -> list[act.Action]:
        """Set the timer to that moment; None: nothing is planned any more."""
        saving.held_from_ns = None if at_ns is None else at_ns - saving.save_time.need_ns
        if at_ns == self.acts_at_ns:
            return []
        self.acts_at_ns = at_ns
        return [
            act.CancelTimer(Timer.NOTICE) if at_ns is None else act.SetTimer(Timer.NOTICE, at_ns)
        ]
