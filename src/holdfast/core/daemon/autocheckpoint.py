"""What the host daemon does upon a notice, for jobs that Holdfast did not start. Pure.

A notice makes one round: whoever holds a device gets one SIGTERM, all are waited for, and when
nobody is left, or the time is over, the host is released. What must hold whatever order events come
in, and is tested with random ones:

- no process is signalled twice in its life, over all rounds, agents' restarts included: many
  trainers take a second SIGTERM as an order to leave at once;
- no release before the time is over, unless two thorough looks in a row, both begun after the last
  known holder had ended, have found nobody (one alone may miss a child that is forked while its
  parent is looked at);
- once a notice is withdrawn nobody new is signalled for it, and nothing is released.

Somebody may open a device while the last of those looks is taken, or later: no look can be the last
one and see that. So whoever is found after the release, until the deadline (or, where there is
none, the end of the grace period), gets his signal all the same; he is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.daemon.events import (
    Action,
    DeviceHolder,
    Ended,
    Event,
    LookAtProcesses,
    Looked,
    NoticeHeard,
    ProcessId,
    ProcessInRound,
    Refused,
    ReleaseHost,
    Report,
    RoundOutcome,
    RoundReport,
    Signal,
    TellPeople,
    TimeCame,
)
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.notices.board import (
    Announcement,
    Board,
    Change,
    Notice,
    NoticeAction,
    NoticeState,
)

Key = tuple[str, str, str]

GRACE_NS = 300 * SECOND_NS
MARGIN_NS = 5 * SECOND_NS
LOOK_EVERY_NS = SECOND_NS
LOOK_LATE_EVERY_NS = 5 * SECOND_NS  # after the release, which may be an hour before the deadline
CLEAR_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Policy:
    """`grace_ns`: how long holders get at most. `margin_ns`: kept of a deadline to release in."""

    grace_ns: int = GRACE_NS
    margin_ns: int = MARGIN_NS


def begins_ns(policy: Policy, one: Announcement) -> tuple[int | None, str]:
    """When a round for it begins (a time that has passed: at once; None: never), and why.

    As late as leaves the whole grace period, where the vendor itself has told when; a deadline
    that is only promised is not relied on.
    """
    if not one.action.is_end and one.action is not NoticeAction.LIVE_MIGRATION:
        return None, f"a {one.action} takes nothing from who is running"
    deadline_ns = one.deadline_ns
    if deadline_ns is None and one.state is NoticeState.STARTED:
        return None, "it had started before it was heard of: the host has come back from it"
    if deadline_ns is None or not one.is_told:
        return one.since_ns, "no certain time is known"
    return deadline_ns - policy.margin_ns - policy.grace_ns, "as late as leaves the whole grace"


@dataclass(slots=True)
class Round:
    """A round that is under way."""

    about: str
    began_ns: int
    keys: tuple[Key, ...]
    next_look_ns: int
    entries: dict[ProcessId, ProcessInRound] = field(default_factory=dict)
    last_end_ns: int = 0
    clear_looks: int = 0
    unreadable: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether somebody is known to be there."""
        return any(one.ended_ns is None for one in self.entries.values())

    def report(self, at_ns: int, outcome: RoundOutcome) -> RoundReport:
        """What came of the round."""
        entries = tuple(self.entries.values())
        return RoundReport(self.about, self.began_ns, at_ns, outcome, entries, self.unreadable)


