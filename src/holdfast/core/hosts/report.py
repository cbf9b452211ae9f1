"""What a host tells: its state as it stands, and what is new in it to whoever reads it.

Whatever has happened stays in the report until the attempt that it is about is superseded. The
ranks' pages are in it as they were read; `core.hosts.reader` turns the difference between two
reports into the events of the run's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import seal_subject
from holdfast.core.hosts.register import Register
from holdfast.core.save.ranks import RankAnswers

# These are about one attempt: the launch of the next takes their place.
OF_AN_ATTEMPT = (
    ev.Launched, ev.LaunchFailed, ev.RankExited, ev.TreeGone, ev.HostLost, ev.Examined,
    ev.StacksCollected,
)  # fmt: skip
OF_A_FLUSH = (ev.Flushing, ev.Flushed, ev.FlushFailed)


class Pace(NamedTuple):
    """When a rank was done with its newest step, on its host's clock, and what it did so far.

    `spans_ns`: in spans, of 1 ms or more. `together_ns`: with the other ranks, as far as the script
    marks that. 0: never.
    """

    at_ns: int = 0
    spans_ns: int = 0
    together_ns: int = 0


class RankState(NamedTuple):
    """One rank, by its page.

    `has_session`: there is a page of one. `recorded`: where there is none, the last step that a
    recorder has told. `blocked_ns`: what its last copy cost. `buffers`: how many it
    has in memory. `saves_asked`: by its script, so far. `sigterms`: that it has received itself.
    `pace`: as of the step that is told.
    """

    has_session: bool = False
    answers: RankAnswers = RankAnswers()
    blocked_ns: int = 0
    buffers: int = 0
    saves_asked: int = 0
    sigterms: int = 0
    pace: Pace = Pace()
    recorded: int = 0


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

    def meet_controller(self) -> None:
        """Another one has taken over: what was seen for the one before is of no use to it."""
        self.facts.drop_kinds((ev.Examined, ev.StacksCollected, ev.Suspended))

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
    if isinstance(event, ev.Replicated | ev.NotReplicated):
        return ev.Replicated.__name__
    if isinstance(event, ev.StopAsked):
        return type(event).__name__, event.source
    return type(event).__name__
