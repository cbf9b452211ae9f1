"""The reports of several hosts, joined into the one that the controller reads.

Hosts vote. That ranks are started, that nothing is left of them, that a set is sealed or is no
longer read: each is told when the last host has said so. That a rank has ended, or its shard is
durable, is told at once. For a host that is lost whoever found that out speaks (`lose`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder, seal_subject, subject_of_want
from holdfast.core.hosts.report import OF_AN_ATTEMPT, HostReport, RankState, before_the_first_page

SealTold = ev.Sealed | ev.SealFailed
WORDS = "its host is lost"


@dataclass(slots=True)
class _Host:
    """How far the reports of one host were read, and what it has said of the newest attempt."""

    ranks: tuple[int, ...] = ()  # of the newest attempt
    seen: int = 0
    read: int = 0
    states: tuple[RankState, ...] = ()
    ended: tuple[RankEvidence, ...] = ()
    has_launched: bool = False
    launched: ev.Launched | None = None  # as it told itself
    has_failed: bool = False  # to launch
    is_gone: bool = False  # nothing is left of its ranks
    stuck: ev.HostLost | None = None
    exited: set[int] = field(default_factory=set)
    looks: ev.Examined | None = None
    stacks: ev.StacksCollected | None = None
    nbytes: int = 0  # of the flush under way
    flushed: set[int] = field(default_factory=set)
    flush_failed: ev.FlushFailed | None = None
    is_lost: bool = False


class JoinedReports:
    """Of so many hosts. `report`: all of them as one, changed in place."""

    def __init__(self, hosts: int) -> None:
        self.report = HostReport()
        self._hosts = [_Host() for _ in range(hosts)]
        self._held: list[ev.Event] = []  # of an attempt whose launch is not told yet
        self._ordered = 0  # of the wants, the newest that was seen
        self._wanted_seals: dict[Hashable, act.Seal] = {}
        self._seals: dict[Hashable, dict[int, SealTold]] = {}  # answers, by what was to be sealed
        self._flush: tuple[int, int, int] | None = None

    # --- what is wanted of the hosts --------------------------------------------------------

    def ordered(self, order: HostOrder) -> None:
        """All hosts are given that order."""
        for want in order.wants.after(self._ordered):
            if isinstance(want, act.Launch):
                self._begin(want)
            elif isinstance(want, act.Flush):
                self._begin_flush((want.attempt, want.epoch, want.step))
            elif isinstance(want, act.Seal):
                self._wanted_seals[subject_of_want(want)] = want
                for number, host in enumerate(self._hosts):
                    if host.is_lost:
                        self._hear_seal(number, _no_seal(want))
        self._ordered = order.wants.newest
        is_wanted = order.wants.__contains__
        self.report.forget_seals(is_wanted)
        self._seals = {of: told for of, told in self._seals.items() if is_wanted(of)}
        self._wanted_seals = {of: one for of, one in self._wanted_seals.items() if is_wanted(of)}

    def _begin(self, launch: act.Launch) -> None:
        resumed = launch.resume.step
        self.report.begin(launch.attempt, resumed, launch.placement.ranks)
        self._held = []
        for number, host in enumerate(self._hosts):
            host.ranks = launch.placement.on(number)
            host.states = before_the_first_page(resumed, len(host.ranks))
            host.has_launched = host.has_failed = host.is_gone = False
            host.launched = host.stuck = host.looks = host.stacks = None
            host.exited, host.ended = set(), ()

    def _begin_flush(self, of: tuple[int, int, int]) -> None:
        self._flush = of
        self.report.begin_flush()
        for host in self._hosts:
            host.flushed, host.nbytes = set(), 0
            host.flush_failed = _no_flush(0, of) if host.is_lost else None

    # --- what the hosts say -----------------------------------------------------------------

    def take(self, number: int, report: HostReport) -> None:
        """The host of that number has told how it stands."""
        host = self._hosts[number]
        if host.is_lost or report.number <= host.seen:
            return
        host.seen = report.number
        for fact in report.facts.after(host.read):
            if not isinstance(fact, OF_AN_ATTEMPT) or fact.attempt == self.report.attempt:
                self._hear(number, host, fact)
        host.read = report.facts.newest
        if report.attempt == self.report.attempt:
            host.states = report.ranks
            self._note_ended(host, report.ended)
        if self._is_launched:
            self.report.ranks = tuple(state for one in self._hosts for state in one.states)
        self.report.number += 1

    def lose(self, number: int, at_ns: int) -> None:
        """That host is gone with all that was on it, and is not listened to any more.

        Whether it had started its ranks, nobody knows: the attempt ends with it.
        """
        host = self._hosts[number]
        if host.is_lost:
            return
        attempt = self.report.attempt
        if attempt >= 0 and not host.is_gone:
            if not (host.has_launched or host.has_failed):
                self._hear_launched(host, None, at_ns)
            for rank in host.ranks:
                if rank not in host.exited:
                    how = Exit(host_lost=True)
                    self._hear(number, host, ev.RankExited(at_ns, attempt, rank, at_ns, how))
            self._note_ended(host, tuple(RankEvidence(rank) for rank in host.ranks))
            self._hear(number, host, ev.TreeGone(at_ns, attempt))
        for want in list(self._wanted_seals.values()):  # what it had sealed is gone with it
            self._hear_seal(number, _no_seal(want))
        if self._flush is not None and len(host.flushed) < len(host.ranks):
            self._hear(number, host, _no_flush(at_ns, self._flush))
        host.is_lost = True
        self.report.number += 1

    def replace(self, number: int) -> bool:
        """An empty host takes the place of one that was lost; whether it is to start its ranks.

        It is where they were ordered after that.
        """
        host = self._hosts[number]
        host.seen = host.read = 0
        host.is_lost = False
        return not (host.has_launched or host.has_failed)

    def _note_ended(self, host: _Host, ended: tuple[RankEvidence, ...]) -> None:
        if ended != host.ended:
            host.ended = ended
            found = [one for each in self._hosts for one in each.ended]
            self.report.ended = tuple(sorted(found, key=lambda one: one.rank))

    # --- one fact of one host ---------------------------------------------------------------

    @property
    def _is_launched(self) -> bool:
        return all(host.has_launched for host in self._hosts)

    def _hear(self, number: int, host: _Host, fact: ev.Event) -> None:
        if isinstance(fact, ev.Launched):
            if not host.has_launched:  # once an attempt, also where the host was replaced since
                self._hear_launched(host, fact, fact.at_ns)
        elif isinstance(fact, ev.LaunchFailed):
            is_first = not any(one.has_failed for one in self._hosts)
            host.has_failed = True
            if is_first:
                self.report.note(fact)
        elif isinstance(fact, ev.RankExited):
            host.exited.add(fact.rank)
            self._tell_of_attempt(fact)
        elif isinstance(fact, ev.TreeGone | ev.HostLost):
            self._hear_gone(host, fact)
        elif isinstance(fact, ev.Examined | ev.StacksCollected):
            self._hear_look(host, fact)
        elif isinstance(fact, SealTold):
            self._hear_seal(number, fact)
        elif isinstance(fact, ev.Flushing | ev.Flushed | ev.FlushFailed):
            self._hear_flush(host, fact)
        elif fact not in self.report.facts.after(0):  # that they slept, all machines say at once
            self.report.note(fact)

    def _hear_launched(self, host: _Host, fact: ev.Launched | None, at_ns: int) -> None:
        """The attempt began when the first of its ranks did. None: nobody knows of this host's."""
        host.has_launched, host.launched = True, fact
        if self._is_launched:
            known = (one.launched for one in self._hosts if one.launched is not None)
            first = min(known, key=lambda one: one.at_ns, default=None)
            self.report.note(first or ev.Launched(at_ns, self.report.attempt))
            held, self._held = self._held, []
            for one in held:
                self.report.note(one)

    def _tell_of_attempt(self, fact: ev.Event) -> None:
        """What is true of an attempt is told after its launch."""
        if self._is_launched or any(host.has_failed for host in self._hosts):
            self.report.note(fact)
        else:
            self._held.append(fact)

    def _hear_gone(self, host: _Host, fact: ev.TreeGone | ev.HostLost) -> None:
        if isinstance(fact, ev.HostLost):
            host.stuck = fact
        host.is_gone = True
        if all(one.is_gone for one in self._hosts):
            stuck = next((one.stuck for one in self._hosts if one.stuck is not None), None)
            self._tell_of_attempt(stuck or fact)

    def _hear_look(self, host: _Host, fact: ev.Examined | ev.StacksCollected) -> None:
        """One look at all ranks: as old as the oldest of its parts."""
        if isinstance(fact, ev.Examined):
            host.looks = fact
            looks = [one.looks for one in self._hosts if one.looks is not None]
            if len(looks) == len(self._hosts):
                at_ns = min(look.at_ns for look in looks)
                ranks = tuple(rank for look in looks for rank in look.ranks)
                self.report.note(ev.Examined(at_ns, fact.attempt, ranks))
                for one in self._hosts:
                    one.looks = None
            return
        host.stacks = fact
        stacks = [one.stacks for one in self._hosts if one.stacks is not None]
        if len(stacks) == len(self._hosts):
            where = tuple(rank for stack in stacks for rank in stack.ranks)
            self.report.note(ev.StacksCollected(fact.at_ns, fact.attempt, where))
            for one in self._hosts:
                one.stacks = None

    def _hear_seal(self, number: int, fact: SealTold) -> None:
        """Told when no host works on it any more: its buffer may be written then."""
        of = seal_subject(fact)
        told = self._seals.setdefault(of, {})
        told[number] = fact
        if len(told) == len(self._hosts):
            del self._seals[of]
            self._wanted_seals.pop(of, None)
            failed = (one for one in told.values() if isinstance(one, ev.SealFailed))
            self.report.note(next(failed, fact))

    def _hear_flush(self, host: _Host, fact: ev.Flushing | ev.Flushed | ev.FlushFailed) -> None:
        """A failure is told when no host reads the set any more."""
        attempt = fact.of_attempt
        if (attempt, fact.epoch, fact.step) != self._flush:
            return
        if isinstance(fact, ev.FlushFailed):
            host.flush_failed = host.flush_failed or fact
        elif isinstance(fact, ev.Flushed):
            host.flushed.add(fact.rank)
            self.report.note(fact)
        else:
            host.nbytes = fact.nbytes
            self.report.note(replace(fact, nbytes=sum(one.nbytes for one in self._hosts)))
            return
        failed = [one.flush_failed for one in self._hosts if one.flush_failed is not None]
        is_over = all(
            one.flush_failed is not None or len(one.flushed) == len(one.ranks)
            for one in self._hosts
        )
        if is_over:
            self._flush = None
            if failed:
                self.report.note(max(failed, key=lambda one: one.is_gone))


def _no_flush(at_ns: int, of: tuple[int, int, int]) -> ev.FlushFailed:
    return ev.FlushFailed(at_ns, *of, WORDS, is_gone=True)


def _no_seal(want: act.Seal) -> ev.SealFailed:
    return ev.SealFailed(0, want.attempt, want.epoch, want.step, want.buffer, WORDS)
