"""Attempts: exclusive, in sequence, honest about damage; and the lineage they form."""

from __future__ import annotations

import multiprocessing as mp
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import AttemptExists
from holdfast.journal.attempts import (
    AttemptEnd,
    AttemptRecord,
    Segment,
    attempts,
    create_attempt,
    end_attempt,
    lineage,
    next_number,
)
from holdfast.journal.store import RunFolder, RunStore

SCRATCH = {"parent": None, "resume_step": 0, "restore_set": None}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore(tmp_path).create("r")


def record(attempt: int, parent: int | None = None, resume_step: int = 0) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt,
        parent=parent,
        resume_step=resume_step,
        restore_set=None if parent is None else f"{parent:04d}-{resume_step:012d}",
        epoch=1,
        ranks=1,
        chips=1,
        incarnation="",
        created_unix_ns=0,
    )


def test_attempts_and_their_ends_round_trip(folder: RunFolder) -> None:
    assert attempts(folder).newest is None
    first = create_attempt(folder, 0, **SCRATCH, epoch=3, ranks=2, chips=8, command=["a", "b"])
    second = create_attempt(
        folder, 1, parent=0, resume_step=40, restore_set="0000-000000000040", epoch=3
    )
    end = AttemptEnd("failed", "rank 1 was killed by SIGKILL", (0, -9, None), 12, 15 * 10**9, 5)
    assert end_attempt(folder, 0, end) == end
    records, damage, newest_number, _ = attempts(folder)
    assert damage == ()
    assert [r.attempt for r in records] == [0, 1]
    assert records[0].end == end
    assert records[0].command == ("a", "b")
    assert records[1] == second
    assert first.chips == 8
    assert next_number(folder) == newest_number + 1 == 2
    assert folder.logs_dir(1).is_dir()


def test_the_first_end_stands(folder: RunFolder) -> None:
    create_attempt(folder, 0, **SCRATCH)
    lost = AttemptEnd("host_lost", "its supervisor is gone", (), 1)
    late = AttemptEnd("done", "", (0,), 2)
    end_attempt(folder, 0, lost)
    assert end_attempt(folder, 0, late) == lost
    assert attempts(folder).newest.end == lost


def test_a_fenced_off_creator_is_told(folder: RunFolder) -> None:
    create_attempt(folder, 0, **SCRATCH, epoch=1)
    with pytest.raises(
        AttemptExists, match="attempt 0 of run 'r' was created by another supervisor"
    ):
        create_attempt(folder, 0, **SCRATCH, epoch=1)
    create_attempt(folder, 1, **SCRATCH, epoch=2)
    with pytest.raises(AttemptExists, match=r"launched under lease 2.* holds lease 1"):
        create_attempt(folder, 2, **SCRATCH, epoch=1)
    with pytest.raises(ValueError, match="before attempt 2"):
        create_attempt(folder, 4, **SCRATCH, epoch=2)
    with pytest.raises(ValueError, match="cannot start from"):
        create_attempt(folder, 2, parent=2, resume_step=1, restore_set="0002-1", epoch=2)


@pytest.mark.real
def test_of_many_creators_one_wins(folder: RunFolder) -> None:
    context = mp.get_context("fork")
    for number in range(10):
        gate, results = context.Barrier(4, timeout=60), context.Queue()

        def create(number=number, gate=gate, results=results) -> None:
            gate.wait()
            try:
                create_attempt(folder, number, **SCRATCH, incarnation=str(os.getpid()))
                results.put(os.getpid())
            except AttemptExists:
                results.put(None)

        players = [context.Process(target=create) for _ in range(4)]
        for player in players:
            player.start()
        told = [results.get(timeout=60) for _ in players]
        winners = [pid for pid in told if pid is not None]
        for player in players:
            player.join()
        assert [attempts(folder).newest.incarnation] == [str(pid) for pid in winners]


def test_damage_is_reported_and_the_rest_is_read(folder: RunFolder) -> None:
    for number in range(4):
        create_attempt(folder, number, **SCRATCH)
    end_attempt(folder, 2, AttemptEnd("failed", "", (1,), 1))
    (folder.attempt_dir(1) / "attempt.json").write_text('{"attempt": 1')
    (folder.attempt_dir(2) / "end.json").write_text('{"cause": 3}')
    (folder.attempt_dir(3) / "attempt.json").write_text('{"attempt": 3, "parent": "x"}')
    folder.attempt_dir(4).mkdir()  # its creator died before the record
    (folder.attempts_dir / "notes").mkdir()
    records, damage, newest_number, _ = attempts(folder)
    assert [r.attempt for r in records] == [0, 2]
    assert records[1].end is None
    assert len(damage) == 3
    assert all("is damaged" in words for words in damage)
    assert next_number(folder) == newest_number + 1 == 4  # a damaged record still has its number


def test_lineage_follows_parents_and_leaves_branches_out() -> None:
    tree = [record(0), record(1, 0, 40), record(2, 0, 40), record(3, 2, 60), record(4, 0, 20)]
    assert lineage([]) == ()
    assert lineage(tree[:1]) == (Segment(0, None),)
    assert lineage(tree[:4]) == (Segment(3, None), Segment(2, 60), Segment(0, 40))
    assert lineage(tree) == (Segment(4, None), Segment(0, 20))
    assert lineage([record(0), record(1)]) == (Segment(1, None),)
    assert lineage([record(3, 2, 60), record(0)]) == (Segment(3, None), Segment(2, 60))


@st.composite
def forests(draw: st.DrawFn) -> list[AttemptRecord]:
    parents = draw(st.lists(st.integers(-1, 30), min_size=1, max_size=30))
    steps = draw(st.lists(st.integers(0, 9), min_size=len(parents), max_size=len(parents)))
    return [
        record(i, parent, step) if 0 <= parent < i else record(i)
        for i, (parent, step) in enumerate(zip(parents, steps, strict=True))
    ]


@given(forests(), st.randoms())
def test_a_step_is_on_the_lineage_when_walking_up_says_so(tree, random) -> None:
    """The oracle: is (attempt, step) still there for every attempt on the way down from it?"""
    shuffled = list(tree)
    random.shuffle(shuffled)
    limits = dict(lineage(shuffled))

    def kept(attempt: int, step: int, leaf: AttemptRecord) -> bool:
        if leaf.attempt == attempt:
            return True
        if leaf.parent is None or (leaf.parent == attempt and step > leaf.resume_step):
            return False
        return step <= leaf.resume_step and kept(attempt, step, tree[leaf.parent])

    for attempt in range(len(tree)):
        for step in range(10):
            on_chain = attempt in limits and (limits[attempt] is None or step <= limits[attempt])
            assert on_chain == kept(attempt, step, tree[-1]), (attempt, step)
