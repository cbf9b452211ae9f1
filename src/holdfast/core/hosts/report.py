"""What a host tells: its state as it stands, and what is new in it to whoever reads it.

Whatever has happened stays in the report until the attempt that it is about is superseded. The
ranks' pages are in it as they were read; `ReportReader` turns the difference between two reports
into the events of the run's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import seal_subject
from holdfast.core.hosts.register import Register
from holdfast.core.save.ranks import RankAnswers, changes

# These are about one attempt: the launch of the next takes their place.
OF_AN_ATTEMPT = (
    ev.Launched, ev.LaunchFailed, ev.RankExited, ev.TreeGone, ev.HostLost, ev.Examined,
    ev.StacksCollected,
)  # fmt: skip
OF_A_FLUSH = (ev.Flushing, ev.Flushed, ev.FlushFailed)
BEGINNINGS = (ev.Launched, ev.LaunchFailed, ev.Suspended)  # told before what the pages say


class RankState(NamedTuple):
    """One rank, by its page.

    `has_session`: there is a page. `blocked_ns`: what its last copy cost. `buffers`: how many it
    has in memory. `saves_asked`: by its script, so far. `sigterms`: that it has received itself.
    """

    has_session: bool = False
    answers: RankAnswers = RankAnswers()
    blocked_ns: int = 0
    buffers: int = 0
    saves_asked: int = 0
    sigterms: int = 0


@dataclass(slots=True)
class HostReport:
    """What is true of a host. `ranks`: those of `attempt`, by their pages.

    `number`: of this state of it; who reads passes over one that was overtaken. `ended`: how the
    ranks did, which is told with the fact that they have.
    """

    number: int = 0
    attempt: int = -1
    ranks: tuple[RankState, ...] = ()
    facts: Register[ev.Event] = field(default_factory=Register)
    ended: tuple[RankEvidence, ...] = ()

    def note(self, event: ev.Event) -> None:
        """Something has happened on the host."""
        self.facts.put(subject_of_fact(event), event)

    def begin(self, attempt: int, resume_step: int, ranks: int) -> None:
        """Another attempt begins: what was true of the one before is of no use any more."""
        self.attempt, self.ranks = attempt, before_the_first_page(resume_step, ranks)
        self.ended = ()
        self.facts.drop_kinds(OF_AN_ATTEMPT)

    def begin_flush(self) -> None:
        """Another set is on its way to the store."""
        self.facts.drop_kinds(OF_A_FLUSH)

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """Answers to seals that nobody wants any more were heard."""
        self.facts.drop_where(
            lambda old: (
                isinstance(old, ev.Sealed | ev.SealFailed) and not is_wanted(seal_subject(old))
            )
        )


def before_the_first_page(resume_step: int, ranks: int) -> tuple[RankState, ...]:
    """What is known of ranks that nobody has heard of yet."""
    return (RankState(answers=RankAnswers(step=resume_step)),) * ranks


def subject_of_fact(event: ev.Event) -> Hashable:
    """What a newer fact takes the place of an older one by."""
    if isinstance(event, ev.RankExited | ev.Flushed):
        return type(event).__name__, event.rank
    if isinstance(event, ev.Sealed | ev.SealFailed):
        return seal_subject(event)
    if isinstance(event, ev.StopAsked):
        return type(event).__name__, event.source
    return type(event).__name__


def _heard(event: ev.Event, at_ns: int) -> ev.Event:
    """The same, as heard then: what is decided on it is decided now.

    A look is judged by the time at which it was made, and steps lie in the attempt that began.
    """
    if event.at_ns == at_ns or isinstance(event, ev.Examined):
        return event
    if isinstance(event, ev.Launched):
        return replace(event, at_ns=at_ns, began_ns=event.at_ns)
    return replace(event, at_ns=at_ns)


class Asked:
    """How many saves each rank's script was heard to ask for, and who asked last.

    The ranks run the same script, so the first to reach a count asks for all of them; the others'
    words come moments later, perhaps when that save is already ordered, or done.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._most = 0
        self._asker = 0

    def is_heard(self, rank: int, count: int) -> bool:
        """Whether that many are known of this rank: nothing new."""
        return self._counts.get(rank, 0) == count

    def is_new(self, rank: int, count: int, at_step: int, ordered_step: int) -> bool:
        """Whether a save must be ordered for this rank's script, which has now asked for `count`.

        `at_step` is the last step that it has published, `ordered_step` the newest step that is
        saved or ordered to be. A save that another rank has asked for is this one too once a step
        after `at_step` is ordered. The rank that asked last asks anew with every count: it has its
        last one behind it.
        """
        heard_before = count <= self._most
        self._counts[rank], self._most = count, max(self._most, count)
        if rank != self._asker and heard_before and ordered_step >= at_step:
            return False
        self._asker = rank
        return True


class ReportReader:
    """Of one host: how far its reports were read."""

    def __init__(self, grace_ns: int) -> None:
        """`grace_ns`: how long a SIGTERM to a rank leaves, by what the user says."""
        self._grace_ns = grace_ns
        self._seen = self._read = 0
        self._attempt = -1
        self._ranks: tuple[RankState, ...] = ()
        self._asked = Asked()
        self.ended: tuple[RankEvidence, ...] = ()
        """How the attempt's ranks ended, by what was heard so far."""

    def begin(self, attempt: int, resume_step: int, ranks: int) -> None:
        """An attempt was launched, from that step: no rank has a page yet."""
        self._attempt = attempt
        self._ranks = before_the_first_page(resume_step, ranks)
        self._asked = Asked()
        self.ended = ()

    def read(self, report: HostReport, at_ns: int, ordered_step: int) -> Iterator[ev.Event]:
        """What is new, as heard at `at_ns`, which may be long after it happened.

        `ordered_step`: the newest that is durable, or ordered to be. A dead rank's last words
        count: they are told before its end.
        """
        if report.number <= self._seen:
            return
        self._seen = report.number
        facts = [_heard(fact, at_ns) for fact in report.facts.after(self._read)]
        self._read = report.facts.newest
        if report.attempt == self._attempt:
            self.ended = report.ended
        begins = 0
        while begins < len(facts) and isinstance(facts[begins], BEGINNINGS):
            yield facts[begins]
            begins += 1
        if report.attempt == self._attempt and report.ranks != self._ranks:
            before, self._ranks = self._ranks, report.ranks
            for rank, states in enumerate(zip(before, report.ranks, strict=True)):
                yield from self._changes(at_ns, rank, *states, ordered_step)
        yield from facts[begins:]

    def _changes(
        self, at_ns: int, rank: int, before: RankState, now: RankState, ordered_step: int
    ) -> Iterator[ev.Event]:
        if now == before:
            return
        attempt = self._attempt
        if not before.has_session:
            yield ev.Joined(at_ns, attempt, rank)
        if now.answers.copied != before.answers.copied:
            yield ev.SaveTook(at_ns, attempt, now.blocked_ns)
        if now.buffers != before.buffers:  # before progress: a save may be due with it
            yield ev.BuffersReady(at_ns, attempt, rank, now.buffers)
        for item in changes(at_ns, rank, before.answers, now.answers):
            yield ev.Heard(at_ns, attempt, item)
        count = now.saves_asked
        if not self._asked.is_heard(rank, count) and self._asked.is_new(
            rank, count, now.answers.step, ordered_step
        ):
            yield ev.SaveAsked(at_ns, f"rank {rank}'s script", in_step=True)
        if now.sigterms > before.sigterms:
            by_ns = at_ns + self._grace_ns
            yield ev.StopAsked(at_ns, f"SIGTERM to rank {rank}", by_ns, notice=True)
