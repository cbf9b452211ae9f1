"""The plain ledger, part one: what is known at `now`, sorted by attempt, and when the time ends.

`now` truncates: what starts later is ignored, what ends later is open. Rows of equal steps are
written out here, step by step, so that the rest can think of one step at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.kinds import RESTORE
from holdfast.core.ledger.steps import boundary_ns

NOBODY_LEFT_AFTER_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Execution:
    """One step, run once; `index` tells it from every other. `end_ns` None: under way.

    `row_ns` is when the row of equal steps began that it was written in.
    """

    index: int
    step: int
    start_ns: int
    end_ns: int | None
    row_ns: int


@dataclass(frozen=True, slots=True)
class Span:
    """A span, a restore or a wait. `end_ns` None: not closed (yet). `line`: the later one wins."""

    kind: str
    start_ns: int
    end_ns: int | None
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; `detected_ns` None: nobody had noticed by now."""

    at_ns: int
    detected_ns: int | None
    cause: str


@dataclass(slots=True)
class Life:
    """One attempt and everything that happened in it. `end_ns` None: open."""

    attempt: int
    start_ns: int
    end_ns: int | None
    cause: str | None
    completed: list[Execution] = field(default_factory=list)  # by time
    under_way: Execution | None = None
    spans: list[Span] = field(default_factory=list)
    restores: list[RestoreFact] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


@dataclass(slots=True)
class Story:
    """A run as known at some moment. `lives` by time; `end_ns` is the end of the time line."""

    name: str
    chips: int
    requested_ns: int
    end_ns: int
    lives: list[Life]
    waits: list[Span]
    capacity: list[tuple[int, int, int | None]]  # (from when on, chips, of so many), by time


def read_story(facts: Iterable[Fact], now_ns: int | None) -> Story:
    """Sort the facts and truncate them at `now_ns`; raises ValueError without a RunFact.

    Of several facts about the run, one attempt, or one wait, the last one counts.
    """
    facts = list(facts)
    known = [fact for fact in facts if now_ns is None or _begins(fact) <= now_ns]
    runs = [fact for fact in facts if isinstance(fact, RunFact)]
    if not runs:
        raise ValueError("a history needs one run fact: name, request time and chips")
    run, run_ended_ns = runs[-1], _known(runs[-1].ended_ns, now_ns)

    lives: dict[int, Life] = {}
    for fact in known:
        if isinstance(fact, AttemptFact):
            end_ns = _known(fact.end_ns, now_ns)
            cause = fact.cause if end_ns == fact.end_ns else None  # the end is in the future
            lives[fact.attempt] = Life(fact.attempt, fact.start_ns, end_ns, cause)
    waits: dict[tuple[str, int], Span] = {}
    last_waits = {(f.kind, f.start_ns): f for f in known if isinstance(f, WaitFact)}
    times, index = [run.requested_ns], 0
    for line, fact in enumerate(known):
        if isinstance(fact, WaitFact) and last_waits[fact.kind, fact.start_ns] is not fact:
            continue  # a later line says it anew
        times += [t for t in _times(fact) if now_ns is None or t <= now_ns]
        if isinstance(fact, WaitFact):
            end_ns = _known(fact.end_ns, now_ns)
            if fact.end_ns is None:  # until the next attempt begins
                starts = [life.start_ns for life in lives.values()]
                end_ns = min((at for at in starts if at >= fact.start_ns), default=None)
            waits[fact.kind, fact.start_ns] = Span(fact.kind, fact.start_ns, end_ns, line)
        elif isinstance(fact, FaultFact | RestoreFact | SpanFact) and fact.attempt in lives:
            _add(lives[fact.attempt], fact, line, now_ns)
    for row in sorted((f for f in known if isinstance(f, StepsFact)), key=_row_by_time):
        if row.attempt in lives:
            index = _add_steps(lives[row.attempt], row, index, now_ns)
    for life in lives.values():
        life.restores.sort(key=lambda r: r.start_ns)
        life.faults.sort(key=lambda f: f.at_ns)

    capacity = [(f.at_ns, f.chips, f.of) for f in known if isinstance(f, CapacityFact)]
    seen = [f.at_ns for f in known if isinstance(f, SeenFact)]
    return Story(
        name=run.name,
        chips=run.chips,
        requested_ns=run.requested_ns,
        end_ns=_end_of_time_line(run.requested_ns, run_ended_ns, now_ns, max(times), seen),
        lives=sorted(lives.values(), key=_by_time),
        waits=list(waits.values()),
        capacity=sorted(capacity, key=lambda change: change[0]),
    )


