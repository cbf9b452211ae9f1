"""What the hosts of a run tell, as the events of the run's machine.

    reader = ReportReader(hosts=2, grace_ns=0)
    events = reader.ordered(order, at_ns)
    events = reader.read(0, report, at_ns, ordered_step)

Hosts that have a part of the attempt vote. That ranks are started, that nothing is left of them,
that a set is sealed or is no longer read: each is told when the last host has said so. That a rank
has ended, or its shard is durable, is told at once. For a host that is lost whoever found that out
speaks (`lose`). A report costs the same however many other hosts there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder, seal_subject, subject_of_want
from holdfast.core.hosts.pages import PageReader
from holdfast.core.hosts.report import OF_AN_ATTEMPT, HostReport, RankState, before_the_first_page
from holdfast.core.save.corruption import merged
from holdfast.core.save.tier_events import AlikeDigests

BEGINNINGS = (ev.Launched, ev.LaunchFailed, ev.Suspended)  # told before what the pages say
WORDS = "its host is lost"

SealOutcome = ev.Sealed | ev.SealFailed
ReplicaOutcome = ev.Replicated | ev.NotReplicated


@dataclass(slots=True)
class _Host:
    """How far the reports of one host were read, and what it has said of the newest attempt."""

    ranks: Sequence[int] = ()  # of the newest attempt
    seen: int = 0
    read: int = 0
    pages: tuple[RankState, ...] = ()
    pages_read: tuple[RankState, ...] = ()  # the same, as far as events were made of it
    ended: tuple[RankEvidence, ...] = ()
    has_launched: bool = False
    has_failed: bool = False  # to launch
    is_gone: bool = False  # nothing is left of its ranks
    exited: set[int] = field(default_factory=set)
    nbytes: int = 0  # of the flush under way
    flushed: set[int] = field(default_factory=set)
    has_flush_failed: bool = False
    is_lost: bool = False

    @property
    def is_flush_over(self) -> bool:
        """Whether it reads nothing of the set any more."""
        return self.has_flush_failed or len(self.flushed) == len(self.ranks)


@dataclass(slots=True)
class _Flush:
    """A set on its way to the store."""

    of: tuple[int, int, int]  # attempt, epoch, step
    at_it: int  # hosts
    nbytes: int = 0
    failed: ev.FlushFailed | None = None


class ReportReader:
    """What was read of the reports of all hosts, and who has said what."""

    def __init__(self, hosts: int, grace_ns: int, *, is_elastic: bool = False) -> None:
        """`grace_ns`: how long a SIGTERM to a rank leaves, by what the user says.

        `is_elastic`: a host that was lost when its ranks are to be started is not waited for.
        """
        self._pages = PageReader(grace_ns)
        self._hosts = [_Host() for _ in range(hosts)]
        self._is_elastic = is_elastic
        self._parts = frozenset(range(hosts))  # hosts that have ranks of the newest attempt
        self._attempt, self._is_adopted = -1, False
        self._at_ns = self._ordered_step = 0  # of the report that is read
        self._events: list[ev.Event] = []  # that it comes to
        self._to_launch = self._to_go = 0  # hosts that have not said so
        self._has_failed = False  # to launch, on some host
        self._first: ev.Launched | None = None
        self._held: list[ev.Event] = []  # of an attempt whose launch is not told yet
        self._stuck: ev.HostLost | None = None
        self._looks: dict[int, ev.Examined] = {}
        self._stacks: dict[int, ev.StacksCollected] = {}
        self._slept: ev.Suspended | None = None
        self._wants_read = 0  # the newest
        self._wanted_seals: dict[Hashable, act.Seal] = {}
        self._sealers: dict[Hashable, frozenset[int]] = {}  # who had a part when that was wanted
        self._seals: dict[
            Hashable, dict[int, SealOutcome]
        ] = {}  # answers, by what was to be sealed
        self._flush: _Flush | None = None
        # What is copied, what was answered, and who is to answer.
        self._replicas: tuple[act.Replicate, dict[int, ReplicaOutcome], frozenset[int]] | None = (
            None
        )

    # --- what is wanted of the hosts --------------------------------------------------------

    def ordered(self, order: HostOrder, at_ns: int) -> list[ev.Event]:
        """All hosts are given that order: what is known of it at once, since some are lost."""
        events = self._events = []
        self._at_ns = at_ns
        for want in order.wants.after(self._wants_read):
            if isinstance(want, act.Launch):
                self.begin(want)
                self._speak_for_the_lost()
            elif isinstance(want, act.Flush):
                self._begin_flush((want.attempt, want.epoch, want.step))
            elif isinstance(want, act.Replicate):
                self._replicas = want, {}, self._parts
                for number, host in enumerate(self._hosts):
                    if host.is_lost:
                        self._hear_replica(number, host, _no_replica(want))
            elif isinstance(want, act.Seal):
                of = subject_of_want(want)
                self._wanted_seals[of], self._sealers[of] = want, self._parts
                for number, host in enumerate(self._hosts):
                    if host.is_lost:
                        self._hear_seal(number, host, _no_seal(want))
        self._wants_read = order.wants.newest
        if self._wanted_seals or self._seals:
            self._forget_seals(order)
        return events

    def _forget_seals(self, order: HostOrder) -> None:
        wants = order.wants
        self._seals = {of: outcomes for of, outcomes in self._seals.items() if of in wants}
        self._wanted_seals = {of: one for of, one in self._wanted_seals.items() if of in wants}
        self._sealers = {of: parts for of, parts in self._sealers.items() if of in wants}

    def begin(self, launch: act.Launch | act.Adopt) -> None:
        """The hosts' reports are about that attempt from now on."""
        self._attempt, self._is_adopted = launch.attempt, isinstance(launch, act.Adopt)
        self._pages.begin()
        ranks: list[list[int]] = [[] for _ in self._hosts]
        for rank, number in enumerate(launch.placement.hosts):
            ranks[number].append(rank)
        for host, its_ranks in zip(self._hosts, ranks, strict=True):
            host.ranks = its_ranks
            host.pages = before_the_first_page(launch.resume.step, len(its_ranks))
            host.pages_read = host.pages
            host.has_launched = host.is_gone = not its_ranks  # who has no part, says nothing
            host.has_failed = False
            host.exited, host.ended = set(), ()
        self._parts = frozenset(number for number, its_ranks in enumerate(ranks) if its_ranks)
        self._to_launch = self._to_go = len(self._parts)
        self._has_failed = False
        self._first = self._stuck = None
        self._held, self._looks, self._stacks = [], {}, {}

    def _begin_flush(self, of: tuple[int, int, int]) -> None:
        for host in self._hosts:
            host.flushed, host.nbytes = set(), 0
            host.has_flush_failed = host.is_lost
        at_it = sum(not host.is_flush_over for host in self._hosts)
        is_whole = not any(self._hosts[number].is_lost for number in self._parts)
        failed = None if is_whole else _no_flush(self._at_ns, of)
        self._flush = _Flush(of, at_it, failed=failed)
        if not at_it:
            self._flush_is_over(self._flush)

    # --- what the hosts say -----------------------------------------------------------------

    def read(
        self, number: int, report: HostReport, at_ns: int, ordered_step: int
    ) -> list[ev.Event]:
        """What is new, as heard at `at_ns`, which may be long after it happened.

        `ordered_step`: the newest that is durable, or ordered to be. A dead rank's last words
        count: they are told before its end.
        """
        host = self._hosts[number]
        if host.is_lost or report.number <= host.seen:
            return []
        events = self._events = []
        self._at_ns, self._ordered_step = at_ns, ordered_step
        host.seen = report.number
        facts = report.facts.after(host.read)
        host.read = report.facts.newest
        if report.attempt == self._attempt:
            host.pages, host.ended = report.ranks, report.ended
        begins = 0
        while begins < len(facts) and isinstance(facts[begins], BEGINNINGS):
            self._hear(number, host, facts[begins])
            begins += 1
        if not self._to_launch:
            self._tell_pages(host)
        for fact in facts[begins:]:
            self._hear(number, host, fact)
        return events

    def lose(self, number: int, at_ns: int, ordered_step: int) -> list[ev.Event]:
        """That host is gone with all that was on it, and is not listened to any more.

        Whether it had started its ranks, nobody knows: the attempt ends with it.
        """
        host = self._hosts[number]
        if host.is_lost:
            return []
        events = self._events = []
        self._at_ns, self._ordered_step = at_ns, ordered_step
        self._speak_for(number, host)
        for want in list(self._wanted_seals.values()):  # what it had sealed is gone with it
            self._hear_seal(number, host, _no_seal(want))
        if self._replicas is not None:
            self._hear_replica(number, host, _no_replica(self._replicas[0]))
        if self._flush is not None and not host.is_flush_over:
            self._hear(number, host, _no_flush(at_ns, self._flush.of))
        host.is_lost = True
        return events

    def _speak_for_the_lost(self) -> None:
        """An attempt is begun, and some of its hosts were lost since they were counted on."""
        for number in self._parts if self._is_elastic else ():
            if self._hosts[number].is_lost:
                self._speak_for(number, self._hosts[number])

    def _speak_for(self, number: int, host: _Host) -> None:
        """Its ranks have ended with it, whatever they had begun."""
        attempt, at_ns = self._attempt, self._at_ns
        if attempt < 0 or host.is_gone:
            return
        if not (host.has_launched or host.has_failed):
            self._launched_here(host, None)
        for rank in host.ranks:
            if rank not in host.exited:
                how = Exit(host_lost=True)
                self._hear(number, host, ev.RankExited(at_ns, attempt, rank, at_ns, how))
        host.ended = tuple(RankEvidence(rank) for rank in host.ranks)
        self._hear(number, host, ev.TreeGone(at_ns, attempt))

    def replace(self, number: int) -> bool:
        """An empty host takes the place of one that was lost; whether it is to start its ranks.

        It is where they were ordered after that.
        """
        host = self._hosts[number]
        host.seen = host.read = 0
        host.is_lost = False
        return not (host.has_launched or host.has_failed)

    @property
    def ended(self) -> tuple[RankEvidence, ...]:
        """How the attempt's ranks ended, by what was heard so far."""
        found = [one for host in self._hosts for one in host.ended]
        return tuple(sorted(found, key=lambda one: one.rank))

    # --- one fact of one host ---------------------------------------------------------------

    def _hear(self, number: int, host: _Host, fact: ev.Event) -> None:
        if isinstance(fact, OF_AN_ATTEMPT) and fact.attempt != self._attempt:
            return
        hear = HEAR.get(type(fact))
        if hear is not None:
            hear(self, number, host, fact)
        else:
            self._tell(fact)

    def _tell(self, fact: ev.Event) -> None:
        """As heard now: what is decided on it is decided now.

        A look is judged by the time at which it was made, and steps lie in the attempt that began.
        """
        at_ns = self._at_ns
        if fact.at_ns != at_ns and not isinstance(fact, ev.Examined):
            if isinstance(fact, ev.Launched):
                fact = replace(fact, at_ns=at_ns, began_ns=fact.at_ns)
            else:
                fact = replace(fact, at_ns=at_ns)
        self._events.append(fact)

    def _tell_of_attempt(self, fact: ev.Event) -> None:
        """What is true of an attempt is told after its launch."""
        if self._to_launch and not self._has_failed:
            self._held.append(fact)
        else:
            self._tell(fact)

    def _hear_sleep(self, _: int, __: _Host, fact: ev.Suspended) -> None:
        """All machines say at once that they slept."""
        if fact != self._slept:
            self._slept = fact
            self._tell(fact)

    def _hear_launched(self, _: int, host: _Host, fact: ev.Launched) -> None:
        """Once an attempt, also where the host was replaced since."""
        if not host.has_launched:
            self._launched_here(host, fact)

    def _launched_here(self, host: _Host, fact: ev.Launched | None) -> None:
        """The attempt began when the first of its ranks did. None: nobody knows of this host's."""
        host.has_launched = True
        self._to_launch -= 1
        if fact is not None and (self._first is None or fact.at_ns < self._first.at_ns):
            self._first = fact
        if self._to_launch:
            return
        first = self._first or ev.Launched(self._at_ns, self._attempt)
        if fact is not None:  # of those that have it now: one may have been replaced since
            first = replace(first, chips=fact.chips)
        if self._is_adopted:
            self._tell_what_it_did(first)
        else:
            self._tell(first)
            for one in self._hosts:
                self._tell_pages(one)
        held, self._held = self._held, []
        for event in held:
            self._tell(event)

    def _tell_what_it_did(self, first: ev.Launched) -> None:
        """How far its ranks are is told before its launch: a stop may begin with that."""
        others, self._events = self._events, []
        for one in self._hosts:
            self._tell_pages(one)
        asked = [event for event in self._events if isinstance(event, ev.SaveAsked)]
        others += [event for event in self._events if not isinstance(event, ev.SaveAsked)]
        self._events = others
        self._tell(first)
        others += asked

    def _hear_no_launch(self, _: int, host: _Host, fact: ev.LaunchFailed) -> None:
        is_first, self._has_failed = not self._has_failed, True
        host.has_failed = True
        if is_first:
            self._tell(fact)

    def _hear_exit(self, _: int, host: _Host, fact: ev.RankExited) -> None:
        host.exited.add(fact.rank)
        self._tell_of_attempt(fact)

    def _hear_gone(self, _: int, host: _Host, fact: ev.TreeGone | ev.HostLost) -> None:
        if isinstance(fact, ev.HostLost):
            self._stuck = self._stuck or fact
        if host.is_gone:
            return
        host.is_gone = True
        self._to_go -= 1
        if not self._to_go:
            self._tell_of_attempt(self._stuck or fact)

    def _hear_look(self, number: int, _: _Host, fact: ev.Examined) -> None:
        """One look at all ranks: as old as the oldest of its parts."""
        looks = self._looks
        looks[number] = fact
        if looks.keys() >= self._parts:
            self._looks = {}
            at_ns = min(look.at_ns for look in looks.values())
            ranks = tuple(rank for _, look in sorted(looks.items()) for rank in look.ranks)
            self._tell(ev.Examined(at_ns, fact.attempt, ranks))

    def _hear_stacks(self, number: int, _: _Host, fact: ev.StacksCollected) -> None:
        stacks = self._stacks
        stacks[number] = fact
        if stacks.keys() >= self._parts:
            self._stacks = {}
            where = tuple(rank for _, stack in sorted(stacks.items()) for rank in stack.ranks)
            self._tell(ev.StacksCollected(fact.at_ns, fact.attempt, where))

    def _hear_seal(self, number: int, _: _Host, fact: SealOutcome) -> None:
        """Told when no host works on it any more: its buffer may be written then."""
        of = seal_subject(fact)
        outcomes = self._seals.setdefault(of, {})
        outcomes[number] = fact
        sealers = self._sealers.get(of, self._parts)
        if outcomes.keys() >= sealers:
            del self._seals[of]
            self._wanted_seals.pop(of, None)
            found = [outcomes[one] for one in sorted(sealers)]
            failed = (one for one in found if isinstance(one, ev.SealFailed))
            done = [one for one in found if isinstance(one, ev.Sealed)]
            told = replace(fact, alike=_alike(done)) if isinstance(fact, ev.Sealed) else fact
            self._tell(next(failed, told))

    def _hear_replica(self, number: int, _: _Host, fact: ReplicaOutcome) -> None:
        """Told once every host has done its part, or could not."""
        if self._replicas is None:
            return
        want, outcomes, parts = self._replicas
        of = (want.attempt, want.epoch, want.step)
        if (fact.of_attempt, fact.epoch, fact.step) != of:
            return
        outcomes[number] = fact
        if outcomes.keys() >= parts:
            self._replicas = None
            found = [outcomes[one] for one in sorted(parts)]
            done = [one for one in found if isinstance(one, ev.Replicated)]
            differing = merged(one.differing for one in done)
            failed = (one for one in found if isinstance(one, ev.NotReplicated))
            # What differs is told, also where another host could not copy its part.
            together = replace(done[0], differing=differing) if done else fact
            self._tell(together if differing else next(failed, together))

    def _hear_flush(
        self, _: int, host: _Host, fact: ev.Flushing | ev.Flushed | ev.FlushFailed
    ) -> None:
        """A failure is told when no host reads the set any more."""
        flush = self._flush
        if flush is None or (fact.of_attempt, fact.epoch, fact.step) != flush.of:
            return
        if isinstance(fact, ev.Flushing):
            flush.nbytes += fact.nbytes - host.nbytes
            host.nbytes = fact.nbytes
            self._tell(replace(fact, nbytes=flush.nbytes))
            return
        was_over = host.is_flush_over
        if isinstance(fact, ev.FlushFailed):
            if flush.failed is None or fact.is_gone:
                flush.failed = fact
            host.has_flush_failed = True
        else:
            host.flushed.add(fact.rank)
            self._tell(fact)
        flush.at_it -= host.is_flush_over and not was_over
        if not flush.at_it:
            self._flush_is_over(flush)

    def _flush_is_over(self, flush: _Flush) -> None:
        self._flush = None
        if flush.failed is not None:
            self._tell(flush.failed)

    # --- the pages of one host's ranks ------------------------------------------------------

    def _tell_pages(self, host: _Host) -> None:
        before, now = host.pages_read, host.pages
        if before is now or before == now:
            return
        host.pages_read = now
        of = self._at_ns, self._attempt, self._ordered_step
        for rank, was, says in zip(host.ranks, before, now, strict=True):
            if was != says:
                self._events += self._pages.news(rank, was, says, *of)


