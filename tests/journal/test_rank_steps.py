from __future__ import annotations

import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger.facts import RestoreFact
from holdfast.journal.facts.rank_steps import RankTrack, UnderWay
from holdfast.journal.facts.steps import AttemptSteps
from holdfast.journal.layout import Kind

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from rank_records import array, begin, record, restore, step

sys.path.pop(0)


def run(*ranks, pieces=1) -> tuple[AttemptSteps, list[tuple[int, int, int]], list[RestoreFact]]:
    """Feed ranks' records, each in so many pieces; gives the run's steps."""
    attempt = AttemptSteps()
    steps, restores = [], []
    for _ in ranks:
        attempt.add(RankTrack(0))
    for piece in range(pieces):
        for track, records in zip(attempt.tracks, ranks, strict=True):
            cut = [len(records) * n // pieces for n in (piece, piece + 1)]
            track.consume(array(records[cut[0] : cut[1]]), 0)
        new_restores, rows = attempt.take()
        restores += new_restores
        for row in rows:
            steps += zip(row.step.tolist(), row.start.tolist(), row.end.tolist(), strict=True)
    return attempt, steps, restores


def test_a_step_ends_with_the_slowest_and_starts_after_the_last():
    fast = [begin(1, 10), step(1, 10, 20), step(2, 20, 30), step(3, 30, 40)]
    slow = [begin(1, 12), step(1, 12, 25), step(2, 25, 33)]
    attempt, steps, _ = run(fast, slow)
    assert steps == [(1, 10, 25), (2, 25, 33)]
    assert attempt.under_way() == UnderWay(3, 33)


def test_no_step_is_complete_while_a_rank_has_none():
    attempt, steps, _ = run([begin(1, 5), step(1, 5, 10)], [begin(1, 7)])
    assert steps == []
    assert attempt.under_way() == UnderWay(1, 5)


def test_a_loop_that_ended_has_no_step_under_way():
    attempt, steps, _ = run([step(1, 5, 10), record(10, Kind.LOOP_END, 1)])
    assert steps == [(1, 5, 10)]
    assert attempt.under_way() is None


def test_unrecorded_steps_are_equal_ones_between_those_that_were():
    _, steps, _ = run([step(1, 0, 10), step(2, 10, 20), step(6, 50, 60)])
    assert steps == [(1, 10, 10), (2, 10, 20), (3, 20, 30), (4, 30, 40), (5, 40, 50), (6, 50, 60)]


def test_a_rollback_begins_a_new_part_on_all_ranks():
    def rank(late):
        return [
            restore(0, 1, 2),
            begin(1, 10 + late),
            step(1, 10 + late, 20 + late),
            step(2, 20 + late, 30 + late),
            restore(1, 40, 50 + late, source=0),
            begin(2, 60 + late),
            step(2, 60 + late, 70 + late),
        ]

    _, steps, restores = run(rank(0), rank(3))
    assert steps == [(1, 10, 23), (2, 23, 33), (2, 60, 73)]
    assert restores == [RestoreFact(0, 1, 2, 0, None), RestoreFact(0, 40, 53, 1, 0)]


def test_steps_that_one_rank_did_not_complete_before_a_rollback_are_none_of_the_run():
    ahead = [step(1, 5, 10), step(2, 10, 20), step(3, 20, 30), restore(1, 31, 32), step(2, 40, 50)]
    behind = [step(1, 5, 11), restore(1, 31, 33), step(2, 40, 51)]
    _, steps, _ = run(ahead, behind)
    assert steps == [(1, 5, 11), (2, 40, 51)]


def test_a_restore_that_was_repeated_before_any_step_is_one():
    twice = [restore(9, 1, 2, 3), restore(5, 3, 4, 2), step(6, 5, 7)]
    once = [restore(5, 1, 4, 2), step(6, 5, 8)]
    _, steps, restores = run(twice, once)
    assert steps == [(6, 5, 8)]
    assert restores == [RestoreFact(0, 1, 4, 5, 2)]


def test_with_a_watcher_only_what_the_device_completed_counts():
    records = [
        step(1, 1, 10),
        step(2, 10, 11),
        record(15, Kind.COMPLETE, 1),
        step(3, 11, 12),
        record(25, Kind.COMPLETE, 2),
    ]
    attempt, steps, _ = run(records)
    assert steps == [(1, 1, 15), (2, 15, 25)]
    assert attempt.under_way() == UnderWay(3, 25)  # the device was busy with 2 until then


@dataclass
class Rank:
    """What one simulated rank wrote, and what a reader should make of it: parts of steps."""

    records: list = field(default_factory=list)
    parts: list = field(default_factory=lambda: [{}])


@st.composite
def ranks(draw) -> list[Rank]:
    """A few ranks that ran the same parts (some rolled back), each at its own pace, cut off."""
    count = draw(st.integers(1, 3))
    parts = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=3))
    out = []
    for _ in range(count):
        rank, now = Rank(), draw(st.integers(1, 20))
        for k, (resume, steps) in enumerate(parts):
            if k:
                rank.records.append(restore(resume, now, now + 2))
                now += 2
                rank.parts.append({})
            if steps:
                now += draw(st.integers(0, 5))
                rank.records.append(begin(resume + 1, now))
            for number in range(resume + 1, resume + 1 + steps):
                start, now = now, now + draw(st.integers(0, 9))
                rank.records.append(step(number, start, now))
                if draw(st.booleans()):
                    rank.records.append(record(now, Kind.SPAN, number, start, arg=3))
        out.append(rank)
    return out


