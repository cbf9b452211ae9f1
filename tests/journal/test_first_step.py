"""What of an attempt's first step was starting, on time lines that can be checked by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger.facts import SpanFact
from holdfast.journal.facts.rank_steps import TimedSteps
from holdfast.journal.facts.steps import OPENING_STEPS, FirstStep, Opening
from holdfast.journal.layout import CONTROLLER_RANK, Flag, Kind, NoteType
from holdfast.journal.recorded import export_facts, load_run

S = 1_000_000_000


def rows(lengths: list[int], first: int = 1, at: int = 0) -> TimedSteps:
    """Steps one after the other, the first of them of that number and at that time."""
    edges = at + np.cumsum([0, *lengths])
    return TimedSteps(np.arange(first, first + len(lengths)), edges[:-1], edges[1:])


def test_the_first_step_keeps_what_a_step_takes():
    told = FirstStep().take([rows([900, 100, 120, 80], at=50)], 0, is_over=True)
    assert told == Opening((50, 870), 80)


def test_steps_that_something_slows_down_after_a_start_do_not_excuse_the_first():
    told = FirstStep().take([rows([300, 110, 250, 240, 100, 260])], 0, is_over=True)
    assert told == Opening((0, 190), 110)


def test_nothing_is_said_before_enough_steps_are_known_and_nothing_twice():
    first = FirstStep()
    assert first.take([rows([900] + [100] * (OPENING_STEPS - 1))], 0, is_over=False) is None
    more = rows([100], first=OPENING_STEPS + 1, at=900 + 100 * (OPENING_STEPS - 1))
    assert first.take([more], 0, is_over=False) == Opening((0, 800), 100)
    assert first.take([more], 0, is_over=True) is None


def test_a_first_step_like_the_others_or_shorter_has_no_startup():
    assert FirstStep().take([rows([100] * 5)], 0, is_over=True) == Opening(None, 100)
    assert FirstStep().take([rows([125] + [100] * 5)], 0, is_over=True) == Opening(None, 100)
    assert FirstStep().take([rows([10] + [100] * 5)], 0, is_over=True) == Opening(None, 100)


def test_an_attempt_that_ended_soon_is_measured_by_the_one_before():
    assert FirstStep().take([rows([900, 500])], 100, is_over=True) == Opening((0, 800), 100)
    assert FirstStep().take([rows([900, 500])], 0, is_over=True) == Opening(None, 0)
    assert FirstStep().take([], 100, is_over=True) is None


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.sets(st.integers(0, 30)))
def test_it_is_the_same_however_the_steps_come(lengths: list[int], cuts: set[int]):
    whole = rows(lengths)
    at_once = FirstStep().take([whole], 70, is_over=True)
    first, told = FirstStep(), None
    for begin, end in pairwise([0, *sorted(cuts), len(lengths)]):
        told = told or first.take([whole.cut(begin, end)], 70, is_over=False)
    told = told or first.take([], 70, is_over=True)
    assert told == at_once
    assert told is not None
    if told.startup is not None:
        start_ns, end_ns = told.startup
        assert (start_ns, lengths[0] - end_ns) == (0, told.typical_ns)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_account_of_a_run_keeps_one_step_of_it(make_writer, tmp_path, compiled):
    """10 s, 4 of them compiling, then steps of 1 s: one is kept, the rest of it was starting."""
    controller = make_writer("journal/controller-1.hfj", rank=CONTROLLER_RANK, clock=(0, 1000 * S))
    for fact in (
        {"fact": "run", "name": "demo", "requested_ns": S, "chips": 1},
        {"fact": "attempt_start", "attempt": 0, "at_ns": S},
        {"fact": "attempt_end", "attempt": 0, "at_ns": 16 * S, "cause": "done"},
        {"fact": "run_end", "at_ns": 16 * S},
    ):
        controller.note(NoteType.FACT, fact)
    writer = make_writer("attempts/0000/journal/rank-00000.hfj", clock=(0, 1000 * S))
    writer.append(S, Kind.STEP_BEGIN, 0, 0, 1, 0)
    edges = [S, *range(11 * S, 17 * S, S)]
    for step, (start, end) in enumerate(pairwise(edges), start=1):
        writer.append(end, Kind.STEP, Flag.CONTINUES, 0, step, start)
    if compiled:
        writer.record_span("compile", 3 * S, 7 * S)
    recorded = load_run(tmp_path)
    spans = [fact for fact in export_facts(recorded) if isinstance(fact, SpanFact)]
    assert SpanFact(0, "startup", 0, 9 * S) in spans
    kinds = {kind: ns // S for kind, ns in recorded.account().kinds.items()}
    starting = {"startup": 5, "compile": 4} if compiled else {"startup": 9}
    assert kinds == {"step": 6, **starting}
