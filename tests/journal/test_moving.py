"""Renaming and removing runs: one step that others see, and a second call that finishes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.cli.rm import rm
from holdfast.errors import ConfigurationError, RunHeld, StoreUnavailable, UnknownRun
from holdfast.journal import moving
from holdfast.journal.attempts import AttemptEnd, attempts, create_attempt, end_attempt
from holdfast.journal.lease import LeaseState, acquire, view
from holdfast.journal.moving import finish, move, remove_run, set_aside
from holdfast.journal.scratch import scratch_dir
from holdfast.journal.store import RunFolder, RunStore


class Killed(BaseException):
    """The process dies here."""


@pytest.fixture
def runs(store: Path) -> RunStore:
    made = RunStore(store)
    folder = made.create("lm", command=["python", "train.py"])
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    end_attempt(folder, 0, AttemptEnd("done", "", (0,), 1))
    (folder.ckpt_dir / "0000-000000000001").mkdir()
    return made


def dies_in(monkeypatch: pytest.MonkeyPatch, what: Any, name: str, at_call: int = 1) -> None:
    """The process dies at that call of it; afterwards it works."""
    real, calls = getattr(what, name), [0]

    def call(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == at_call:
            raise Killed
        return real(*arguments, **more)

    monkeypatch.setattr(what, name, call)


def is_whole(folder: RunFolder) -> bool:
    return len(attempts(folder).records) == 1 and (folder.ckpt_dir / "0000-000000000001").is_dir()


def test_a_run_under_another_name(runs: RunStore) -> None:
    before = runs.get("lm")
    move(runs, "lm", "better")
    assert runs.names() == ("better",)
    after = runs.get("better")
    assert is_whole(after)
    assert after.identity == replace(before.identity, name="better", first_name="lm")
    assert after.scratch_key == before.scratch_key, "what lies in scratch is found again"
    assert view(after).state is LeaseState.RELEASED
    move(runs, "better", "best")
    assert runs.get("best").identity.first_name == "lm"
    assert [path.name for path in runs.root.iterdir()] == ["best"]


def test_what_is_in_the_way_is_said(runs: RunStore) -> None:
    runs.create("other")
    for new, words in (("other", "already exists"), ("lm", "already exists"), ("a/b", "cannot be")):
        with pytest.raises(ConfigurationError, match=words):
            move(runs, "lm", new)
    with pytest.raises(UnknownRun, match="did you mean lm"):
        move(runs, "lmm", "x")
    (runs.root / "lm" / "machines").mkdir()
    (runs.root / "lm" / "machines" / "machines.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="has machines"):
        move(runs, "lm", "x")
    assert is_whole(runs.get("lm"))


@pytest.mark.parametrize(
    "act",
    [
        lambda runs: move(runs, "lm", "x"),
        lambda runs: set_aside(runs, "lm"),
        lambda runs: remove_run(runs, "lm"),
    ],
    ids=["mv", "fresh", "rm"],
)
def test_a_run_that_lives_is_left_alone(
    act: Callable[[RunStore], None], runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.journal.lease.DYING_EVERY_S", 0)
    lease = acquire(runs.get("lm"))
    with pytest.raises(RunHeld):
        act(runs)
    assert is_whole(runs.get("lm"))
    lease.release()


def as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease's holder was this process: to have died, it is another one."""
    monkeypatch.setattr("holdfast.journal.lease._ensure_free", lambda *_: None)


