"""Saves of ranks that are ahead of the run, against an oracle that looks at each by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal.facts.rank_steps import ClosedSpans, RankTrack
from holdfast.journal.facts.steps import AttemptSteps, SaveSpans

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from rank_records import array, begin, step

sys.path.pop(0)

Span = tuple[str, int, int]


def rows_of(spans: list[Span]) -> ClosedSpans:
    kinds = ["data", "save"]
    columns = zip(*((kinds.index(kind), start, end) for kind, start, end in spans), strict=True)
    return ClosedSpans(kinds, *(np.array(column, np.int64) for column in columns))


def spans_of(rows: ClosedSpans) -> list[Span]:
    kinds = [rows.kinds[place] for place in rows.kind.tolist()]
    return list(zip(kinds, rows.start.tolist(), rows.end.tolist(), strict=True))


class Rank:
    """Steps of so many nanoseconds, each with a save of so many after it; 0: none."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        self.life: list[tuple[Any, ...]] = [begin(1, 0)]  # records, and spans
        self.ends: list[int] = []
        self.spans: list[Span] = []
        at = 0
        for number, (length, save) in enumerate(steps, 1):
            self.life.append(step(number, at, at + length))
            at += length
            self.ends.append(at)
            if save:
                self.spans.append(("save", at, at + save))
                self.life.append(self.spans[-1])
                at += save


def counted(ranks: list[Rank], cuts: int, *, is_over: bool = True) -> list[Span]:
    """What counts, fed in so many pieces."""
    steps, spans, found = AttemptSteps(), SaveSpans(), []
    for _ in ranks:
        steps.add(RankTrack(0))
    for piece in range(cuts):
        for number, (track, rank) in enumerate(zip(steps.tracks, ranks, strict=True)):
            life = rank.life  # a span is told after the step that it follows
            part = life[len(life) * piece // cuts : len(life) * (piece + 1) // cuts]
            track.consume(array([one for one in part if len(one) == 4]), 0)
            if told := [one for one in part if len(one) == 3]:
                spans.add(number, rows_of(told))
        steps.take()
        for rows in spans.take(steps, is_over=is_over and piece == cuts - 1):
            found += spans_of(rows)
    return sorted(found)


def test_a_rank_that_is_ahead_saves_at_nobodys_cost():
    """20 to 23 while the other is in its step until 30; one that lasts until 32 costs two."""
    fast, slow = Rank([(20, 3), (30, 0)]), Rank([(30, 0), (30, 0)])
    assert counted([fast, slow], 1) == []
    fast = Rank([(20, 12), (30, 0)])
    assert counted([fast, slow], 1) == [("save", 30, 32)]


def test_the_slowest_ranks_save_counts_whole():
    fast, slow = Rank([(20, 0), (30, 0)]), Rank([(30, 5), (30, 0)])
    assert counted([fast, slow], 1) == [("save", 30, 35)]


def test_other_spans_and_a_single_rank_are_as_they_were():
    fast, slow = Rank([(20, 0), (30, 0)]), Rank([(30, 0), (30, 0)])
    fast.life.append(("data", 20, 28))
    assert counted([fast, slow], 1) == [("data", 20, 28)]
    assert counted([Rank([(20, 3), (30, 4)])], 1) == [("save", 20, 23), ("save", 53, 57)]


def test_a_save_after_the_runs_last_step_waits_to_be_judged():
    fast, slow = Rank([(20, 3)]), Rank([])
    assert counted([fast, slow], 1, is_over=False) == []
    assert counted([fast, slow], 1) == [("save", 20, 23)]  # the other never ended the step


steps = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0, 0, 3, 40])), max_size=12)


@given(st.lists(steps, min_size=2, max_size=3), st.integers(1, 5))
def test_it_is_what_the_oracle_says_however_the_records_come(
    lives: list[list[tuple[int, int]]], cuts: int
):
    ranks = [Rank(life) for life in lives]
    wanted = []
    done = list(zip(*(rank.ends for rank in ranks), strict=False))  # as far as all have come
    for rank in ranks:
        for kind, start, end in rank.spans:
            begins = start
            for number, ends in enumerate(done):
                if rank.ends[number] <= start < max(ends):
                    begins = max(ends)
            if begins < end:
                wanted.append((kind, begins, end))
    assert counted(ranks, cuts) == counted(ranks, 1) == sorted(wanted)
