"""Whether a run wants to be started again, and which host ends a job that has lost its script."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli.again import again, wants_again
from holdfast.cli.job_end import is_first
from holdfast.config import start_of_job
from holdfast.journal.hosts_table import ListedHost
from holdfast.journal.lease import LastWords, LeaseState, LeaseView, acquire
from holdfast.journal.store import RunFolder, RunStore

NOW_NS = 1_800_000_000 * 10**9
SAVED, STOPPED = LastWords(75, "saved"), LastWords(75, "saved", by_person=True)
RELEASED, HELD = LeaseState.RELEASED, LeaseState.HELD
OURS, EARLIER = "17.2", "17.1"


def lease(
    words: LastWords | None, state: LeaseState = RELEASED, job: str = "", silent_s: int = 1
) -> LeaseView:
    told = None if words is None else words._replace(job=job)
    return LeaseView(state, 7, None, NOW_NS - silent_s * 10**9, told)


@pytest.mark.parametrize(
    ("seen", "job", "code", "exit_code"),
    [
        (lease(SAVED, job=OURS), OURS, 75, 75),
        (lease(SAVED, job=OURS), OURS, 137, 75),  # one of its processes was killed before
        (lease(SAVED, job=OURS), OURS, 0, 75),  # the code of a task that was lost
        (lease(SAVED), "", 75, 75),
        (lease(SAVED, job=OURS), "", None, 75),
        (lease(STOPPED, job=OURS), OURS, 75, 0),
        (lease(LastWords(0, "done"), job=OURS), OURS, 137, 0),
        (lease(LastWords(1, "failed"), job=OURS), OURS, 75, 1),
        (lease(LastWords(69, "store")), "", None, 69),
        # It has not begun: what has ended before says nothing of it.
        (lease(SAVED, job=EARLIER), OURS, 139, 139),
        (lease(STOPPED, job=EARLIER), OURS, 75, 75),
        (lease(SAVED), OURS, 78, 78),
        (lease(None, LeaseState.FREE), OURS, 78, 78),
        (lease(None, LeaseState.FREE), "", None, 0),
        # It has told nothing.
        (lease(None, LeaseState.DEAD), OURS, 75, 75),
        (lease(None, LeaseState.UNKNOWN), OURS, 137, 137),
        (lease(None, LeaseState.DEAD), "", None, 75),
        (lease(None, HELD), "", None, 0),
        (lease(None, LeaseState.UNKNOWN), "", None, 0),
        (lease(None, LeaseState.UNKNOWN, silent_s=31), "", None, 75),
    ],
)
def test_what_its_start_should_end_with(
    seen: LeaseView, job: str, code: int | None, exit_code: int
) -> None:
    assert wants_again(seen, NOW_NS, job=job, code=code).exit_code == exit_code


def test_a_script_asks_for_the_end_of_its_own_start(
    store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["lm", "--store", str(store), "--code", "139"]
    folder = _run(str(store))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    acquire(folder).release(STOPPED._replace(job=start_of_job()))
    asked = CliRunner().invoke(again, place)
    assert (asked.exit_code, "stopped by a person" in asked.output) == (0, True)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert CliRunner().invoke(again, place).exit_code == 139
    acquire(folder).release(SAVED._replace(job=start_of_job()))
    assert CliRunner().invoke(again, place).exit_code == 75


def test_without_a_store_the_code_counts(tmp_path: object) -> None:
    place = ["lm", "--store", f"{tmp_path}/none"]
    assert CliRunner().invoke(again, [*place, "--code", "75"]).exit_code == 75
    assert CliRunner().invoke(again, place).exit_code not in (0, 75)


@pytest.mark.parametrize(
    ("states", "first"),
    [
        ({0: "assigned", 1: "assigned"}, None),
        ({0: "quarantined", 1: "assigned"}, None),
        ({0: "lost", 1: "lost", 2: "spare", 3: "assigned"}, 2),
        ({1: "assigned", 2: "assigned"}, 1),
        ({0: "lost"}, None),
        ({}, None),
    ],
)
def test_one_host_alone_ends_a_job_whose_script_is_lost(
    states: dict[int, str], first: int | None
) -> None:
    rows = [ListedHost(index, state, "") for index, state in states.items()]
    assert [index for index in range(4) if is_first(index, rows)] == (
        [] if first is None else [first]
    )


def _run(store: str) -> RunFolder:
    return RunStore.at(store).open("lm", command=("true",))
