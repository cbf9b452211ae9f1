"""`holdfast run --stop-is-final`: what a person has stopped leaves with 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.run import _as_asked
from holdfast.journal.lease import LastWords, acquire
from holdfast.journal.store import RunStore


@pytest.mark.parametrize(
    ("code", "by_person", "left_with"),
    [(75, True, 0), (75, False, 75), (0, False, 0), (1, True, 1), (69, True, 69)],
)
def test_only_what_a_person_has_stopped_is_final(
    tmp_path: Path, code: int, by_person: bool, left_with: int
) -> None:
    folder = RunStore(tmp_path).create("lm")
    acquire(folder).end(LastWords(code, "stopped", by_person=by_person))
    assert _as_asked(folder, code) == left_with


def test_a_run_whose_words_nobody_can_read_is_started_again(tmp_path: Path) -> None:
    folder = RunStore(tmp_path).create("lm")
    assert _as_asked(folder, 75) == 75
    folder.path.rename(tmp_path / "away")
    assert _as_asked(folder, 75) == 75
