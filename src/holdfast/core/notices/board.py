"""Notices: warnings that a host will be disturbed, and what several of them say together.

A source tells a `Notice` whenever something changes. `Board.take` says what is new in it: each
event is announced once, however many sources tell of it and however often, and a notice that is
withdrawn takes its part of the announcement back. Pure: a notice brings its times along, all in
nanoseconds on the clock of the run's events (CLOCK_BOOTTIME for an agent).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from holdfast.core.durations import SECOND_NS
from holdfast.core.value import value

# Two deadlines that far apart are one event's; further, where one of them is only assumed.
TOLD_APART_NS = 60 * SECOND_NS
ASSUMED_APART_NS = 300 * SECOND_NS
# Deadlines that differ by less are the same one, converted twice.
SAME_NS = SECOND_NS
# The same of two vendors: calendars may be two seconds off, a date is cut to whole seconds, and
# what is counted from when it was heard was heard by one of them a little later.
SAME_OF_TWO_NS = 5 * SECOND_NS
# What an event that should have happened by now is given: it may come at any moment, and a save
# that is tried may still succeed.
OVERDUE_NS = 30 * SECOND_NS
# What has not come so long after its deadline is forgotten, though nobody has withdrawn it.
OLD_NS = 86_400 * SECOND_NS
MOST_ANNOUNCED = 20  # at a time, on record


class NoticeAction(StrEnum):
    """What will be done to the host."""

    FREEZE = "freeze"  # it stands still for seconds; processes, memory and devices survive
    LIVE_MIGRATION = "live migration"  # it pauses; processes and memory survive, devices may not
    REBOOT = "reboot"
    TERMINATE = "terminate"
    TIME_LIMIT = "time limit"  # the job's time is over; the host stays
    DRAIN = "drain"  # no new work is placed on it; what runs may finish
    REBALANCE = "rebalance"  # it is more likely to be lost than others, sometime

    @property
    def is_end(self) -> bool:
        """Whether what runs on the host does not survive it."""
        return self in (NoticeAction.REBOOT, NoticeAction.TERMINATE, NoticeAction.TIME_LIMIT)


class NoticeState(StrEnum):
    """How far it has come."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    WITHDRAWN = "withdrawn"  # cancelled, or over: it is not to be expected any more


class Scope(StrEnum):
    """What is disturbed."""

    VM = "vm"  # this virtual machine, or this job on it
    HOST = "host"  # the machine under it, with all that it carries
    SLICE = "slice"  # all hosts of a slice


@value
class Notice:
    """One thing that a source has said, and when that was heard.

    `event_id` is the vendor's own name of the event, empty where it gives none; then `topic` tells
    apart what one source speaks of, each topic being one event at a time. A later notice of the
    same source with the same id (or topic) is news of the same event.
    `deadline_ns`: by when the host is disturbed, as told; None: not told. `lead_ns`: how long ahead
    the vendor promises to tell, which counts from the first notice in that state where no deadline
    is told; None: nothing is promised. `unseen_ns`: for how long before it was received nobody
    could look, so that the lead may have begun as much earlier.
    `host`: whose machine; empty: the one that runs the source. `words`: the vendor's, for people.
    """

    source: str
    action: NoticeAction
    received_ns: int
    state: NoticeState = NoticeState.SCHEDULED
    event_id: str = ""
    topic: str = ""
    scope: Scope = Scope.VM
    host: str = ""
    deadline_ns: int | None = None
    lead_ns: int | None = None
    words: str = ""
    unseen_ns: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """What later news of the same event from the same source has in common with this."""
        return self.source, self.host, self.event_id or f"({self.topic})"

    @property
    def is_told(self) -> bool:
        """Whether its deadline is the vendor's own, and not computed from a promised lead."""
        return self.deadline_ns is not None


class Change(StrEnum):
    """What a notice changes in what is known."""

    NEW = "new"
    CONFIRMED = "confirmed"  # another source tells of the same event
    SOONER = "sooner"
    LATER = "later"
    STARTED = "started"
    WITHDRAWN = "withdrawn"
    NOTHING = "nothing"


@value
class Telling:
    """The last notice of one key, with the deadline that it comes to.

    `is_at_hand`: it may come at any moment, and that deadline is but what is hoped for.
    """

    notice: Notice
    deadline_ns: int | None
    is_at_hand: bool = False


