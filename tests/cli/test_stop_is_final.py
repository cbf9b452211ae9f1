"""`holdfast run --stop-is-final`: what a person has stopped leaves with 0."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.run import _as_asked, run
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


@pytest.mark.parametrize(
    ("job", "words", "is_over"),
    [
        ("uid-1", LastWords(0, "done", job="uid-1"), True),
        ("uid-2", LastWords(0, "done", job="uid-1"), False),  # another order: it begins anew
        ("", LastWords(0, "done"), False),
        ("uid-1", LastWords(75, "saved", job="uid-1"), False),
        ("uid-1", LastWords(75, "stopped", by_person=True, job="uid-1"), True),
    ],
)
def test_a_pod_that_is_made_again_once_the_run_is_over_leaves_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    words: LastWords,
    is_over: bool,
) -> None:
    folder = RunStore(tmp_path).create("lm")
    acquire(folder).end(words)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("JOB_UID", job)
    begun: list[bool] = []
    monkeypatch.setattr(
        "holdfast.cli.several_hosts.take_part", lambda *_a, **_k: begun.append(True) or 7
    )
    asked = ("--name", "lm", "--store", str(tmp_path), "--hosts", "2", "--stop-is-final")
    result = CliRunner().invoke(run, [*asked, "--", "true"])
    assert (result.exit_code, begun) == ((0, []) if is_over else (7, [True])), result.output