def _by_time(life: Life) -> tuple[int, bool, int, int]:
    return life.start_ns, life.end_ns is None, life.end_ns or 0, life.attempt


def _end_of_time_line(
    requested_ns: int, ended_ns: int | None, now_ns: int | None, last_ns: int, seen: list[int]
) -> int:
    """Where the time line ends; `last_ns` is the last time in the file, up to now."""
    if ended_ns is not None:
        end_ns = ended_ns
    elif now_ns is None or (seen and now_ns - max(seen) > NOBODY_LEFT_AFTER_NS):
        end_ns = last_ns  # nobody was left to record the end: the last sign of life, or event
    else:
        end_ns = now_ns
    return max(requested_ns, end_ns)


def _known(end_ns: int | None, now_ns: int | None) -> int | None:
    """An end, if it has come by now."""
    return None if end_ns is None or (now_ns is not None and end_ns > now_ns) else end_ns


def _begins(fact: Fact) -> int:
    if isinstance(fact, RunFact):
        return fact.requested_ns
    if isinstance(fact, FaultFact | NoticeFact | SeenFact | CapacityFact):
        return fact.at_ns
    return fact.start_ns


def _times(fact: Fact) -> list[int]:
    """When something in this fact happened; a deadline is only a promise."""
    if isinstance(fact, RunFact):
        ends = [fact.ended_ns]
    elif isinstance(fact, FaultFact):
        ends = [fact.detected_ns]
    elif isinstance(fact, NoticeFact | SeenFact | CapacityFact):
        ends = []
    elif isinstance(fact, StepsFact) and fact.end_ns is not None:
        # Where the steps of a row end, so that `now` in the middle of it finds its last event.
        ends = [e.end_ns for e in _written_out(fact, 0)]
    else:
        ends = [fact.end_ns]
    return [_begins(fact), *(end for end in ends if end is not None)]


def _written_out(row: StepsFact, index: int) -> list[Execution]:
    """A row of equal steps as single ones."""
    if row.end_ns is None:
        return [Execution(index, row.first, row.start_ns, None, row.start_ns)]
    count = row.last - row.first + 1
    ends = [boundary_ns(row.start_ns, row.end_ns, count, i) for i in range(count + 1)]
    return [
        Execution(index + i, row.first + i, ends[i], ends[i + 1], row.start_ns)
        for i in range(count)
    ]


def _row_by_time(row: StepsFact) -> tuple[int, bool, int, int]:
    """Steps without duration, at the same moment, go by their number."""
    return row.start_ns, row.end_ns is None, row.end_ns or 0, row.first


def _add(
    life: Life, fact: FaultFact | RestoreFact | SpanFact, line: int, now_ns: int | None
) -> None:
    """Put one fact into its attempt's life."""
    if isinstance(fact, FaultFact):
        life.faults.append(Fault(fact.at_ns, _known(fact.detected_ns, now_ns), fact.cause))
        return
    kind = RESTORE
    if isinstance(fact, RestoreFact):
        life.restores.append(fact)
    else:
        kind = fact.kind
    life.spans.append(Span(kind, fact.start_ns, _known(fact.end_ns, now_ns), line))


def _add_steps(life: Life, row: StepsFact, index: int, now_ns: int | None) -> int:
    """Put a row's steps into its attempt's life; returns the next free index of an execution."""
    steps = _written_out(row, index)
    for e in steps:
        if now_ns is not None and e.start_ns > now_ns:
            break
        if _known(e.end_ns, now_ns) is not None:
            life.completed.append(e)
        elif life.under_way is None or life.under_way.start_ns <= e.start_ns:
            life.under_way = Execution(e.index, e.step, e.start_ns, None, e.start_ns)
    return index + len(steps)
