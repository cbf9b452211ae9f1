"""A host that loses power takes the last of its records with it; no kept step goes with them."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_ledger import account as plain_account

from holdfast.core.ledger.facts import AttemptFact, StepsFact
from holdfast.journal.facts.proven import MOST_PROVEN, EqualSteps, Proof, prove, slowest
from holdfast.journal.facts.rank_steps import NO_INTS, TimedSteps, UnderWay
from holdfast.journal.recorded import export_facts, load_run

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from told_runs import UNIX, ToldRun, Written

sys.path.pop(0)

S = 1_000_000_000


@contextlib.contextmanager
def put_twice(told: ToldRun, random: Random) -> Iterator[tuple[Path, Path]]:
    """Whole, and with a tail lost on one host in each attempt that was not the last."""
    lost = {
        attempt: (random.randrange(told.hosts), random.randint(start, end))
        for attempt, (start, end) in enumerate(told.spans[:-1])
    }
    if told.hosts == 1:  # something is left of it
        began = {one.attempt: one.at_ns for one in told.records[::-1] if one.is_begin}
        lost = {n: (rank, max(at_ns, began[n] + 1)) for n, (rank, at_ns) in lost.items()}

    def keeps(one: Written) -> bool:
        rank, from_ns = lost.get(one.attempt, (-1, 0))
        return one.rank != rank or one.at_ns < from_ns

    with tempfile.TemporaryDirectory() as folder:  # an example takes megabytes
        whole, torn = Path(folder, "whole"), Path(folder, "torn")
        told.put(whole, lambda _: True)
        told.put(torn, keeps)
        yield whole, torn


some = settings(max_examples=max(1, settings.default.max_examples // 4))  # files take their time
runs = (st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 4))


@some
@given(*runs, st.booleans())
def test_no_kept_step_is_lost_with_the_tail_of_a_host(random, attempts, hosts, is_even):
    told = ToldRun(random, attempts, hosts, is_even=is_even)
    with put_twice(told, random) as roots:
        for recorded in map(load_run, roots):
            account = recorded.account(UNIX + told.spans[-1][1] + S)  # raises if it sums up wrongly
            assert account.steps_kept == told.steps_kept
            assert recorded.ledger.last_kept_step() == told.steps_kept


@some
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(2, 4))
def test_the_time_of_steps_is_what_the_other_hosts_have_recorded(random, attempts, hosts):
    told = ToldRun(random, attempts, hosts, is_even=True)
    with put_twice(told, random) as roots:
        now_ns = UNIX + told.spans[-1][1]
        kept = [load_run(root).account(now_ns).productive for root in roots]
    assert kept[0] == kept[1]


@some
@given(*runs, st.integers(0, 60))
def test_both_ledgers_say_the_same_of_a_lost_tail(random, attempts, hosts, now_s):
    told = ToldRun(random, attempts, hosts, is_even=False)
    with put_twice(told, random) as (_, torn):
        recorded = load_run(torn)
    facts = list(export_facts(recorded))
    ours = recorded.account(recorded.facts.requested_ns + now_s * S)
    plain = plain_account(facts, now_s * S)
    assert ours.kinds == plain.kinds
    assert (ours.steps_kept, ours.lost_steps) == (plain.steps_kept, plain.lost_steps)
    assert all(_are_within_their_attempts(facts))


def _are_within_their_attempts(facts) -> list[bool]:
    """Of each step: whether it lies behind the one before it, and within its attempt."""
    ends = {fact.attempt: fact.end_ns for fact in facts if isinstance(fact, AttemptFact)}
    found = []
    at: dict[int, int] = {}
    rows = [one for one in facts if isinstance(one, StepsFact) and one.end_ns is not None]
    for row in sorted(rows, key=lambda one: (one.attempt, one.start_ns, one.end_ns, one.first)):
        found.append(at.get(row.attempt, 0) <= row.start_ns <= row.end_ns <= ends[row.attempt])
        at[row.attempt] = row.end_ns
    return found


# --- the rows of a proof ------------------------------------------------------------------------


def timed(*rows: tuple[int, int, int]) -> TimedSteps:
    return TimedSteps(*np.array(rows, np.int64).reshape(-1, 3).T)


@pytest.mark.parametrize(
    ("seen", "until", "rows"),
    [
        ([], 100, [(3, 5, 10, 40)]),  # nobody has recorded them: as long as others
        ([], 22, [(3, 5, 10, 22)]),  # not longer than the attempt
        ([], 7, [(3, 5, 10, 10)]),
        ([(3, 9, 12), (4, 12, 20), (5, 20, 23)], 100,
         [(3, 3, 10, 12), (4, 4, 12, 20), (5, 5, 20, 23)]),
        ([(3, 10, 12), (5, 20, 23)], 100, [(3, 3, 10, 12), (4, 4, 12, 20), (5, 5, 20, 23)]),
        ([(4, 30, 35)], 100, [(3, 3, 10, 30), (4, 4, 30, 35), (5, 5, 35, 45)]),
        ([(4, 30, 35)], 32, [(3, 3, 10, 30), (4, 4, 30, 32), (5, 5, 32, 32)]),
        ([(4, 30, 35)], 20, [(3, 3, 10, 20), (4, 4, 20, 20), (5, 5, 20, 20)]),
    ],
)  # fmt: skip
def test_rows_of_a_proof(seen, until, rows):
    found = prove(UnderWay(3, 10), 5, timed(*seen), 10, until)
    assert found == Proof(5, tuple(EqualSteps(*row) for row in rows))


def test_a_damaged_number_proves_nothing():
    nothing = TimedSteps(NO_INTS, NO_INTS, NO_INTS)
    assert prove(UnderWay(3, 10), 2, nothing, 10, 100) is None
    assert prove(UnderWay(3, 10), 3 + MOST_PROVEN, nothing, 10, 100) is None
    assert prove(UnderWay(3, 10), 2 + MOST_PROVEN, nothing, 10, 100) is not None


def test_several_ranks_record_a_step_from_first_begin_to_last_end():
    pieces = [timed((3, 10, 12), (4, 12, 19)), timed((3, 9, 11), (5, 30, 31)), timed()]
    found = slowest(pieces, 4)
    assert [column.tolist() for column in found] == [[3, 4], [9, 12], [12, 19]]
