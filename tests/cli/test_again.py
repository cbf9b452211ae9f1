"""Whether a run wants to be started again, and which host ends a job that has lost its script."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli.again import again, wants_again
from holdfast.cli.job_end import is_first
from holdfast.journal.hosts_table import ListedHost
from holdfast.journal.lease import LastWords, LeaseState, LeaseView, acquire
from holdfast.journal.store import RunFolder, RunStore

NOW_NS = 1_800_000_000 * 10**9
SAVED, STOPPED = LastWords(75, "saved"), LastWords(75, "saved", by_person=True)
RELEASED, HELD = LeaseState.RELEASED, LeaseState.HELD


def lease(
    words: LastWords | None, state: LeaseState = RELEASED, epoch: int = 7, silent_s: int = 1
) -> LeaseView:
    return LeaseView(state, epoch, None, NOW_NS - silent_s * 10**9, words)


@pytest.mark.parametrize(
    ("seen", "after", "code", "exit_code"),
    [
        (lease(SAVED), 6, 75, 75),
        (lease(SAVED), 6, 137, 75),  # one of its processes was killed before
        (lease(SAVED), 6, 0, 75),  # the code of a task that was lost
        (lease(SAVED), None, None, 75),
        (lease(STOPPED), 6, 75, 0),
        (lease(LastWords(0, "done")), 6, 137, 0),
        (lease(LastWords(1, "failed")), 6, 75, 1),
        (lease(LastWords(69, "store")), None, None, 69),
        # It has not begun: what has ended before says nothing of it.
        (lease(SAVED, epoch=6), 6, 139, 139),
        (lease(STOPPED, epoch=6), 6, 75, 75),
        (lease(None, LeaseState.FREE, epoch=0), 0, 78, 78),
        (lease(None, LeaseState.FREE, epoch=0), None, None, 0),
        # It has told nothing.
        (lease(None, LeaseState.DEAD), 6, 75, 75),
        (lease(None, LeaseState.UNKNOWN), 6, 137, 137),
        (lease(None, LeaseState.DEAD), None, None, 75),
        (lease(None, HELD), None, None, 0),
        (lease(None, LeaseState.UNKNOWN), None, None, 0),
        (lease(None, LeaseState.UNKNOWN, silent_s=31), None, None, 75),
    ],
)
def test_what_its_start_should_end_with(
    seen: LeaseView, after: int | None, code: int | None, exit_code: int
) -> None:
    assert wants_again(seen, NOW_NS, after=after, code=code).exit_code == exit_code


def test_a_script_asks_for_the_lease_before_and_for_the_end_after_it(
    store: object, tmp_path: object
) -> None:
    folder = _run(str(store))
    place = ["lm", "--store", str(store)]
    assert CliRunner().invoke(again, [*place, "--lease"]).output == "0\n"
    acquire(folder).release(STOPPED)
    assert CliRunner().invoke(again, [*place, "--lease"]).output == "1\n"
    asked = CliRunner().invoke(again, [*place, "--after", "0", "--code", "75"])
    assert (asked.exit_code, "stopped by a person" in asked.output) == (0, True)
    acquire(folder).release(SAVED)
    assert CliRunner().invoke(again, [*place, "--after", "1"]).exit_code == 75


def test_without_a_store_the_code_counts(tmp_path: object) -> None:
    place = ["lm", "--store", f"{tmp_path}/none"]
    assert CliRunner().invoke(again, [*place, "--lease"]).output == "0\n"
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
