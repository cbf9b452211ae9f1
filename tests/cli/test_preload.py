"""`holdfast preload`: what it asks for, what it leaves out, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.agent import preload as agent
from holdfast.cli.preload import preload
from holdfast.core.preloaded import PreloadedPart
from holdfast.errors import ConfigurationError, UnknownRun
from holdfast.journal.learned_imports import FILE
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore

READ = PreloadedPart("packages", 3, 5_000_000, 4_000_000, 10**9)


@pytest.fixture
def folder(store: Path) -> RunFolder:
    return RunStore(store).create("lm")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What processes are asked for; they answer at once."""
    found: list[tuple[Any, ...]] = []

    class Answers:
        trouble = "the rest was left: it took too long"

        def __init__(self, *words: Any) -> None:
            found.append(words)

        def run(self, limit_s: float, _told: Callable[..., None] = print) -> list[PreloadedPart]:
            found.append((limit_s,))
            return [READ]

    monkeypatch.setattr(agent, "ReadAhead", Answers)
    return found


def ran(*words: str) -> Result:
    return CliRunner().invoke(preload, words)


def test_no_such_run() -> None:
    assert isinstance(ran("lm").exception, UnknownRun)


def test_before_a_runs_first_start(store: Path, asked: list[Any]) -> None:
    script = store.parent / "t.py"
    script.write_text("import json\n")
    result = ran("lm", "--data", str(store.parent), "--", "python", str(script))
    assert result.exit_code == 0, result.output
    assert [part["what"] for part in asked[0][0]] == ["packages", "data"]
    assert "its report will not have what is read here" in result.output
    assert not RunStore(store).names()


def test_nothing_is_learned_and_there_is_no_command(
    folder: RunFolder, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    result = ran(folder.name)
    assert result.exit_code == 0
    assert not asked
    assert not result.output.count("MB")
    assert "write its command after `--`" in result.output
    assert "checkpoint: there is no checkpoint yet" in result.output


def test_what_the_run_has_learned_and_data(
    folder: RunFolder, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"format": 1, "modules": [["numpy", "/x/numpy.py"]], "mapped": []}
    (folder.path / FILE).write_text(json.dumps(said))
    monkeypatch.setattr("holdfast.snapshot.room.memory_free_bytes", lambda: 2000)
    places = ("--data", str(tmp_path), "--data-bytes", "7", "--limit", "9")
    result = ran(folder.name, *places, "--", "python", "t.py")
    assert result.exit_code == 0, result.output
    (parts, most_bytes, command, _), (limit_s,) = asked
    assert [part["what"] for part in parts] == ["packages", "data"]
    assert parts[0]["modules"] == (("numpy", "/x/numpy.py"),)
    assert (parts[1]["files"], parts[1]["most_bytes"]) == ([str(tmp_path)], 7)
    assert (most_bytes, command, limit_s) == (1000, ("python", "t.py"), 9)
    assert READ.words in result.output
    assert result.output.count("the rest was left") == 1
    (found,) = load_run(folder.path).facts.controllers.preloads.values()
    assert found.parts == (READ,)


def test_memory_that_is_too_small(
    folder: RunFolder, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.snapshot.room.memory_free_bytes", lambda: 1)
    result = ran(folder.name, "--data", "x")
    assert isinstance(result.exception, ConfigurationError)
    assert "nothing may be read: half of the 1 bytes of memory that is free" in str(
        result.exception
    )
    assert not asked


def test_which_of_several_hosts(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def spied(_folder: RunFolder, ranks: range, world_size: int) -> tuple[None, str]:
        found.append((list(ranks), world_size))
        return None, "none"

    monkeypatch.setattr(agent, "checkpoint_asked", spied)
    hosts = ("--hosts", "3", "--ranks", "2", "--host-index", "1")
    assert ran(folder.name, *hosts).exit_code == 0
    assert found == [([2, 3], 6)]
    missing = ran(folder.name, "--hosts", "3").exception
    assert "which of the hosts 0 to 2 is this?" in str(missing)