@pytest.mark.parametrize(
    ("what", "name", "at_call"),
    [
        (moving, "sync_folder", 1),
        (moving, "rewrite_name", 1),
        (moving, "_appear", 1),
        (moving, "sync_folder", 2),
    ],
)
def test_a_renaming_that_was_broken_off_is_finished(
    what: Any, name: str, at_call: int, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        dies_in(patch, what, name, at_call)
        with pytest.raises(Killed):
            move(runs, "lm", "x")
    assert "lm" not in runs.names()
    assert set(runs.names()) <= {"x"}, "never under a name that is neither"
    as_dead(monkeypatch)
    if runs.names():
        assert is_whole(runs.get("x"))
    else:
        move(runs, "lm", "x")
    assert runs.names() == ("x",)
    assert is_whole(runs.get("x"))


def test_who_renames_is_not_disturbed(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        dies_in(patch, moving, "_appear")
        with pytest.raises(Killed):
            move(runs, "lm", "x")
    monkeypatch.setattr("holdfast.journal.lease.DYING_EVERY_S", 0)
    assert finish(runs) == (), "its holder, this process, lives"
    assert runs.names() == ()


def test_a_name_that_was_taken_meanwhile(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        dies_in(patch, moving, "_appear")
        with pytest.raises(Killed):
            move(runs, "lm", "x")
    as_dead(monkeypatch)
    runs.create("x")
    with pytest.raises(StoreUnavailable, match="somebody has made one of that name"):
        finish(runs)
    runs.get("x").path.rename(runs.root / ".elsewhere")
    assert finish(runs) == ("x",)
    assert is_whole(runs.get("x"))


def test_a_run_that_is_removed_leaves_nothing(
    runs: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = runs.get("lm").scratch_key
    places = [tmp_path / "local", tmp_path / "ram"]
    for place in places:
        place.mkdir()
        (scratch_dir(key, bases=[place]) / "ram").mkdir()
        scratch_dir("other-1", bases=[place])
    remove_run(runs, "lm", tuple(map(str, places)))
    assert list(runs.root.iterdir()) == []
    for place in places:
        assert [path.name for path in next(place.iterdir()).iterdir()] == ["other-1"]
    with pytest.raises(UnknownRun):
        remove_run(runs, "lm")


def test_a_copied_store_has_folders_of_its_own(runs: RunStore, tmp_path: Path) -> None:
    shutil.copytree(runs.root, tmp_path / "copy")
    (tmp_path / "link").symlink_to(runs.root)
    original, copy = runs.get("lm"), RunStore(tmp_path / "copy").get("lm")
    assert copy.identity == original.identity
    assert RunStore(tmp_path / "link").get("lm").scratch_key == original.scratch_key
    base = tmp_path / "local"
    base.mkdir()
    kept = scratch_dir(original.scratch_key, bases=[base])
    removed = scratch_dir(copy.scratch_key, bases=[base])
    remove_run(RunStore(tmp_path / "copy"), "lm", (str(base),))
    assert (kept.exists(), removed.exists()) == (True, False)


@pytest.mark.parametrize(
    ("what", "name"), [(moving, "sync_folder"), (moving, "_remove_here"), (shutil, "rmtree")]
)
def test_a_removal_that_was_broken_off_is_finished(
    what: Any, name: str, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        dies_in(patch, what, name)
        with pytest.raises(Killed):
            remove_run(runs, "lm")
    assert runs.names() == (), "from the first moment nobody sees it"
    runs.create("lm")
    remove_run(runs, "lm")
    assert list(runs.root.iterdir()) == []


def test_half_of_its_files_are_gone(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        dies_in(patch, shutil, "rmtree")
        with pytest.raises(Killed):
            remove_run(runs, "lm")
    (hidden,) = runs.root.iterdir()
    (hidden / "run.json").unlink()
    remove_run(runs, "lm")
    assert list(runs.root.iterdir()) == []


def test_a_fresh_start_keeps_what_was(runs: RunStore) -> None:
    assert set_aside(runs, "lm") == "lm.1"
    assert set_aside(runs, "lm") is None
    runs.create("lm")
    assert set_aside(runs, "lm") == "lm.2"
    assert runs.names() == ("lm.1", "lm.2")
    assert is_whole(runs.get("lm.1"))


def test_rm_asks(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(runs.root))
    result = CliRunner().invoke(rm, ["lm"])
    assert isinstance(result.exception, ConfigurationError)
    assert is_whole(runs.get("lm"))
    for words, code, said in (
        (["mv", "lm", "x"], 0, "run 'lm' is now 'x'"),
        (["mv", "lm", "y"], 78, "no run is named 'lm'"),
        (["rm", "x", "--yes"], 0, "run 'x' is removed"),
        (["rm", "x", "--yes"], 78, "no run is named 'x'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == code
        assert said in "".join(capsys.readouterr())


@pytest.mark.real
def test_run_fresh_begins_anew_and_says_where_the_earlier_one_is(
    runs: RunStore, tmp_path: Path
) -> None:
    flags = ["--scratch", tmp_path, "--memory", "off", "--standby", "off", "--notice", "off"]
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--fresh", "--store", runs.root]
    done = subprocess.run(
        [*command, *flags, "--name", "lm", "--", "true"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Starting anew: the earlier run 'lm' is kept as 'lm.1'" in done.stderr
    assert is_whole(runs.get("lm.1"))
    assert runs.get("lm").identity.first_name == ""
    assert runs.get("lm").identity.run_id != runs.get("lm.1").identity.run_id
