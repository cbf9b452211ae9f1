"""`holdfast run --stop-is-final`: what a person has stopped leaves with 0."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.run import _as_asked, run
from holdfast.errors import StoreUnavailable
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
    ("job_set", "job", "words", "is_over"),
    [
        ("", "uid-1", LastWords(0, "done", job="uid-1"), True),
        ("", "uid-2", LastWords(0, "done", job="uid-1"), False),  # another order: it begins anew
        ("", "", LastWords(0, "done"), False),
        ("", "uid-1", LastWords(75, "saved", job="uid-1"), False),
        ("", "uid-1", LastWords(75, "stopped", by_person=True, job="uid-1"), True),
        ("set-1", "uid-2", LastWords(0, "done", job="set-1"), True),  # of another slice
        ("set-2", "uid-1", LastWords(0, "done", job="set-1"), False),
    ],
)
def test_a_pod_that_is_made_again_once_the_run_is_over_leaves_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job_set: str,
    job: str,
    words: LastWords,
    is_over: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = RunStore(tmp_path).create("lm")
    acquire(folder).end(words)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("JOB_UID", job)
    monkeypatch.setenv("JOBSET_UID", job_set)
    begun: list[bool] = []
    monkeypatch.setattr(
        "holdfast.cli.several_hosts.take_part", lambda *_a, **_k: begun.append(True) or 7
    )
    asked = ("--name", "lm", "--store", str(tmp_path), "--hosts", "2", "--stop-is-final")
    result = CliRunner().invoke(run, [*asked, "--", "true"])
    assert (result.exit_code, begun) == ((0, []) if is_over else (7, [True])), result.output
    assert ("run 'lm' is over" in capfd.readouterr().err) == is_over


def test_a_run_that_is_known_is_not_begun_anew_where_its_store_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "mounted" / "runs"
    RunStore(store).create("lm")
    begun: list[bool] = []
    monkeypatch.setattr("holdfast.cli.supervise.supervise", lambda _: begun.append(True) or 0)
    slept: list[float] = []
    now_s = lambda: float(len(slept))  # noqa: E731
    monkeypatch.setattr("holdfast.cli.places.time.monotonic", now_s)
    monkeypatch.setattr("holdfast.cli.places.time.sleep", slept.append)

    def ran() -> Result:
        asked = ("--name", "lm", "--store", str(store), "--known", "--", "true")
        return CliRunner().invoke(run, asked)

    assert ran().exit_code == 0
    (tmp_path / "mounted").rename(tmp_path / "away")
    (tmp_path / "mounted").mkdir()  # where it is not mounted there is an empty folder
    refused = ran().exception
    assert isinstance(refused, StoreUnavailable)
    assert "check that the store is mounted" in str(refused)
    assert len(slept) == 30
    assert not store.exists()
    assert len(begun) == 1
    # One that is mounted meanwhile is found.
    monkeypatch.setattr(
        "holdfast.cli.places.time.sleep",
        lambda _s: ((tmp_path / "mounted").rmdir(), (tmp_path / "away").rename(store.parent)),
    )
    assert ran().exit_code == 0
    assert len(begun) == 2
