"""An attempt that goes on under another controller: what is on record of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import AttemptExists
from holdfast.journal.attempts import (
    AttemptEnd,
    adopt_attempt,
    attempts,
    create_attempt,
    end_attempt,
    launched_and_ended,
    lineage,
    next_number,
)
from holdfast.journal.store import RunFolder, RunStore


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore(tmp_path).create("r")


def launch(folder: RunFolder, number: int, epoch: int, parent: int | None = None) -> None:
    create_attempt(
        folder,
        number,
        parent=parent,
        resume_step=0 if parent is None else 7,
        restore_set=None if parent is None else f"{parent}-7",
        epoch=epoch,
        ranks=2,
        incarnation="i",
    )


def test_an_adoption_takes_a_number_and_is_no_attempt(folder: RunFolder) -> None:
    launch(folder, 0, epoch=1)
    adopt_attempt(folder, 1, adopts=0, epoch=2)
    known = attempts(folder)
    assert [one.attempt for one in known.records] == [0]
    assert known.damage == ()
    assert (known.newest_number, known.next_number) == (0, 2)
    assert next_number(folder) == 2
    assert launched_and_ended(folder.attempt_dir(1), 1) == (None, None)
    assert known.records[0].goes_on_as == 1
    end_attempt(folder, 1, AttemptEnd("killed", "a rank was killed", (None, None), 5))
    (ended,) = attempts(folder).records
    assert ended.end is not None
    launch(folder, 2, epoch=2, parent=0)
    assert [one.attempt for one in lineage(attempts(folder).records)] == [2, 0]


def test_who_had_the_run_before_launches_nothing_any_more(folder: RunFolder) -> None:
    """It had looked at its lease, and was stopped right after that."""
    launch(folder, 0, epoch=1)
    adopt_attempt(folder, 1, adopts=0, epoch=2)
    with pytest.raises(AttemptExists, match="created by another supervisor"):
        launch(folder, 1, epoch=1, parent=0)
    with pytest.raises(AttemptExists, match="was launched under lease 2"):
        launch(folder, 2, epoch=1, parent=0)


def test_an_attempt_is_not_adopted_where_another_was_launched(folder: RunFolder) -> None:
    launch(folder, 0, epoch=1)
    launch(folder, 1, epoch=1, parent=0)  # by one that wakes up late
    with pytest.raises(AttemptExists):
        adopt_attempt(folder, 1, adopts=0, epoch=2)


def test_an_attempt_goes_on_under_one_controller_after_another(folder: RunFolder) -> None:
    launch(folder, 0, epoch=1)
    for number in (1, 2, 3):
        adopt_attempt(folder, number, adopts=0, epoch=number + 1)
    assert attempts(folder).next_number == 4
    assert attempts(folder).newest_number == 0


def test_an_end_that_a_controller_before_puts_on_record_does_not_count(folder: RunFolder) -> None:
    """It did not hear the hosts any more, and wakes up when another one goes on with them."""
    launch(folder, 0, epoch=1)
    adopt_attempt(folder, 1, adopts=0, epoch=2)
    end_attempt(folder, 0, AttemptEnd("lost host", "host 1 is lost", (None, None), 5))
    (goes_on,) = attempts(folder).records
    assert goes_on.end is None
    adopt_attempt(folder, 2, adopts=0, epoch=3)
    end_attempt(folder, 1, AttemptEnd("failed", "by the second", (1, None), 6))
    end_attempt(folder, 2, AttemptEnd("preempted", "by the third", (75, 75), 7))
    (over,) = attempts(folder).records
    assert over.end is not None
    assert over.end.words == "by the third"


def test_an_adoption_of_no_attempt_is_none(folder: RunFolder) -> None:
    launch(folder, 0, epoch=1)
    adopt_attempt(folder, 1, adopts=7, epoch=2)
    known = attempts(folder)
    assert [(one.attempt, one.goes_on_as) for one in known.records] == [(0, None)]
    assert known.next_number == 2
