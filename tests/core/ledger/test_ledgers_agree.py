"""The vectorised ledger says what the plain one says, on random histories, to the nanosecond.

A history is costly to draw: few of them by default, thousands with HYPOTHESIS_PROFILE=long.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

from all_facts import all_facts
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_ledger import account

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
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
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import STEP
from holdfast.core.ledger.summary import spent_of

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from few_rows import FEW_ROWS, plain_up_to

sys.path.pop(0)

fewer = settings(max_examples=max(30, settings.default.max_examples * 3 // 10))

CHIPS = 4
SPAN_KINDS = ("startup", "compile", "save", "data", "custom:a", "custom:b")
CAUSES = (None, "done", "failed", "preempted", "hang")


def upto(high: int, low: int = 0) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def one_in(n: int) -> st.SearchStrategy[bool]:
    return st.integers(1, n).map(lambda i: i == n)


def attempt_facts(draw: st.DrawFn, number: int, start: int, last: bool) -> tuple[list[Fact], int]:
    """One attempt with all that happens in it; returns when it ended, too."""
    facts: list[Fact] = []
    at = start + draw(upto(3))
    step = draw(upto(3))
    for what in draw(st.lists(st.sampled_from("ssssrRi"), max_size=7)):
        step = draw(upto(6)) if draw(one_in(12)) else step  # the number jumps, or falls back
        duration = draw(upto(6))
        if what == "R":
            source = draw(st.none() | upto(number))
            step = draw(upto(8))
            facts.append(RestoreFact(number, at, at + duration, step, source))
        elif what in "sr":
            count = 1 if what == "s" else draw(upto(5, 1))
            facts.append(StepsFact(number, step + 1, step + count, at, at + duration))
            step += count
        at += duration
    if draw(one_in(3)):
        number_under_way = draw(upto(6, 1)) if draw(one_in(4)) else step + 1
        facts.append(StepsFact(number, number_under_way, number_under_way, at, None))
    end = at + draw(upto(4))
    moments = upto(end + 1, max(0, start - 1))
    for _ in range(draw(upto(5))):
        begin = draw(moments)
        finish = None if draw(one_in(4)) else begin + draw(upto(6))
        facts.append(SpanFact(number, draw(st.sampled_from(SPAN_KINDS)), begin, finish))
    if draw(one_in(6)):
        begin = draw(moments)
        facts.append(RestoreFact(number, begin, begin + draw(upto(3)), draw(upto(8))))
    for _ in range(draw(upto(2))):
        begin = draw(moments)
        cause = draw(st.sampled_from(["failed", "hang"]))
        facts.append(FaultFact(number, begin, begin + draw(upto(4)), cause))
    is_open = last and draw(one_in(2))
    cause = draw(st.sampled_from(CAUSES))
    facts.append(AttemptFact(number, start, None if is_open else end, cause))
    return facts, end


@st.composite
def capacities(draw: st.DrawFn, moments: st.SearchStrategy[int]) -> list[CapacityFact]:
    """Changes of the chips that work, and in one of two of those that the run has."""
    changes = {t: t * 7 % (CHIPS + 1) for t in draw(st.lists(moments, max_size=3))}
    if not draw(st.booleans()):
        return [CapacityFact(t, chips) for t, chips in changes.items()]
    return [CapacityFact(t, chips, chips + 1 + t % 3) for t, chips in changes.items()]


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    """A history that makes sense, its lines in any order; moments are few and often coincide."""
    at, facts = draw(upto(4)), []
    count = draw(upto(5))
    for number in range(count):
        inside, at = attempt_facts(draw, number, at + draw(upto(4)), number == count - 1)
        facts += inside
    moments = upto(at + 4)
    for _ in range(draw(upto(3))):
        begin = draw(moments)
        kind = draw(st.sampled_from(["backoff", "hosts", "provision", "boot", "stopped"]))
        end = None if draw(one_in(3)) else begin + draw(upto(5))  # None: until the next attempt
        facts.append(WaitFact(kind, begin, end))
    facts += draw(capacities(moments))
    facts += [SeenFact(t) for t in draw(st.lists(moments, max_size=3))]
    facts += [NoticeFact(t, t + 9, "here") for t in draw(st.lists(moments, max_size=1))]
    requested = draw(upto(3))
    ended = max(requested, draw(moments)) if draw(one_in(3)) else None
    facts.append(RunFact("r", requested, ended, CHIPS))
    unit = draw(st.sampled_from([1, 7, 10**9, 10**10]))
    facts = [stretch(fact, unit) for fact in facts]
    Random(draw(upto(99))).shuffle(facts)  # much faster to draw than a permutation
    return facts


def stretch(fact: Fact, unit: int) -> Fact:
    """The fact with all its times multiplied."""
    times = {
        field.name: getattr(fact, field.name) * unit
        for field in dataclasses.fields(fact)
        if field.name.endswith("_ns") and getattr(fact, field.name) is not None
    }
    return dataclasses.replace(fact, **times)


def last_time(facts: Iterable[Fact]) -> int:
    fields = (getattr(f, field.name) for f in facts for field in dataclasses.fields(f)
              if field.name.endswith("_ns"))  # fmt: skip
    return max(time for time in fields if time is not None)


@st.composite
def questions(draw: st.DrawFn, facts: Sequence[Fact]) -> tuple[int | None, int | None]:
    """When it is asked, and over which window."""
    last = last_time(facts)
    now = draw(st.none() | st.integers(0, last + last // 4))
    return now, draw(st.none() | st.integers(1, last + 1))


@fewer
@given(st.data())
def test_a_cold_ledger_agrees(data: st.DataObject) -> None:
    facts = data.draw(histories())
    question = data.draw(questions(facts))
    ledger = Ledger()
    with plain_up_to(data.draw(FEW_ROWS)):
        ledger.add(facts)
        whole = ledger.account(*question)
        assert whole == account(facts, *question)
        without = ledger.account(*question, with_disruptions=False)
        assert without == dataclasses.replace(whole, disruptions=(), first_start_ns={})


@fewer
@given(st.data())
def test_a_ledger_fed_in_batches_agrees_at_every_stage(data: st.DataObject) -> None:
    facts = data.draw(histories())
    facts.sort(key=lambda fact: not isinstance(fact, RunFact))
    ledger, fed = Ledger(), 0
    few = data.draw(FEW_ROWS)
    while fed < len(facts):
        batch = facts[fed : fed + data.draw(st.integers(1, 9))]
        fed += len(batch)
        question = data.draw(questions(facts))
        with plain_up_to(few):
            ledger.add(batch)
            assert ledger.account(*question) == account(facts[:fed], *question)


@fewer
@given(st.data())
def test_columns_read_from_lines_agree(data: st.DataObject) -> None:
    facts = data.draw(histories())
    question = data.draw(questions(facts))
    history = parse_text("".join(to_lines(facts)))
    assert all_facts(history) == facts
    assert all_facts(parse_text("".join(to_lines(facts)))) == facts
    ledger = Ledger()
    with plain_up_to(data.draw(FEW_ROWS)):
        ledger.add_history(history)
        assert ledger.account(*question) == account(facts, *question)


@fewer
@given(st.data())
def test_what_is_open_may_be_said_anew(data: st.DataObject) -> None:
    facts = data.draw(histories())
    open_now = [f for f in facts if isinstance(f, SpanFact | StepsFact) and f.end_ns is None]
    rest = [fact for fact in facts if fact not in open_now]
    ledger = Ledger()
    ledger.add(rest)
    for number in range(5):
        ledger.set_open(number, [("custom:gone", 1), ("save", 2)], (7, 3))
    ledger.account(last_time(facts))
    for number in range(5):
        ledger.set_open(number)
    spans = [fact for fact in open_now if isinstance(fact, SpanFact)]
    steps = [fact for fact in open_now if isinstance(fact, StepsFact)]
    for number in range(5):
        own = [(span.kind, span.start_ns) for span in spans if span.attempt == number]
        step = next(((s.first, s.start_ns) for s in steps if s.attempt == number), None)
        ledger.set_open(number, own, step)
    question = data.draw(questions(facts))
    assert ledger.account(*question) == account([*rest, *spans, *steps], *question)


@fewer
@given(st.data())
def test_an_end_learned_later_replaces_the_open_one(data: st.DataObject) -> None:
    facts = data.draw(histories())
    ledger = Ledger()
    for fact in facts:
        if isinstance(fact, AttemptFact):
            ledger.add([AttemptFact(fact.attempt, fact.start_ns, None, None)])
        elif isinstance(fact, RunFact):
            ledger.add([dataclasses.replace(fact, ended_ns=None)])
    ledger.add(fact for fact in facts if not isinstance(fact, AttemptFact | RunFact))
    ledger.add(fact for fact in facts if isinstance(fact, AttemptFact | RunFact))
    question = data.draw(questions(facts))
    assert ledger.account(*question) == account(facts, *question)


@fewer
@given(st.data())
def test_the_course_adds_up_to_the_account(data: st.DataObject) -> None:
    """Whatever is put together, nothing is left out: pieces partition the time line by kind."""
    facts = [fact for fact in data.draw(histories()) if not isinstance(fact, CapacityFact)]
    now, _ = data.draw(questions(facts))
    ledger = Ledger()
    with plain_up_to(data.draw(FEW_ROWS)):
        ledger.add(facts)
        told = ledger.account(now)
        course = ledger.course(now, most=data.draw(st.sampled_from([4, 12, 10_000])))
        steps = ledger.step_times(now)
    assert (course.start_ns, course.end_ns) == (told.start_ns, told.end_ns)
    bounds = [course.start_ns, *(piece.end_ns for piece in course.pieces)]
    assert [piece.start_ns for piece in course.pieces] == bounds[:-1]
    assert bounds[-1] == course.end_ns
    totals: Counter[str] = Counter()
    for piece in course.pieces:
        assert sum(piece.kinds.values()) == piece.end_ns - piece.start_ns
        totals.update(piece.kinds)
    assert totals == Counter({kind: ns // CHIPS for kind, ns in told.kinds.items() if ns})
    assert steps.steps == sum(one.steps for one in steps.bins)
    assert (
        sum(one.steps for one in course.pieces) <= steps.steps == told.steps_kept + told.lost_steps
    )


@fewer
@given(st.data())
def test_the_shares_of_equal_parts_are_the_courses(data: st.DataObject) -> None:
    facts = data.draw(histories())
    now, _ = data.draw(questions(facts))
    parts = data.draw(st.integers(1, 7))
    ledger = Ledger()
    with plain_up_to(data.draw(FEW_ROWS)):
        ledger.add(facts)
        course, found = ledger.course(now), ledger.kept_shares(parts, now)
    length = course.end_ns - course.start_ns
    if length < parts:
        assert found == ()
        return
    edges = [course.start_ns + length * n // parts for n in range(parts + 1)]
    kept = [
        sum(
            max(0, min(b, piece.end_ns) - max(a, piece.start_ns))
            for piece in course.pieces
            if STEP in piece.kinds
        )
        for a, b in pairwise(edges)
    ]
    assert all(len(piece.kinds) == 1 for piece in course.pieces)
    widths = (b - a for a, b in pairwise(edges))
    assert found == tuple(round(100 * ns / width) for ns, width in zip(kept, widths, strict=True))


@fewer
@given(st.data())
def test_disruptions_add_up_to_no_more_than_what_was_not_kept(data: st.DataObject) -> None:
    """On chips that are as many all the time, from a request before all else to now."""
    facts = [
        dataclasses.replace(fact, requested_ns=0, ended_ns=None)
        if isinstance(fact, RunFact)
        else dataclasses.replace(fact, of=None)
        if isinstance(fact, CapacityFact)
        else fact
        for fact in data.draw(histories())
    ]
    ledger = Ledger()
    ledger.add(facts)
    told = ledger.account(data.draw(questions(facts))[0])
    spent = spent_of(told)
    assert sum(price for *_, price in spent.causes()) <= told.elapsed - told.productive
    rest = spent_of(told.without_stopped())
    assert rest.losses == tuple(one.without_stopped() for one in spent.losses)


@fewer
@given(st.data())
def test_a_row_is_its_steps(data: st.DataObject) -> None:
    facts = data.draw(histories().filter(no_restore_inside_a_row))
    question = data.draw(questions(facts))
    assert account(written_out(facts), *question) == account(facts, *question)


def written_out(facts: Sequence[Fact]) -> list[Fact]:
    """Each row of steps as single steps."""
    single: list[Fact] = []
    for fact in facts:
        if isinstance(fact, StepsFact) and fact.end_ns is not None:
            n, start, duration = (
                fact.last - fact.first + 1,
                fact.start_ns,
                fact.end_ns - fact.start_ns,
            )
            bounds = [start + duration * i // n for i in range(n + 1)]
            single += [
                StepsFact(fact.attempt, fact.first + i, fact.first + i, bounds[i], bounds[i + 1])
                for i in range(n)
            ]
        else:
            single.append(fact)
    return single


def no_restore_inside_a_row(facts: Sequence[Fact]) -> bool:
    restores = [fact for fact in facts if isinstance(fact, RestoreFact)]
    rows = [fact for fact in facts if isinstance(fact, StepsFact) and fact.end_ns is not None]
    return not any(r.start_ns <= x.start_ns <= (r.end_ns or 0) for r in rows for x in restores)
