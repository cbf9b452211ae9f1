"""What happened, as plain facts: the vocabulary of a history, and the ledger's only input.

One dataclass per event of the history format (docs/reference/history.md). All times are integer
nanoseconds on one clock with any origin; an open end is None.
"""

from __future__ import annotations

from holdfast.core.ledger.kinds import DONE as DONE
from holdfast.core.value import value


@value
class RunFact:
    """The run: once in a history. `requested_ns` is when its resources were asked for.

    `notes`: what whoever wrote the history had to assume, a sentence each.
    """

    name: str
    requested_ns: int
    ended_ns: int | None
    chips: int
    notes: tuple[str, ...] = ()


@value
class AttemptFact:
    """One launch: all processes launched, all gone. `cause` None: not known yet."""

    attempt: int
    start_ns: int
    end_ns: int | None
    cause: str | None


@value
class WaitFact:
    """Why no attempt ran; `kind` is backoff, stopped, hosts, queue, provision, pull or boot.

    `end_ns` None: until the next attempt begins. Of several of one kind that begin at one moment
    the last counts.
    """

    kind: str
    start_ns: int
    end_ns: int | None


@value
class FaultFact:
    """When an attempt really broke (`at_ns`) and when somebody noticed (`detected_ns`)."""

    attempt: int
    at_ns: int
    detected_ns: int
    cause: str


@value
class NoticeFact:
    """Advance warning of a stop."""

    at_ns: int
    deadline_ns: int | None
    source: str


@value
class SeenFact:
    """A sign of life of the supervisor."""

    at_ns: int


@value
class RestoreFact:
    """Reading a checkpoint. `step` is the last it contains (0: from scratch); `source` wrote it."""

    attempt: int
    start_ns: int
    end_ns: int
    step: int
    source: int | None = None


@value
class SpanFact:
    """Time in which training did not advance: startup, compile, save, data or custom:NAME."""

    attempt: int
    kind: str
    start_ns: int
    end_ns: int | None


@value
class StepsFact:
    """A row of equal steps `first`..`last`; one step: first == last; `end_ns` None: under way."""

    attempt: int
    first: int
    last: int
    start_ns: int
    end_ns: int | None


@value
class CapacityFact:
    """From `at_ns` on, the run trains on `chips` of its chips.

    `of`: how many it has from then on; None: as many as before.
    """

    at_ns: int
    chips: int
    of: int | None = None


Fact = (
    RunFact
    | AttemptFact
    | WaitFact
    | FaultFact
    | NoticeFact
    | SeenFact
    | RestoreFact
    | SpanFact
    | StepsFact
    | CapacityFact
)