HEAR: dict[type[ev.Event], Callable[[ReportReader, int, _Host, Any], None]] = {
    ev.Suspended: ReportReader._hear_sleep,
    ev.Launched: ReportReader._hear_launched,
    ev.LaunchFailed: ReportReader._hear_no_launch,
    ev.RankExited: ReportReader._hear_exit,
    ev.TreeGone: ReportReader._hear_gone,
    ev.HostLost: ReportReader._hear_gone,
    ev.Examined: ReportReader._hear_look,
    ev.StacksCollected: ReportReader._hear_stacks,
    ev.Sealed: ReportReader._hear_seal,
    ev.SealFailed: ReportReader._hear_seal,
    ev.Replicated: ReportReader._hear_replica,
    ev.NotReplicated: ReportReader._hear_replica,
    ev.Flushing: ReportReader._hear_flush,
    ev.Flushed: ReportReader._hear_flush,
    ev.FlushFailed: ReportReader._hear_flush,
}


def _alike(sealed: Sequence[ev.Sealed]) -> AlikeDigests:
    """What the parts of all hosts have alike."""
    return tuple(pair for pair in sealed[0].alike if all(pair in one.alike for one in sealed))


def _no_seal(want: act.Seal) -> ev.SealFailed:
    of = (want.attempt, want.epoch, want.step, want.buffer)
    return ev.SealFailed(0, *of, WORDS, is_lost=True)


def _no_replica(want: act.Replicate) -> ev.NotReplicated:
    return ev.NotReplicated(0, want.attempt, want.epoch, want.step, WORDS)


def _no_flush(at_ns: int, of: tuple[int, int, int]) -> ev.FlushFailed:
    return ev.FlushFailed(at_ns, *of, WORDS, is_gone=True)
