"""What a run does about what is announced: when it saves, and whether it leaves. Pure.

It trains on for as long as a save at the end is still safe. The latest safe moment is the deadline,
less the time that leaving takes, less that of a durable save as it was measured, less half of that
again: what was measured may take longer on a host that is about to go. What may come at any moment
has no latest safe one: it is acted on at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Announcement, NoticeAction
from holdfast.core.value import value

# What a save is taken to take while none was measured.
UNMEASURED_NS = 60 * SECOND_NS
LEAST_MARGIN_NS = SECOND_NS

Identity = tuple[tuple[str, str, str], NoticeAction, int | None]  # of an announcement


class OnNotice(StrEnum):
    """What follows when the last save is durable."""

    LEAVE = "leave"  # the run stops, with the exit code that says "start me again"
    STAY = "stay"  # it trains on until the host is taken
    RELEASE = "release"  # as `leave`, and the cloud is told that it need not wait for this run


@value
class NoticePolicy:
    """What the user decides. `migration_ends`: hosts with accelerators do not survive one."""

    then: OnNotice = OnNotice.LEAVE
    migration_ends: bool = False

    @property
    def leaves(self) -> bool:
        """Whether the run stops once all is saved."""
        return self.then is not OnNotice.STAY

    def ends(self, action: NoticeAction) -> bool:
        """Whether the run does not survive that here."""
        return action.is_end or (self.migration_ends and action is NoticeAction.LIVE_MIGRATION)


@value
class SaveTime:
    """What a durable save takes, in nanoseconds; 0: not measured yet.

    `copy_ns`: until all ranks have copied a step, the wait for that step not counted. `write_ns`:
    from then until the set is durable. `flush_ns`: until what is in memory, and newer than all that
    is durable, is durable as well: it goes first. `leaving_ns`: what the ranks then get to leave.
    """

    step_ns: int = 0
    copy_ns: int = 0
    write_ns: int = 0
    flush_ns: int = 0
    leaving_ns: int = 0

    @property
    def is_measured(self) -> bool:
        """Whether it is known how long a save takes."""
        return self.step_ns > 0 and self.write_ns > 0

    @property
    def need_ns(self) -> int:
        """The time from the order until the set is durable; two steps come first."""
        if not self.is_measured:
            return UNMEASURED_NS
        return 2 * self.step_ns + self.copy_ns + self.write_ns + self.flush_ns

    @property
    def ahead_ns(self) -> int:
        """So long before the end a save is ordered: what it takes, half of that again, leaving."""
        return self.leaving_ns + self.need_ns + max(LEAST_MARGIN_NS, self.need_ns // 2)


@value
class NoticeView:
    """What is known when the question is asked.

    `is_saved`: nothing was done since the last durable set. `served`: the announcements for which
    the save that they ask for was ordered; `begun`: those for which one was ordered ahead of it.
    """

    now_ns: int
    save_time: SaveTime
    is_saved: bool = False
    served: tuple[Identity, ...] = ()
    begun: tuple[Identity, ...] = ()


class What(StrEnum):
    """What is to be done."""

    NOTHING = "nothing"
    SAVE = "save"  # and train on
    STOP = "stop"  # save and leave


@value
class NoticePlan:
    """What is to be done, when, and on whose account.

    `deadline_ns`: which of its deadlines is meant; None: it has none.
    `save_first`: a save is made now as well, since neither the deadline nor the time that a save
    takes may be relied on. `is_short`: a durable save is not likely to be done in time.
    """

    what: What = What.NOTHING
    at_ns: int = 0
    about: Announcement | None = None
    deadline_ns: int | None = None
    save_first: bool = False
    is_short: bool = False


def identity(announcement: Announcement, deadline_ns: int | None = None) -> Identity:
    """What it was served for: the same event, if it is worse or at another time, is another one.

    `deadline_ns`: which of its deadlines; its first if none is named.
    """
    key = announcement.tellings[0].notice.key
    return key, announcement.action, deadline_ns or announcement.deadline_ns


def plan(
    policy: NoticePolicy, announcements: Sequence[Announcement], view: NoticeView
) -> tuple[NoticePlan, str]:
    """What to do about all that is announced, and why; the earliest end counts."""
    ends = [one for one in announcements if policy.ends(one.action)]
    dated = [
        (at_ns, place)
        for place, one in enumerate(ends)
        for at_ns in one.dates_ns
        if identity(one, at_ns) not in view.served
    ]
    if dated:
        deadline_ns, place = min(dated)
        return _at_the_latest(policy, ends[place], deadline_ns, view)
    for one in announcements:
        if identity(one) in view.served:
            continue
        if policy.ends(one.action):
            return NoticePlan(What.SAVE, view.now_ns, one), "no time is given, so it is saved now"
        if one.action in (NoticeAction.REBALANCE, NoticeAction.DRAIN):
            return NoticePlan(What.SAVE, view.now_ns, one), "the host may go, so it is saved now"
    return NoticePlan(), "nothing that is announced ends the run"


def _at_the_latest(
    policy: NoticePolicy, one: Announcement, deadline_ns: int, view: NoticeView
) -> tuple[NoticePlan, str]:
    time, now_ns = view.save_time, view.now_ns
    at_ns = deadline_ns - time.ahead_ns
    what = What.STOP if policy.leaves else What.SAVE
    if not time.is_measured and not policy.leaves and not one.is_at_hand:
        # One save now shows how long they take; the last one is planned by that, or half-way.
        at_ns = max(at_ns, one.since_ns + (deadline_ns - one.since_ns) // 2)
    if at_ns <= now_ns or one.is_at_hand:
        is_short = time.is_measured and deadline_ns - now_ns < time.need_ns
        reason = "a save takes longer than that" if is_short else "it is time to save"
        return NoticePlan(what, now_ns, one, deadline_ns, is_short=is_short), reason
    doubt = "" if one.is_told_for(deadline_ns) else "the deadline is not the vendor's own"
    if not time.is_measured:
        doubt = "how long a save takes is not known yet"
    if doubt and not view.is_saved and identity(one, deadline_ns) not in view.begun:
        if time.is_measured and at_ns - now_ns < time.need_ns:
            # A save now would not be over by then, and the last one would have to wait for it.
            return NoticePlan(what, now_ns, one, deadline_ns), f"{doubt}, and two saves take longer"
        return NoticePlan(what, at_ns, one, deadline_ns, save_first=True), doubt
    return NoticePlan(what, at_ns, one, deadline_ns), "as late as is safe"