class Autocheckpoint:
    """Feed it events in the order in which they happen; do what it answers, in that order."""

    def __init__(self, policy: Policy, signalled: Iterable[ProcessId] = ()) -> None:
        """`signalled`: processes that an earlier agent of this boot has signalled."""
        self.policy = policy
        self.board = Board()
        self.round: Round | None = None
        self._late: Round | None = None  # one that ended clear, while its time still runs
        self._served: tuple[Key, ...] = ()
        self._signalled: dict[ProcessId, None] = dict.fromkeys(signalled)

    @property
    def signalled(self) -> tuple[ProcessId, ...]:
        """Who has had a signal, in this agent's life and before."""
        return tuple(self._signalled)

    @property
    def ends_ns(self) -> int | None:
        """When the round under way is over at the latest; None: there is none."""
        return None if self.round is None else self._ends_ns(self.round)

    def next_ns(self) -> int | None:
        """When it wants a TimeCame; None: not before something else happens."""
        if self.round is not None:
            return min(self._ends_ns(self.round), self.round.next_look_ns)
        moments = [at_ns for at_ns, _ in self._planned()]
        if self._late is not None:
            moments.append(self._late.next_look_ns)
        return min(moments, default=None)

    def handle(self, event: Event) -> list[Action]:
        """Decide on an event: what to do, in this order."""
        return TABLE[type(event)](self, event)

    # --- notices --------------------------------------------------------------------------------

    def _noticed(self, event: NoticeHeard) -> list[Action]:
        """Note it; begin a round if it is time, or call off the one that has lost its reason."""
        self.board, news = self.board.take(event.notice)
        self._served = self._widened(self._served)
        if news.change is Change.LATER and news.after is not None:
            begins, _ = begins_ns(self.policy, news.after)
            if begins is not None and begins > event.at_ns:
                # Another date is another matter: who has come since is warned of that one.
                self._served = _without(self._served, news.after)
        actions: list[Action] = []
        if news.change is not Change.NOTHING:
            actions.append(TellPeople("info", self._reason(news.reason, news.after, event.at_ns)))
        if self.round is not None:
            self.round.keys = self._widened(self.round.keys)
            if not self.round.keys:
                actions += self._end(event.at_ns, RoundOutcome.WITHDRAWN)
        if self._late is not None:
            self._late.keys = self._widened(self._late.keys)
            self._late = self._late if self._late.keys else None
        return actions + self._begin(event.at_ns)

    def _reason(self, reason: str, after: Announcement | None, at_ns: int) -> str:
        if after is None or _is_of(after, self._served):
            return reason
        begins, why = begins_ns(self.policy, after)
        if begins is None:
            return f"{reason}; nothing is done: {why}"
        left_ns = begins - at_ns
        return (
            f"{reason}; processes are signalled in {in_words(left_ns)}" if left_ns > 0 else reason
        )

    def _widened(self, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        """All keys of the announcements that have one of these; what is gone is forgotten."""
        ours = [one for one in self.board.announcements if _is_of(one, keys)]
        return tuple(telling.notice.key for one in ours for telling in one.tellings)

    def _planned(self) -> list[tuple[int, Announcement]]:
        """What a round is still to be made for, and when."""
        open_ones = [one for one in self.board.announcements if not _is_of(one, self._served)]
        dated = [(begins_ns(self.policy, one)[0], one) for one in open_ones]
        return [(at_ns, one) for at_ns, one in dated if at_ns is not None]

    def _begin(self, at_ns: int) -> list[Action]:
        due = [one for begins, one in self._planned() if begins <= at_ns]
        if not due:
            return []
        keys = tuple(telling.notice.key for one in due for telling in one.tellings)
        if self.round is not None:  # two events at a time are one round, by the earlier deadline
            self.round.keys = tuple(dict.fromkeys((*self.round.keys, *keys)))
            return []
        self.round, self._late = Round(due[0].words, at_ns, keys, at_ns + LOOK_EVERY_NS), None
        limit = in_words(self._ends_ns(self.round) - at_ns)
        words = f"{due[0].words}: who holds a device is asked to save and leave within {limit}"
        return [TellPeople("warning", words), LookAtProcesses(is_thorough=False)]

    def _ends_ns(self, round_: Round) -> int:
        """The grace period's end, or a margin before the first deadline."""
        ends_ns = round_.began_ns + self.policy.grace_ns
        ours = [one for one in self.board.announcements if _is_of(one, round_.keys)]
        for deadline_ns in (one.deadline_ns for one in ours):
            if deadline_ns is not None:
                left_ns = max(0, deadline_ns - round_.began_ns)
                ends_ns = min(ends_ns, deadline_ns - min(self.policy.margin_ns, left_ns // 4))
        return ends_ns

    def _late_ends_ns(self, late: Round) -> int:
        """Until when late comers are looked for: they have what is left of the time."""
        ours = [one for one in self.board.announcements if _is_of(one, late.keys)]
        deadlines = [one.deadline_ns for one in ours if one.deadline_ns is not None]
        return min(deadlines, default=late.began_ns + self.policy.grace_ns)

    # --- processes ------------------------------------------------------------------------------

    def _looked(self, event: Looked) -> list[Action]:
        """Signal whoever is new; release when it is certain that nobody is left."""
        now = self.round
        if now is None:
            return self._looked_late(event)
        if event.began_ns < now.began_ns:
            return []
        if event.at_ns >= self._ends_ns(now):
            return self._end(event.at_ns, RoundOutcome.OVERDUE)
        now.unreadable = event.unreadable
        actions = [
            action for holder in event.holders for action in self._meet(now, holder, event.at_ns)
        ]
        if not event.is_thorough:  # the quick one came first, so that nobody waits for his signal
            return [*actions, LookAtProcesses(is_thorough=True)]
        if now.is_waiting:
            now.clear_looks = 0
            return actions
        now.clear_looks += event.began_ns >= now.last_end_ns
        if now.clear_looks >= CLEAR_LOOKS:
            return actions + self._end(event.at_ns, RoundOutcome.CLEAR)
        return [*actions, LookAtProcesses(is_thorough=True)]

    def _looked_late(self, event: Looked) -> list[Action]:
        """Signal who has come too late to be waited for."""
        if self._late is None:
            return []
        actions: list[Action] = []
        for holder in event.holders:
            if signals := self._meet(self._late, holder, event.at_ns):
                who = f"process {holder.process.pid} ({holder.command})"
                words = f"{who} has come when the host was released: it is asked to leave as well"
                actions += [TellPeople("warning", words), *signals]
        return actions

    def _meet(self, now: Round, holder: DeviceHolder, at_ns: int) -> list[Action]:
        """Note a holder, and have it signalled if it never was."""
        process = holder.process
        entry = now.entries.get(process)
        if entry is not None and entry.ended_ns is not None:
            return []  # it was seen just before its end
        was_signalled = process in self._signalled
        if entry is None:
            entry = now.entries[process] = ProcessInRound(holder, was_signalled=was_signalled)
        if was_signalled or holder.works_for is not None:
            return []
        self._signalled[process] = None
        now.entries[process] = replace(entry, holder=holder, signalled_ns=at_ns)
        return [Signal(holder)]

    def _ended(self, event: Ended) -> list[Action]:
        """Note how long it took; look again if it was the last."""
        now = self.round
        entry = now.entries.get(event.process) if now is not None else None
        if now is None or entry is None or entry.ended_ns is not None:
            return []
        now.entries[event.process] = entry = replace(entry, ended_ns=event.at_ns)
        now.last_end_ns = max(now.last_end_ns, event.at_ns)
        now.clear_looks = 0
        words = f"process {event.process.pid} ({entry.holder.command}) {entry.fate}"
        actions: list[Action] = [TellPeople("info", words)]
        return actions if now.is_waiting else [*actions, LookAtProcesses(is_thorough=True)]

    def _refused(self, event: Refused) -> list[Action]:
        """It is waited for all the same: it holds a device."""
        entry = self.round.entries.get(event.process) if self.round is not None else None
        if self.round is None or entry is None:
            return []
        refused = replace(entry, signalled_ns=None, refused=event.words)
        self.round.entries[event.process] = refused
        words = f"process {event.process.pid} ({entry.holder.command}): {event.words}"
        return [TellPeople("warning", f"{words}; it is waited for")]

    # --- time -----------------------------------------------------------------------------------

    def _time_came(self, event: TimeCame) -> list[Action]:
        """Begin what is due, look again, or end what has taken its time."""
        now = self.round
        if now is None:
            return self._begin(event.at_ns) or self._look_late(event.at_ns)
        if event.at_ns >= self._ends_ns(now):
            return self._end(event.at_ns, RoundOutcome.OVERDUE)
        joined = self._begin(event.at_ns)
        if event.at_ns < now.next_look_ns:
            return joined
        now.next_look_ns = event.at_ns + LOOK_EVERY_NS
        return [*joined, LookAtProcesses(is_thorough=True)]

    def _look_late(self, at_ns: int) -> list[Action]:
        """Look whether somebody has come since the release."""
        late = self._late
        if late is None or at_ns < late.next_look_ns:
            return []
        if at_ns >= self._late_ends_ns(late):
            self._late = None
            return []
        late.next_look_ns = at_ns + LOOK_LATE_EVERY_NS
        return [LookAtProcesses(is_thorough=True)]

    def _settled(self, now: Round, outcome: RoundOutcome) -> tuple[Notice, ...]:
        if outcome is not RoundOutcome.CLEAR or now.unreadable:
            return ()
        ours = [one for one in self.board.announcements if _is_of(one, now.keys)]
        return tuple(telling.notice for one in ours for telling in one.tellings)

    def _end(self, at_ns: int, outcome: RoundOutcome) -> list[Action]:
        """Report; release, unless the notice was withdrawn; then the next round, if one is due."""
        now = self.round
        if now is None:
            return []
        self.round = None
        actions: list[Action] = [Report(now.report(at_ns, outcome))]
        if outcome is not RoundOutcome.WITHDRAWN:
            self._served = (*self._served, *now.keys)
            actions.append(ReleaseHost(now.about, self._settled(now, outcome)))
        if outcome is RoundOutcome.CLEAR:
            now.next_look_ns = at_ns  # who came while the last look was taken is found at once
            self._late = now
        return actions


def _is_of(one: Announcement, keys: tuple[Key, ...]) -> bool:
    return any(telling.notice.key in keys for telling in one.tellings)


def _without(keys: tuple[Key, ...], one: Announcement) -> tuple[Key, ...]:
    gone = [telling.notice.key for telling in one.tellings]
    return tuple(key for key in keys if key not in gone)


TABLE: dict[type[Any], Callable[[Autocheckpoint, Any], list[Action]]] = {
    NoticeHeard: Autocheckpoint._noticed,
    Looked: Autocheckpoint._looked,
    Ended: Autocheckpoint._ended,
    Refused: Autocheckpoint._refused,
    TimeCame: Autocheckpoint._time_came,
}
