"""The command's frame: how errors reach people, and what a mistyped word gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import main as frame
from holdfast.cli.run import run
from holdfast.config.settings import TABLE
from holdfast.errors import StoreUnavailable, UnknownRun


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Put a command of the test's own in the place of `ls`."""

    def put(action: Callable[[], None]) -> None:
        made = click.command("ls")(lambda: action())
        monkeypatch.setattr(frame.LazyGroup, "get_command", lambda *_: made)

    return put


def test_the_help_of_run_tells_the_defaults() -> None:
    shown = " ".join(CliRunner().invoke(run, ["--help"]).output.split())
    for one in TABLE:
        assert f"[default: {one.default_words.replace('`', '')}]" in shown, one.flag


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        frame.main(arguments)
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def fail(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["repot", "x"], "there is no command 'repot'; did you mean report?"),
        (["qqq"], "there is no command 'qqq'; see holdfast --help"),
        (["report", "--jsno", "x"], "no such option"),
        (["--nope"], "no such option"),
        (["stop"], "missing argument 'RUN'; see holdfast stop --help"),
    ],
)
def test_a_command_line_that_cannot_be_meant(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*arguments) == 78
    out, err = capsys.readouterr()
    assert out == ""
    assert err.lower().startswith(f"holdfast: {sentence}".lower())
    assert err.count("\n") == 1


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in frame.COMMANDS)
    assert code_of("--version") == 0
    assert capsys.readouterr().out.startswith("holdfast 0.")
    assert code_of() == 78
    assert "Usage: holdfast" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UnknownRun("no run is named 'x'"), 78, "holdfast: no run is named 'x'\n"),
        (StoreUnavailable("the store is full"), 69, "holdfast: the store is full\n"),
        (OSError(30, "Read-only", "/a/b"), 69, "holdfast: /a/b: Read-only\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(75), 75, ""),
    ],
)  # fmt: skip
def test_errors_become_one_sentence_and_a_code(
    command: Callable[[Callable[[], None]], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    command(fail(error))
    assert code_of("ls") == code
    assert capsys.readouterr().err.lstrip("\n") == sentence


def test_the_traceback_is_there_for_who_asks(
    command: Callable[[Callable[[], None]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    command(fail(StoreUnavailable("the store is full")))
    assert code_of("ls") == 69
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("holdfast: the store is full\n")


def test_a_fault_of_our_own_is_not_dressed_up(
    command: Callable[[Callable[[], None]], None],
) -> None:
    command(fail(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        frame.main(["ls"])


@pytest.mark.real
def test_help_imports_no_command_and_nothing_heavy() -> None:
    program = (
        "import sys\nfrom holdfast.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('numpy', 'rich', 'xxhash', 'jax')"
        " or m.startswith('holdfast.cli.') and m[13:] not in ('main', 'door')], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stderr.strip() == "[]"


@pytest.mark.contract("command line: a pipe that closes")
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")
