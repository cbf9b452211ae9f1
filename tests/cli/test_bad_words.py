"""What cannot be meant on a command line: one sentence, the right exit code, nothing begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.errors import ConfigurationError, StoreUnavailable

CONFIGURATION, UNAVAILABLE = ConfigurationError.exit_code, StoreUnavailable.exit_code
Refused = Callable[..., str]


@pytest.fixture
def refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Refused:
    """`refused(*words)`: the one line that is printed, in an empty folder with an empty store."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = CONFIGURATION) -> str:
        with pytest.raises(SystemExit) as exit_:
            main(words)
        out, err = capfd.readouterr()
        (line,) = (out + err).splitlines()
        assert exit_.value.code == code, line
        assert line.startswith("holdfast: ")
        assert line.isprintable()
        assert list(store.iterdir()) == []
        return line

    return call


@pytest.mark.parametrize(
    "command", ["report", "logs", "stop", "save", "export --history", "ckpt ls", "ckpt verify"]
)
def test_an_unknown_run(refused: Refused, command: str) -> None:
    assert "no-such-run" in refused(*command.split(), "no-such-run")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--name", "a/b"], "a/b"),
        (["--name", "../x"], "../x"),
        (["--name", "a\x1b[31mb\n"], r"\x1b[31m"),
        (["--name", ""], "name"),
        (["--name", "n" * 200], "200 characters"),
        (["--ranks", "0"], "ranks = "),
        (["--ranks", "many"], "many"),
        (["--grace", "-1"], "grace"),
        (["--save-every", "0"], "save_every"),
        (["--frobnicate"], "--frobnicate"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--notice", "nosuch"], "nosuch"),
        (["--notice", "file:"], "file:PATH"),
        (["--notice", "signal:USR1"], "signal:USR1=120"),
        (["--notice", "auto,gce:there"], "'there' is no address"),
    ],
)
def test_options_of_a_run(refused: Refused, options: list[str], told: str) -> None:
    assert told in refused("run", *options, "--", "true")


@pytest.mark.parametrize(
    ("ranks", "there"), [("1", "one rank, 0 (see --ranks)"), ("3", "ranks 0 to 2 (see --ranks)")]
)
def test_a_rehearsal_with_a_rank_that_is_not_there(
    refused: Refused, ranks: str, there: str
) -> None:
    line = refused("rehearse", "kill", "--ranks", ranks, "--rank", "3", "--", "true")
    assert line == f"holdfast: --rank 3: the run has {there}"


@pytest.mark.parametrize("flag", ["--window", "--last"])
def test_a_stretch_of_time_that_is_none_names_both_spellings_of_its_flag(
    refused: Refused, flag: str
) -> None:
    line = refused("report", "x", flag, "5x")
    assert line.startswith("holdfast: --window (or --last): 5x: there is no unit 'x'; ")


def test_a_report_of_nothing_says_what_there_is_a_report_of(refused: Refused) -> None:
    line = refused("report")
    assert "name a run, or a file with --history, or give --fleet for all runs" in line


@pytest.mark.parametrize("words", [["run"], ["run", "--name", "x", "--"]])
def test_no_command(refused: Refused, words: list[str]) -> None:
    assert "COMMAND" in refused(*words)


@pytest.mark.parametrize("words", [["run", "--", "true"], ["ls"]])
@pytest.mark.parametrize("text", ["this is not = = toml", "steps = 3\n", "ranks = 'two'\n", "\0"])
def test_a_configuration_file_full_of_rubbish(
    refused: Refused, tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    assert "holdfast.toml" in refused(*words)


@pytest.mark.parametrize("words", [["run", "--store", "{}", "--", "true"], ["ls", "--store", "{}"]])
def test_a_store_that_is_a_file(refused: Refused, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "store-file"
    file.write_text("precious")
    assert str(file) in refused(*(word.format(file) for word in words), code=UNAVAILABLE)
    assert file.read_text() == "precious"
