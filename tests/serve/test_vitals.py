"""What alerts go by, of runs whose journals say it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_runs import Made, make_run
from under_way import UnderWay, under_way

from holdfast.core.alerts import AlertKind, AlertPolicy, Vital, alerts
from holdfast.export.sample import sample_of
from holdfast.journal.clocks import now_ns
from holdfast.journal.lease import acquire
from holdfast.journal.store import RunStore
from holdfast.runs.reading import RunReading
from holdfast.serve.vitals import vital_of

S = 1_000_000_000


@pytest.fixture
def run(store: Path) -> Iterator[UnderWay]:
    with under_way(store) as run:
        yield run


def vital(reading: RunReading) -> Vital:
    now_ns = time.time_ns()
    return vital_of(reading.summary((), now_ns), reading, now_ns)


def kinds(told: Vital, **policy: int) -> list[AlertKind]:
    return [one.kind for one in alerts(told, AlertPolicy(**policy))[0]]


def test_a_run_that_is_well_has_nothing_to_tell(run: UnderWay) -> None:
    told = vital(run.reading)
    assert (told.state, told.loops, told.is_suspected, told.announced) == ("running", 0, False, ())
    assert told.since_step_ns is not None
    assert told.seen_age_ns is not None
    assert kinds(told) == []


def test_an_announcement_counts_down(run: UnderWay) -> None:
    events = [
        {"words": "gce: maintenance", "since_ns": run.at_ns, "deadline_ns": run.at_ns + 3600 * S},
        {"words": "file: soon", "since_ns": run.at_ns, "deadline_ns": None},
    ]
    run.fact("announced", at_ns=run.at_ns, events=events)
    (words, left_ns), undated = vital(run.reading).announced
    assert words == "gce: maintenance"
    assert left_ns is not None
    assert 3000 * S < left_ns <= 3600 * S
    assert undated == ("file: soon", None)


def test_collected_stacks_are_a_hang(run: UnderWay) -> None:
    run.told("StacksCollected", at_ns=run.at_ns + 1, attempt=0, ranks=[])
    assert kinds(vital(run.reading)) == [AlertKind.HANG]


def test_the_newest_save_of_any_tier_counts(run: UnderWay) -> None:
    told = vital(run.reading)
    assert not told.has_saved
    assert told.save_age_ns is not None
    assert told.save_age_ns >= 10 * S  # since its request
    run.told("FlushCommitted", at_ns=run.at_ns - 9 * S, of_attempt=0, epoch=1, step=5)
    run.told("Sealed", at_ns=run.at_ns - 3 * S, of_attempt=0, epoch=2, step=9, buffer=0)
    later = vital(run.reading)
    assert later.has_saved
    assert later.save_age_ns is not None
    assert 3 * S <= later.save_age_ns <= now_ns() - (run.at_ns - 3 * S)
    assert kinds(later, checkpoint_ns=2 * S) == [AlertKind.OLD_CHECKPOINT]


def test_attempts_that_got_nowhere_are_a_loop(store: Path) -> None:
    attempts = [Made(5, cause="killed"), *(Made(0, cause="failed") for _ in range(4))]
    folder, _ = make_run(RunStore(store), "loops", attempts, requested_ns=time.time_ns() - 1000 * S)
    lease = acquire(folder)
    told = vital(RunReading(folder))
    lease.release()
    assert (told.loops, told.last_cause) == (4, "the command failed")
    assert AlertKind.CRASH_LOOP in kinds(told)


def test_the_scripts_own_failure_again_and_again_is_a_loop_however_far_it_gets(
    store: Path,
) -> None:
    attempts = [Made(5, cause="failed", alike=n if n > 4 else 0) for n in range(9)]
    attempts.append(Made(5, cause=None))
    folder, _ = make_run(RunStore(store), "loops", attempts, requested_ns=time.time_ns() - 900 * S)
    lease = acquire(folder)
    reading = RunReading(folder)
    told = vital(reading)
    numbers = sample_of(reading.summary(()), reading, time.time_ns())
    lease.release()
    assert (told.loops, told.alike, told.alike_words) == (0, 8, "it failed")
    assert kinds(told) == [AlertKind.CRASH_LOOP]
    assert numbers.alike == 8


def test_of_a_run_that_is_over_only_its_end_is_told(store: Path) -> None:
    folder, _ = make_run(
        RunStore(store), "over", [Made(5, cause="failed")], requested_ns=time.time_ns() - 90 * S
    )
    told = vital(RunReading(folder))
    assert (told.state, told.why, told.save_age_ns) == ("failed", "it failed", None)
    assert kinds(told) == [AlertKind.ENDED]


def test_without_a_reading_nothing_is_made_up(run: UnderWay) -> None:
    now_ns = time.time_ns()
    told = vital_of(run.reading.summary((), now_ns), None, now_ns)
    assert (told.state, told.since_step_ns, told.save_age_ns) == ("running", None, None)
    assert kinds(told) == []