def oracle(tracks) -> list[tuple[int, int, int]]:
    """Dumb: walk each rank's records into parts (dicts), then step by step over all ranks."""
    all_parts = []
    for records in tracks:
        parts = [{}]
        for time, word, number, value in records:
            kind = word & 0xFF
            if kind == Kind.RESTORE and parts[-1]:
                parts.append({})
            if kind == Kind.STEP:
                parts[-1][number] = (min(value, time) or time, time)
        all_parts.append(parts)
    steps, last_end = [], 0
    for k in range(min(len(parts) for parts in all_parts)):
        for number in sorted(all_parts[0][k]):
            if all(number in parts[k] for parts in all_parts):
                end = max(last_end, *(parts[k][number][1] for parts in all_parts))
                start = max(last_end, min(parts[k][number][0] for parts in all_parts))
                steps.append((number, min(start, end), end))
                last_end = end
        if not all(len(parts) > k + 1 for parts in all_parts):
            break
    return steps


@given(ranks(), st.integers(1, 7), st.data())
def test_any_ranks_in_any_pieces_agree_with_the_dumb_oracle(some, pieces, data):
    tracks = []
    for rank in some:
        cut = data.draw(st.integers(0, len(rank.records)))
        tracks.append(rank.records[:cut])
    _, whole, _ = run(*tracks)
    _, steps, _ = run(*tracks, pieces=pieces)
    assert steps == whole == oracle(tracks)


def test_the_run_is_never_two_steps_at_once():
    rng = np.random.default_rng(1)
    tracks = []
    for _ in range(4):
        ends = np.cumsum(rng.integers(1, 1000, 2000))
        starts = np.concatenate([[1], ends[:-1]])
        tracks.append([step(n + 1, starts[n], ends[n]) for n in range(2000)])
    _, steps, _ = run(*tracks, pieces=13)
    assert [number for number, _, _ in steps] == list(range(1, 2001))
    assert all(start <= end for _, start, end in steps)
    assert all(a[2] <= b[1] for a, b in pairwise(steps))


def test_a_damaged_jump_does_not_fill_the_memory():
    _, steps, _ = run([step(1, 5, 10), step(1 << 60, 20, 30)])
    assert steps == [(1, 5, 10), (1 << 60, 20, 30)]
