"""Thinning: so many pieces at most, the telling ones whole, and nothing left out."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.ledger.course import Course, coarser
from holdfast.core.ledger.facts import AttemptFact, RunFact, SpanFact
from holdfast.core.ledger.incremental import Ledger

S = 1_000_000_000
STEPS, ATTEMPTS = 4_000, 25
SLOW = 2_345  # a step that took a hundred times as long


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """Attempts of 4,000 steps each, a save after each tenth, a pause between attempts."""
    ledger, at = Ledger(), 0
    ledger.add([RunFact("r", 0, None, 1)])
    for attempt in range(ATTEMPTS):
        took = np.full(STEPS, S, dtype=np.int64)
        if attempt == 7:
            took[SLOW] = 100 * S
        number = np.arange(STEPS)
        gap = (number % 10 == 0) * (S // 5)
        end = at + 30 * S + np.cumsum(took + gap)
        start = end - took
        first = number + attempt * STEPS + 1
        ledger.add_steps(attempt, first, first, start, end)
        saves = np.flatnonzero(gap)
        ledger.add_spans(
            attempt, ["save"], np.zeros(len(saves), np.int64), start[saves] - S // 5, start[saves]
        )
        ledger.add([SpanFact(attempt, "startup", at, at + 30 * S)])
        ledger.add([AttemptFact(attempt, at, int(end[-1]) + S, "killed")])
        at = int(end[-1]) + 61 * S
    return ledger


def totals(course: Course) -> dict[str, int]:
    found: dict[str, int] = {}
    for piece in course.pieces:
        for kind, ns in piece.kinds.items():
            found[kind] = found.get(kind, 0) + ns
    return found


@pytest.mark.parametrize("most", [400, 2_000, 16_384])
def test_so_many_pieces_and_nothing_left_out(ledger: Ledger, most: int) -> None:
    course, account = ledger.course(most=most), ledger.account()
    assert len(course.pieces) <= most + 2 * ATTEMPTS
    assert totals(course) == {kind: ns for kind, ns in account.kinds.items() if ns}
    assert sum(piece.steps for piece in course.pieces) == STEPS * ATTEMPTS


def test_so_many_pieces_of_more_attempts_than_that() -> None:
    """A crash loop of days: each attempt and each pause would be a piece."""
    ledger = Ledger()
    ledger.add([RunFact("r", 0, None, 1)])
    ledger.add(AttemptFact(i, 3 * i * S, (3 * i + 2) * S, "failed") for i in range(3_000))
    course = ledger.course(most=2_000)
    assert len(course.pieces) <= 2_000
    assert totals(course) == {kind: ns for kind, ns in ledger.account().kinds.items() if ns}
    mixed = [piece for piece in course.pieces if len(piece.kinds) > 1]
    assert mixed
    assert {piece.attempt for piece in mixed} == {None}


def test_few_stretches_stay_as_they_were(ledger: Ledger) -> None:
    course = ledger.course(now_ns=120 * S)
    assert all(len(piece.kinds) == 1 and piece.steps <= 1 for piece in course.pieces)


def test_what_tells_most_stands_alone(ledger: Ledger) -> None:
    course = ledger.course(most=2_000)
    alone = [piece for piece in course.pieces if piece.steps == 1 and len(piece.kinds) == 1]
    assert max(alone, key=lambda piece: piece.longest_ns).last_step == 7 * STEPS + SLOW + 1
    pauses = [piece for piece in course.pieces if set(piece.kinds) == {"reschedule"}]
    assert [piece.end_ns - piece.start_ns for piece in pauses] == [60 * S] * (ATTEMPTS - 1)
    assert sum(set(piece.kinds) == {"startup"} for piece in course.pieces) == ATTEMPTS


def test_pieces_can_be_put_together_further(ledger: Ledger) -> None:
    course = ledger.course(most=2_000)
    pieces = coarser(course.pieces, 100)
    assert len(pieces) <= 300
    assert [piece.start_ns for piece in pieces[1:]] == [piece.end_ns for piece in pieces[:-1]]
    assert sum(sum(piece.kinds.values()) for piece in pieces) == course.end_ns - course.start_ns
    assert sum(piece.steps for piece in pieces) == STEPS * ATTEMPTS


def test_launches_are_told(ledger: Ledger) -> None:
    launches = ledger.course(most=400).launches
    assert [one.attempt for one in launches] == list(range(ATTEMPTS))
    assert (launches[1].first_step, launches[1].last_step) == (STEPS + 1, 2 * STEPS)
    assert launches[0].cause == "killed"


def test_step_times_tell_the_usual_and_the_slow(ledger: Ledger) -> None:
    told = ledger.step_times()
    assert (told.steps, told.usual_ns, told.recent_ns, told.slow) == (STEPS * ATTEMPTS, S, S, 1)
    (slow,) = told.outliers
    assert (slow.attempt, slow.step, slow.took_ns) == (7, 7 * STEPS + SLOW + 1, 100 * S)
    assert len(told.bins) <= 160
    assert sum(one.steps for one in told.bins) == STEPS * ATTEMPTS
    assert max(one.longest_ns for one in told.bins) == 100 * S


def test_a_run_without_steps_has_none() -> None:
    ledger = Ledger()
    ledger.add([RunFact("r", 0, None, 1), AttemptFact(0, 5, 9, "failed")])
    told = ledger.step_times()
    assert (told.steps, told.bins, told.last_end_ns) == (0, (), None)
    assert totals(ledger.course()) == {k: ns for k, ns in ledger.account().kinds.items() if ns}
