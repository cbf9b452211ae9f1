"""What a sample says of a run that is under way: tiers, notices, suspicions, signs of life."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from under_way import UnderWay, under_way

from holdfast.core.ledger.summary import rolling
from holdfast.export.sample import Sample, sample_of
from holdfast.journal.clocks import now_ns
from holdfast.journal.facts.controllers import TierSets
from holdfast.journal.facts.lines import (
    DISK,
    MEMORY,
    SavedSet,
    Suspected,
    WentBack,
    parse_input,
)
from holdfast.journal.layout import Word

S = 1_000_000_000


@pytest.fixture
def run(store: Path) -> Iterator[UnderWay]:
    with under_way(store) as run:
        yield run


def sample_now(run: UnderWay) -> Sample:
    now = time.time_ns()
    return sample_of(run.reading.summary(rolling(now), now), run.reading, now)


def test_a_run_under_way(run: UnderWay) -> None:
    sample = sample_now(run)
    assert (sample.run.state, sample.attempt, sample.run.step) == ("running", 0, 30)
    assert sample.since_step_s is not None
    assert 0 < sample.since_step_s < 60
    assert sample.since_seen_s is not None
    assert not sample.hang_suspected
    assert (sample.tiers, sample.at_risk_steps) == ({}, 30)  # nothing is saved
    assert sample.at_risk_s == pytest.approx(3.0, rel=0.1)
    assert sample.notice_s is None
    assert set(sample.run.within) == {"all", "1h", "1d", "7d"}


def test_tiers_are_told_by_what_the_supervisor_heard(run: UnderWay) -> None:
    at = run.at_ns
    for ago, step in ((6, 5), (4, 15), (2, 25)):
        run.told("Sealed", at_ns=at - ago * S, of_attempt=0, epoch=1, step=step, buffer=0)
    run.told("FlushCommitted", at_ns=at - 5 * S, of_attempt=0, epoch=1, step=5)
    run.told("Heard", at_ns=at - S, attempt=0, news={"event": "Committed", "epoch": 2, "step": 20})
    sample = sample_now(run)
    assert (sample.tiers[MEMORY].step, sample.tiers[MEMORY].interval_s) == (25, 2.0)
    assert (sample.tiers[DISK].step, sample.tiers[DISK].interval_s) == (20, 4.0)
    assert sample.tiers[MEMORY].age_s > sample.tiers[DISK].age_s
    assert sample.at_risk_steps == 5
    resume = {"set_name": "0000-000000000005", "step": 5, "parent": 0}
    run.told("Chosen", at_ns=at, resume=resume, words="")
    assert {name: tier.step for name, tier in sample_now(run).tiers.items()} == {MEMORY: 5, DISK: 5}


def test_hosts_are_told_by_their_state_and_their_clocks_by_the_worst(run: UnderWay) -> None:
    assert (sample_now(run).hosts, sample_now(run).clock_apart_s) == ({}, None)  # it has one host
    for host, state, ahead_ns, error_ns in (
        (0, "assigned", 0, 0),
        (1, "assigned", -3600 * S, 200_000),
        (2, "spare", 5, 400_000),
        (3, "lost", 9000 * S, S),  # a clock that nobody goes by any more
        (4, "spare", None, None),
    ):
        told = {"slot": None, "slice": "", "boot": f"boot {host}", "offset_ns": None}
        clock = {"error_ns": error_ns, "ahead_ns": ahead_ns}
        run.fact("host", at_ns=run.at_ns, host=host, state=state, **told, **clock)
    sample = sample_now(run)
    assert sample.hosts == {"assigned": 2, "spare": 2, "lost": 1}
    assert (sample.clock_apart_s, sample.clock_bound_s) == (3600.0, 0.0004)


def test_a_notice_counts_down(run: UnderWay) -> None:
    events = [
        {"words": "gce: maintenance", "since_ns": run.at_ns, "deadline_ns": run.at_ns + 3600 * S},
        {"words": "file: soon", "since_ns": run.at_ns, "deadline_ns": None},
    ]
    run.fact("announced", at_ns=run.at_ns, events=events)
    sample = sample_now(run)
    assert sample.announced == 2
    assert sample.notice_s is not None
    assert 3500 < sample.notice_s <= 3600


def test_collected_stacks_are_a_suspicion_until_a_step_comes(run: UnderWay) -> None:
    run.told("StacksCollected", at_ns=run.at_ns + 1, attempt=0, ranks=[])
    assert sample_now(run).hang_suspected
    for writer in run.ranks:
        writer.page.store(Word.STEP_AT, now_ns())
    assert not sample_now(run).hang_suspected


def test_a_long_silence_is_a_suspicion_but_not_in_a_span(run: UnderWay) -> None:
    for writer in run.ranks:
        writer.page.store(Word.STEP_AT, run.at_ns - 200 * S)
    assert sample_now(run).hang_suspected
    run.ranks[1].page.store(Word.OPEN_SPANS, 2)
    run.ranks[1].page.store(Word.OPEN_SPANS + 1, run.at_ns)
    assert not sample_now(run).hang_suspected


@pytest.mark.parametrize(
    ("said", "silent_s", "is_suspected"),
    [
        ({}, 160, True),
        ({"hang_ns": 400 * S}, 160, False),
        ({"hang_ns": 100 * S}, 10, False),
        ({"hang_ns": 100 * S}, 51, True),
        ({"hang_ns": 0}, 160, False),
        ({"hang_least_ns": 400 * S}, 160, False),
        ({"hang_least_ns": 100 * S}, 51, True),
    ],
)
def test_a_silence_is_measured_by_the_users_deadline(
    run: UnderWay, said: dict[str, int], silent_s: int, is_suspected: bool
) -> None:
    run.fact("run", name="r", requested_ns=run.at_ns - 10 * S, chips=2, **said)
    for writer in run.ranks:
        writer.page.store(Word.STEP_AT, now_ns() - silent_s * S)
    assert sample_now(run).hang_suspected is is_suspected


def test_without_readings_only_what_a_summary_holds_is_told(run: UnderWay) -> None:
    summary = sample_now(run).run
    sample = sample_of(summary, None, time.time_ns())
    assert (sample.attempt, sample.tiers, sample.since_step_s) == (0, {}, None)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"event": "Sealed", "at_ns": 5, "step": 7}, SavedSet(MEMORY, 7, 15)),
        ({"event": "FlushCommitted", "at_ns": 5, "step": 7}, SavedSet(DISK, 7, 15)),
        ({"event": "DrainCommitted", "at_ns": 5, "step": 7}, SavedSet(DISK, 7, 15)),
        ({"event": "Heard", "at_ns": 5, "news": {"event": "Committed", "step": 7}},
         SavedSet(DISK, 7, 15)),
        ({"event": "Heard", "at_ns": 5, "news": {"event": "Snapped", "step": 7}}, None),
        ({"event": "Heard", "at_ns": 5, "news": 3}, None),
        ({"event": "Chosen", "resume": {"step": 3}}, WentBack(3)),
        ({"event": "Chosen", "resume": {"step": -3}}, None),
        ({"fact": "attempt_start", "attempt": 1, "at_ns": 5, "resume_step": 3}, WentBack(3)),
        ({"fact": "attempt_start", "attempt": 1, "at_ns": 5, "resume_step": "3"}, None),
        ({"fact": "attempt_start", "attempt": 1, "at_ns": 5}, None),
        ({"event": "StacksCollected", "at_ns": 5, "attempt": 2}, Suspected(2, 15)),
        ({"event": "Sealed", "at_ns": 1e9, "step": 7}, None),
        ({"event": "Sealed", "at_ns": 2**63, "step": 7}, None),
        ({"event": "Sealed"}, None),
        ({"event": ["Sealed"]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_inputs_are_read_with_suspicion(payload: dict[str, Any], told: object) -> None:
    assert parse_input(payload, 10) == told


def test_sets_of_a_tier() -> None:
    sets = TierSets()
    assert (sets.newest, sets.interval_ns) == (None, None)
    for step, at_ns in ((1, 10), (2, 30), (2, 35), (3, 40), (4, 90)):
        sets.add(SavedSet(DISK, step, at_ns))
    assert sets.newest == SavedSet(DISK, 4, 90)
    assert sets.interval_ns == 20
    sets.went_back(2)
    assert sets.newest == SavedSet(DISK, 2, 30)
    sets.went_back(0)
    assert sets.newest is None
