"""Steps and spans as columns, raced against the obvious way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger.columns import FEW, Column, Few, as_ints
from holdfast.core.ledger.facts import AttemptFact, RunFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.spans import SpanColumns

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from few_rows import FEW_ROWS, plain_up_to

sys.path.pop(0)

Spans = list[tuple[int, int, int]]  # start, duration, kind
SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 3)), max_size=14)


def winners(spans: Spans) -> list[int | None]:
    """Who shows in each unit of time, by looking at every span."""
    shown: list[int | None] = []
    for at in range(45):
        there = [
            (start, -duration, order, kind)
            for order, (start, duration, kind) in enumerate(spans)
            if start <= at < start + duration
        ]
        shown.append(max(there)[3] if there else None)
    return shown


def filed(batches: list[Spans], few: int = FEW) -> SpanColumns:
    with plain_up_to(few):
        return _filed(batches)


def _filed(batches: list[Spans]) -> SpanColumns:
    columns, order = SpanColumns(), 0
    for batch in batches:
        if batch:
            start, duration, kind = np.array(batch, dtype=np.int64).T
            numbers = np.arange(order, order + len(batch))
            columns.add(start, start + duration, kind, numbers)
        order += len(batch)
        columns.settle()
    return columns


@given(st.lists(SPANS, min_size=1, max_size=4), st.integers(0, 40), st.integers(0, 40), FEW_ROWS)
def test_spans_show_as_if_every_moment_were_asked(
    batches: list[Spans], a: int, b: int, few: int
) -> None:
    columns = filed(batches, few)
    shown = winners([span for batch in batches for span in batch])
    assert columns.covered_until(a) == sum(kind is not None for kind in shown[:a])
    moments = np.arange(45)
    assert columns.covered_until_each(moments).tolist() == [
        columns.covered_until(int(at)) for at in moments
    ]
    between = {kind: ns for kind, ns in columns.kinds_between(a, b).items() if ns}
    inside = [kind for kind in shown[a:b] if kind is not None]
    assert between == {kind: inside.count(kind) for kind in inside}


@given(SPANS, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1), FEW_ROWS)
def test_only_stretches_with_a_span_in_them_are_touched(
    spans: Spans, rows: list[tuple[int, int]], few: int
) -> None:
    columns = filed([spans], few)
    if not len(columns.shown_end):
        return
    starts, ends, at = [], [], 0
    for gap, length in rows:
        starts.append(at := at + gap)
        ends.append(at := at + length)
    found = columns.touched(np.array(starts), np.array(ends))
    which = range(len(rows))[found] if isinstance(found, slice) else found.tolist()
    until = columns.covered_until
    right = [
        row for row, (a, b) in enumerate(zip(starts, ends, strict=True)) if until(a) < until(b)
    ]
    assert len(set(which)) == len(which)
    if isinstance(found, slice):
        assert set(right) <= set(which)
    else:  # one that has no length may lie within a span, and counts for nothing
        assert right == [row for row in which if starts[row] < ends[row]]


def test_nested_spans_by_the_thousand() -> None:
    """Half of them inside another one: the stack and the plain stretches meet."""
    spans = [(i * 10, 6, 0) for i in range(1000)] + [(i * 10 + 2, 3, 1) for i in range(0, 1000, 2)]
    columns = filed([spans])
    assert columns.kinds_between(0, 10_000) == {0: 6000 - 1500, 1: 1500}
    assert columns.kinds_between(3, 13) == {0: 1 + 3, 1: 2}


@pytest.mark.parametrize("put", [0, 7])
def test_a_column_grows_and_is_cut(put: int) -> None:
    column = Few(range(put)).grown()
    for i in range(put, 300):
        column.extend(np.array([i]))
    assert len(column) == 300
    assert column.view.tolist() == list(range(300))
    column.truncate(5)
    column.extend(np.array([9, 9]))
    assert column.view.tolist() == [0, 1, 2, 3, 4, 9, 9]
    assert (column.left(9), column.right(9)) == (5, 7)
    with pytest.raises(IndexError):
        column[7]


def test_only_whole_numbers_become_columns() -> None:
    assert as_ints([1, 2]).dtype == np.int64
    assert as_ints([]).dtype == np.int64
    with pytest.raises(TypeError, match="whole numbers"):
        as_ints([1.5])


def test_columns_must_be_of_one_length() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Ledger().add_steps(0, [1], [1], [0], [])


def test_asking_again_does_not_sum_up_again() -> None:
    """Ten new steps touch ten rows, and late ones only what follows them."""
    ledger = Ledger()
    ledger.add([RunFact("r", 0, None, 1), AttemptFact(0, 0, None, None)])
    number = np.arange(1, 100_001)
    ledger.add_steps(0, number, number, number * 10, number * 10 + 9)
    assert ledger.account().steps_kept == 100_000
    steps = ledger._attempts[0].steps
    touched: list[int] = []
    steps.own = Spy(steps.own, touched)
    for later in (100_001, 100_011):
        new = np.arange(later, later + 10)
        ledger.add_steps(0, new, new, new * 10, new * 10 + 9)
        ledger.account()
    assert touched == [10, 10]
    ledger.add_steps(0, [7], [7], [99_000 * 10 + 9], [99_000 * 10 + 9])  # late, no duration
    ledger.account()
    assert touched[2] == 100_020 - 99_000 + 1


class Spy(Column):
    """A column that notes how many values were summed up anew."""

    def __init__(self, column: Column, touched: list[int]) -> None:
        super().__init__()
        self._touched: list[int] = []
        self.extend(column.view)
        self._touched = touched

    def grow(self, count: int) -> np.ndarray:
        self._touched.append(count)
        return super().grow(count)