@value
class Announcement:
    """One event, by all that tell of it. It is never empty."""

    tellings: tuple[Telling, ...]
    since_ns: int  # when the first of them was heard

    @property
    def deadline_ns(self) -> int | None:
        """The earliest of its deadlines; None: nobody says when."""
        known = [one.deadline_ns for one in self.tellings if one.deadline_ns is not None]
        return min(known, default=None)

    @property
    def dates_ns(self) -> tuple[int, ...]:
        """When it may come, by each that tells of it: what is not kept leaves the next."""
        dates: list[int] = []
        for at_ns in sorted(
            one.deadline_ns for one in self.tellings if one.deadline_ns is not None
        ):
            if not dates or at_ns - dates[-1] > SAME_OF_TWO_NS:
                dates.append(at_ns)
        return tuple(dates)

    @property
    def is_told(self) -> bool:
        """Whether that deadline is a vendor's own."""
        return self.is_told_for(self.deadline_ns)

    def is_told_for(self, at_ns: int | None) -> bool:
        """Whether that one of its deadlines is a vendor's own."""
        return any(one.notice.is_told and one.deadline_ns == at_ns for one in self.tellings)

    @property
    def is_at_hand(self) -> bool:
        """Whether it may come at any moment, by one that tells of it."""
        return any(one.is_at_hand for one in self.tellings)

    @property
    def action(self) -> NoticeAction:
        """The worst that is told."""
        actions = [one.notice.action for one in self.tellings]
        return next((action for action in actions if action.is_end), actions[0])

    @property
    def state(self) -> NoticeState:
        """The furthest that is told."""
        started = any(one.notice.state is NoticeState.STARTED for one in self.tellings)
        return NoticeState.STARTED if started else NoticeState.SCHEDULED

    @property
    def sources(self) -> tuple[str, ...]:
        """Who tells of it, the first first, each once."""
        return tuple(dict.fromkeys(one.notice.source for one in self.tellings))

    @property
    def words(self) -> str:
        """Sources and action, for people: "gce, kubernetes: terminate (preempted)"."""
        words = next((one.notice.words for one in self.tellings if one.notice.words), "")
        return f"{', '.join(self.sources)}: {self.action}" + (f" ({words})" if words else "")


@value
class News:
    """What a notice has changed: `after` is None when the event is not expected any more."""

    change: Change
    before: Announcement | None
    after: Announcement | None
    reason: str


@value
class Board:
    """Everything that is announced at a moment. `hosts`: the run's; empty: whatever comes is."""

    announcements: tuple[Announcement, ...] = ()
    hosts: tuple[str, ...] = ()

    def take(self, notice: Notice) -> tuple[Board, News]:
        """The board with that notice on it, and what is new."""
        if notice.host and self.hosts and notice.host not in self.hosts:
            why = f"it is about {notice.host}, which is none of this run's hosts"
            return self, News(Change.NOTHING, None, None, why)
        self = self._without_old(notice.received_ns)
        before = self._about(notice)
        if notice.state is NoticeState.WITHDRAWN:
            return self._without(notice, before)
        if before is None:
            after = Announcement((_telling(notice, None),), notice.received_ns)
            started = ": it has started" if after.state is NoticeState.STARTED else ""
            return self._with(None, after), News(Change.NEW, None, after, after.words + started)
        after = _updated(before, notice)
        change, reason = _change(before, after)
        if change is Change.SOONER and _only_confirms(before, after):
            change, reason = Change.CONFIRMED, f"{notice.source} tells of it too, and sooner"
        return self._with(before, after), News(change, before, after, reason)

    def _without_old(self, at_ns: int) -> Board:
        """What should have happened long ago, and was not withdrawn, is not told of for ever."""
        kept = tuple(
            one
            for one in self.announcements
            if one.deadline_ns is None or at_ns - one.deadline_ns < OLD_NS
        )
        return replace(self, announcements=kept)

    def _about(self, notice: Notice) -> Announcement | None:
        """The announcement that the notice belongs to: by its key, else by its likeness."""
        for one in self.announcements:
            if any(telling.notice.key == notice.key for telling in one.tellings):
                return one
        return next((one for one in self.announcements if is_same(one, notice)), None)

    def _with(self, before: Announcement | None, after: Announcement | None) -> Board:
        if before is None:
            kept = self.announcements
            return replace(self, announcements=kept if after is None else (*kept, after))
        one_by_one: Iterable[Announcement | None] = (
            after if one is before else one for one in self.announcements
        )
        return replace(self, announcements=tuple(one for one in one_by_one if one is not None))

    def _without(self, notice: Notice, before: Announcement | None) -> tuple[Board, News]:
        known = before.tellings if before else ()
        rest = tuple(one for one in known if one.notice.key != notice.key)
        if before is None or len(rest) == len(known):
            return self, News(Change.NOTHING, before, before, "nothing is known of it")
        after = Announcement(rest, before.since_ns) if rest else None
        if after is None:
            reason = f"{notice.source} has withdrawn it"
            return self._with(before, None), News(Change.WITHDRAWN, before, None, reason)
        change, reason = _change(before, after)
        if change is Change.NOTHING:
            reason = f"{notice.source} has withdrawn it, {', '.join(after.sources)} has not"
        return self._with(before, after), News(change, before, after, reason)


def is_same(known: Announcement, notice: Notice) -> bool:
    """Whether a notice of a key that is new speaks of an event that is known.

    By the vendor's id where both give one; else of the same host, as grave, and at the same time.
    """
    for telling in known.tellings:
        other = telling.notice
        if other.event_id and other.event_id == notice.event_id:
            return True
        if other.event_id and notice.event_id and other.source == notice.source:
            return False
        if other.host and notice.host and other.host != notice.host:
            return False
    if known.action is not notice.action and not (known.action.is_end and notice.action.is_end):
        return False
    deadline_ns, at_ns = known.deadline_ns, _telling(notice, None).deadline_ns
    if deadline_ns is None or at_ns is None:
        return abs(notice.received_ns - known.since_ns) <= ASSUMED_APART_NS
    apart_ns = TOLD_APART_NS if notice.is_told and known.is_told else ASSUMED_APART_NS
    return abs(deadline_ns - at_ns) <= apart_ns


def _updated(before: Announcement, notice: Notice) -> Announcement:
    """The announcement with the newest notice of that key."""
    known = next((one for one in before.tellings if one.notice.key == notice.key), None)
    telling = _telling(notice, known)
    if known is None:
        return replace(before, tellings=(*before.tellings, telling))
    return replace(
        before, tellings=tuple(telling if one is known else one for one in before.tellings)
    )


def _telling(notice: Notice, known: Telling | None) -> Telling:
    """The notice with its deadline: as told, else by the lead that the vendor promises.

    One that has passed without the event, or that a start makes worthless, is a moment from now.
    `known`: what the same key told before; the same thing told again moves nothing.
    """
    at_ns = notice.received_ns
    if known is not None and _is_same_telling(known.notice, notice):
        return replace(known, notice=notice)
    by_ns = notice.deadline_ns
    if by_ns is None and notice.lead_ns is not None:
        by_ns = at_ns - notice.unseen_ns + notice.lead_ns
    if by_ns is not None:
        is_past = by_ns <= at_ns
        return Telling(notice, at_ns + OVERDUE_NS if is_past else by_ns, is_past)
    if known is None or known.deadline_ns is None:
        return Telling(notice, None)
    if notice.state is NoticeState.STARTED:
        return Telling(notice, min(known.deadline_ns, at_ns + OVERDUE_NS), is_at_hand=True)
    return replace(known, notice=notice)


def _is_same_telling(one: Notice, other: Notice) -> bool:
    facts = [(it.state, it.is_told, it.lead_ns, it.action) for it in (one, other)]
    apart_ns = abs((one.deadline_ns or 0) - (other.deadline_ns or 0))
    return facts[0] == facts[1] and apart_ns < SAME_NS


def _change(before: Announcement, after: Announcement) -> tuple[Change, str]:
    """The gravest of what has changed."""
    was, now = before.deadline_ns, after.deadline_ns
    is_of_one = len(before.tellings) == len(after.tellings) == 1
    same_ns = SAME_NS if is_of_one else SAME_OF_TWO_NS
    if after.state is NoticeState.STARTED and before.state is not NoticeState.STARTED:
        return Change.STARTED, f"{after.words}: it has started"
    if after.action.is_end and not before.action.is_end:
        return Change.NEW, after.words
    if now is not None and (was is None or now <= was - same_ns):
        return Change.SOONER, f"{after.words}: it comes sooner"
    if was is not None and (now is None or now >= was + same_ns):
        return Change.LATER, f"{after.words}: it comes later"
    if len(after.sources) > len(before.sources):
        return Change.CONFIRMED, f"{after.sources[-1]} tells of it too"
    return Change.NOTHING, "it is known already"


def _only_confirms(before: Announcement, after: Announcement) -> bool:
    """Whether a sooner deadline is what another source makes of the same moment.

    A promised lead is what the vendor gives at least: it is gone by, and is no news of the event.
    """
    if len(after.tellings) == len(before.tellings):
        return False
    newest = after.tellings[-1]
    if newest.deadline_ns is None or before.deadline_ns is None:
        return False
    sooner_ns = before.deadline_ns - newest.deadline_ns
    return sooner_ns <= SAME_OF_TWO_NS or not newest.notice.is_told


# --- clocks -----------------------------------------------------------------------------------

TELLS_SECONDS_NS = SECOND_NS  # clocks that are read from an HTTP answer's date are cut to seconds
SKEW_NS = 2 * SECOND_NS  # less is what reading such a clock may come to


def on_our_clock(
    unix_ns: int, *, our_unix_ns: int, our_ns: int, their_unix_ns: int | None = None
) -> int:
    """A moment of a vendor's calendar, on the run's clock.

    `our_unix_ns` and `our_ns` are this host's calendar and the run's clock at one moment;
    `their_unix_ns` the vendor's calendar at it, if it was told, in whole seconds. Where the two
    calendars differ by more than reading them may, the vendor's counts, read as late as it can be.
    """
    now_ns = our_unix_ns
    if their_unix_ns is not None and abs(their_unix_ns - our_unix_ns) > SKEW_NS:
        now_ns = their_unix_ns + TELLS_SECONDS_NS
    return our_ns + (unix_ns - now_ns)
